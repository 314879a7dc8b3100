package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/sharding"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Names and values of options. The first of each group is the default.
const (
	DefaultPolicy = "fastest"
	PublishedRule = "published"

	Balanced = "balanced" // cuDNN benchmark and mixed precision, no torch.compile
	// also torch.compile and the largest batch that the formula allows
	Speed = "speed"
	// deterministic kernels, no mixed precision, no benchmark, no torch.compile
	Reproducible = "reproducible"

	ScaleSqrt   = "sqrt"   // learning rate grows with the square root of the effective batch
	ScaleLinear = "linear" // learning rate grows with the effective batch
	ScaleNone   = "none"   // learning rate stays

	LightPreprocessing = "light" // reading and resampling
	HeavyPreprocessing = "heavy" // augmentation in the loader: noise, reverberation, speed

	defaultOptimizer     = estimate.DefaultOptimizer
	defaultBaseRate      = 2e-5 // published, at defaultBaseBatchSize
	defaultBaseBatchSize = 8
	DefaultEpochs        = 3.0
	defaultSeed          = 42
)

// Limits of options.
const (
	MaxTargetBatchSize = 65536
	MinSafetyMargin    = 0.70
	MaxSafetyMargin    = 0.95
	MaxDeviceCount     = 1024
	maxWorkers         = 1024
	maxRank            = 65536
	maxEvalSamples     = 1 << 31
	maxGeneration      = 65536
	maxBeams           = 1024
	maxEpochs          = 10000
	maxEveryN          = 65536
	maxSeed            = math.MaxUint32 // numpy takes no larger one
)

// The values of options that have a closed set.
var (
	Policies        = []string{DefaultPolicy, PublishedRule}
	Presets         = []string{Balanced, Speed, Reproducible}
	LRScalings      = []string{ScaleSqrt, ScaleLinear, ScaleNone}
	Preprocessings  = []string{LightPreprocessing, HeavyPreprocessing}
	Precisions      = []string{"fp32", "fp16", "bf16"}
	LengthHandlings = []string{batching.Random, "grouped", batching.Stratified,
		batching.Bucketed}
	MicroBatchings = []string{fixedMicro, memoryMicro}
	// what the loss divides by: clips, tokens, tokens but each clip's first, nothing
	WeightRules = []string{"mean", "token_mean", "shifted_token_mean", "sum"}
	Rules       = append(WeightRules, "given") // by a function
)

// Options is what the user asks for. An empty text or an absent pointer takes the default; the two
// numbers that are not pointers have none and must be given.
type Options struct {
	Policy string `json:"policy"` // "fastest" or "published"
	Preset string `json:"preset"` // "balanced", "speed" or "reproducible"
	// samples per optimizer step over all devices, 1..65536
	TargetBatchSize int `json:"target_batch_size"`
	// share of the memory that the plan may use, 0.70..0.95
	SafetyMargin float64 `json:"safety_margin"`
	Optimizer    string  `json:"optimizer"`  // Trainer's name, see optimizers
	LRScaling    string  `json:"lr_scaling"` // "sqrt", "linear" or "none"
	// at BaseBatchSize, above 0 and at most 1; default 2e-5
	BaseLearningRate *float64 `json:"base_learning_rate"`
	BaseBatchSize    *int     `json:"base_batch_size"`  // 1..65536; default 8
	NumTrainEpochs   *float64 `json:"num_train_epochs"` // above 0 and at most 10000; default 3
	Seed             *int     `json:"seed"`             // 0..2^32-1; default 42
	// GPUs that share one optimizer step, 1..1024; default: those present
	DeviceCount   *int   `json:"device_count"`
	Preprocessing string `json:"preprocessing"` // "light" or "heavy"
	// what the loss divides by, as the guard takes it: "mean", "token_mean", "shifted_token_mean",
	// "sum", or "given" for a function; "" leaves it to the table of known losses
	Rule string `json:"rule"`
	// the table does not have the model's loss: without Rule the guard splits no step before memory
	// runs out
	LossUnknown bool `json:"loss_unknown"`

	EvaluationOptions

	// Of policy "fastest" alone. What is absent is the search's choice.
	// "fp32", "fp16" or "bf16"
	Precision             string `json:"precision"`
	GradientCheckpointing *bool  `json:"gradient_checkpointing"`
	// of checkpointing: one of so many layers is computed again, 1..65536; above 1 not with
	// GradientCheckpointing false
	EveryNLayers *int `json:"every_n_layers"`
	// checkpointing of each n-th layer alone is there where the plan will run: transformers has it
	// from 5.23 on
	AnyDepth bool `json:"any_depth"`
	// what checkpointed layers save is kept in pinned host memory; true not with
	// GradientCheckpointing false
	OffloadCheckpoints *bool `json:"offload_checkpoints"`
	// such offloading is there where the plan will run: transformers has it from 5.23 on
	CanOffload bool `json:"can_offload"`
	// "random", "grouped", "stratified" or "bucketed"
	LengthHandling string `json:"length_handling"`
	// longer clips are left out, above 0
	MaxLengthS *float64 `json:"max_length_s"`
	// "ddp", "zero1", "zero2", "zero3" or "fsdp": how several GPUs share the model
	Distributed string `json:"distributed"`
	// the dataset is a stream, of which a window of clips is known at a time
	Streamed bool `json:"streamed"`
	// the model is asked for as such
	FreezeFeatureEncoder bool `json:"freeze_feature_encoder"`
	// of adapters beside queries and values, 0..65536; 0, all parameters train
	LoRARank int `json:"lora_rank"`
	// the model has these adapters: it is counted and traced with them
	Adapted bool `json:"adapted"`
	// of the loader for each device, 0..1024; absent, as many as keep the device fed
	Workers *int `json:"workers"`
	// seconds of audio that a worker prepares per second; else assumed
	LoaderRate *float64 `json:"loader_rate"`
	// seconds of audio that a worker decodes per second, where no more is known
	DecodeRate *float64 `json:"decode_rate"`
	// of this model on this GPU by measured steps
	Calibration *timing.StepCalibration `json:"calibration"`
	// of this GPU by measured kernels; beside Calibration only what that rests on
	KernelProfile *kernel.Profile `json:"kernel_profile"`
	// of any GPUs, in the absence of KernelProfile
	KernelProfiles []kernel.Profile `json:"kernel_profiles"`
	// of one GPU, 0 or more
	PriceUSDHour *float64 `json:"price_usd_hour"`
	// where checkpoints go
	DiskFreeBytes *int64 `json:"disk_free_bytes"`
	// in /dev/shm, where workers hand batches over; of any policy
	ShmFreeBytes *int64 `json:"shm_free_bytes"`
}

// EvaluationOptions are those of policy "fastest" about evaluations. An absent one takes the
// default named at the end of its line.
type EvaluationOptions struct {
	// clips of the evaluation set, from 0; a tenth of those trained on
	EvalSamples *int `json:"eval_samples"`
	// of the training's time that evaluations may take, above 0 to 1; 0.1
	MaxEvalShare *float64 `json:"max_eval_share"`
	// evaluations generate texts; true for models that can
	PredictWithGenerate *bool `json:"predict_with_generate"`
	// tokens the most of a text, from 1; 225
	GenerationMaxLength *int `json:"generation_max_length"`
	NumBeams            *int `json:"num_beams"` // of a generation, 1..1024; 1
}

// Check refuses what cannot be. Errors: InvalidArgument.
func (o EvaluationOptions) Check() error {
	return cmp.Or(inRange("eval_samples", o.EvalSamples, 0, maxEvalSamples),
		inRange("generation_max_length", o.GenerationMaxLength, 1, maxGeneration),
		inRange("num_beams", o.NumBeams, 1, maxBeams),
		checkPositive("max_eval_share", o.MaxEvalShare, 1))
}

type optimizer struct {
	name  string // Trainer's name, as written to the Config
	state string // key of profile.Model.OptimizerBytes
}

// optimizers maps the names that users give, aliases included.
var optimizers = map[string]optimizer{
	"adamw_torch":       {"adamw_torch", "adamw"},
	"adamw_torch_fused": {"adamw_torch_fused", "adamw"},
	"adamw_bnb_8bit":    {"adamw_bnb_8bit", "adamw_8bit"},
	"adamw_8bit":        {"adamw_bnb_8bit", "adamw_8bit"},
	"adafactor":         {"adafactor", "adafactor"},
	"sgd":               {"sgd", "sgd"},
}

// Normalized fills in defaults, resolves aliases and checks every range.
func (o Options) Normalized() (Options, error) {
	o.Policy = cmp.Or(o.Policy, DefaultPolicy)
	o.Preset = cmp.Or(o.Preset, Balanced)
	o.Optimizer = cmp.Or(o.Optimizer, defaultOptimizer)
	o.LRScaling = cmp.Or(o.LRScaling, ScaleSqrt)
	o.Preprocessing = cmp.Or(o.Preprocessing, LightPreprocessing)
	return o, cmp.Or(
		oneOf("policy", o.Policy, Policies),
		oneOf("preset", o.Preset, Presets),
		oneOf("optimizer", o.Optimizer, OptimizerNames()),
		oneOf("lr_scaling", o.LRScaling, LRScalings),
		oneOf("preprocessing", o.Preprocessing, Preprocessings),
		oneOf("rule", o.Rule, append([]string{""}, Rules...)),
		inRange("target_batch_size", &o.TargetBatchSize, 1, MaxTargetBatchSize),
		inRange("base_batch_size", o.BaseBatchSize, 1, MaxTargetBatchSize),
		inRange("seed", o.Seed, 0, maxSeed),
		inRange("device_count", o.DeviceCount, 1, MaxDeviceCount),
		inRange("workers", o.Workers, 0, maxWorkers),
		inRange("every_n_layers", o.EveryNLayers, 1, maxEveryN),
		o.EvaluationOptions.Check(),
		inRange("lora_rank", &o.LoRARank, 0, maxRank),
		checkMargin(o.SafetyMargin),
		checkPositive("base_learning_rate", o.BaseLearningRate, 1),
		checkPositive("num_train_epochs", o.NumTrainEpochs, maxEpochs),
		oneOf("precision", o.Precision, append([]string{""}, Precisions...)),
		oneOf("length_handling", o.LengthHandling, append([]string{""}, LengthHandlings...)),
		oneOf("distributed", o.Distributed, append([]string{""}, sharding.Strategies()...)),
		checkPositive("max_length_s", o.MaxLengthS, maxClipS),
		checkPositive("loader_rate", o.LoaderRate, 1e9),
		checkPositive("decode_rate", o.DecodeRate, 1e9),
		checkPrice(o.PriceUSDHour),
		o.checkCombinations())
}

// measured are the kernels that times rest on: with a calibration those that its predicted times
// rest on. Errors: InvalidArgument where they are not there.
func (o Options) measured() (estimate.Measured, error) {
	all := estimate.Measured{Named: o.KernelProfile, Known: o.KernelProfiles}
	if o.Calibration == nil {
		return all, nil
	}
	return all.On(o.Calibration.Kernels)
}

// OptimizerNames are those that a plan can choose.
func OptimizerNames() []string { return slices.Sorted(maps.Keys(optimizers)) }

func oneOf(name, value string, allowed []string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	list := strings.Join(allowed, ", ")
	return fault.New(fault.InvalidArgument, "choose one of: "+list, "%s is %q, not one of %s", name,
		value, list)
}

func inRange(name string, value *int, low, high int) error {
	if value == nil {
		return nil
	}
	return fault.InRange(name, *value, low, high)
}

// checkMargin refuses NaN too, because every comparison with it is false.
func checkMargin(margin float64) error {
	if margin >= MinSafetyMargin && margin <= MaxSafetyMargin {
		return nil
	}
	return fault.New(fault.InvalidArgument,
		"0.85 is usual; lower it when other programs use the same device",
		"safety_margin is %v, outside %.2f..%.2f", margin, MinSafetyMargin, MaxSafetyMargin)
}

// checkPrice refuses NaN too.
func checkPrice(dollars *float64) error {
	if dollars == nil || (*dollars >= 0 && *dollars <= 1e6) {
		return nil
	}
	return fault.New(fault.InvalidArgument, "pass dollars per hour and GPU", "price_usd_hour is %v",
		*dollars)
}

// checkCombinations names options that exclude each other.
func (o Options) checkCombinations() error {
	refused := append(o.beyondFormula(), namesOfSet([]option{
		{"workers", o.Workers != nil},
		{"loader_rate", o.LoaderRate != nil},
		{"gpu_profile", o.KernelProfile != nil},
		{"price_usd_hour", o.PriceUSDHour != nil},
		{"options of evaluations", o.EvaluationOptions != (EvaluationOptions{})},
	})...)
	switch {
	case o.Policy == PublishedRule && len(refused) > 0:
		return fault.New(fault.InvalidArgument, "leave out either policy or the others",
			"policy %q does not accept %s", o.Policy, strings.Join(refused, ", "))
	case o.Streamed && o.LengthHandling != "" && !ofStreams(o.LengthHandling):
		return fault.New(fault.InvalidArgument,
			`choose length_handling="bucketed", or load the dataset without streaming`,
			"length_handling is %q, but of a stream one window of clips is known at a time",
			o.LengthHandling)
	case profile.Or(o.EveryNLayers, 1) > 1 && !profile.Or(o.GradientCheckpointing, true):
		return fault.New(fault.InvalidArgument, "leave one of the two out",
			"every_n_layers is %d, and gradient_checkpointing is off", *o.EveryNLayers)
	case profile.Or(o.EveryNLayers, 1) > 1 && o.Distributed == "fsdp":
		return fault.New(fault.InvalidArgument, "leave one of the two out",
			"every_n_layers is %d, but FSDP computes each layer again or none", *o.EveryNLayers)
	case profile.Or(o.OffloadCheckpoints, false) && !profile.Or(o.GradientCheckpointing, true):
		return fault.New(fault.InvalidArgument, "leave one of the two out",
			"offload_checkpoints is true, and gradient_checkpointing is off")
	case profile.Or(o.OffloadCheckpoints, false) && o.Distributed == "fsdp":
		return fault.New(fault.InvalidArgument, "leave one of the two out",
			"offload_checkpoints is true, but FSDP's own checkpoints stay on the GPU")
	case o.Preset == Reproducible && o.Precision != "" && o.Precision != "fp32":
		return fault.New(fault.InvalidArgument, "leave one of the two out",
			"preset %q trains in float32, and precision is %q", o.Preset, o.Precision)
	}
	return nil
}

// option is the name of an option, and whether the user set it.
type option struct {
	name  string
	isSet bool
}

// namesOfSet returns the names of the options that the user set.
func namesOfSet(options []option) (names []string) {
	for _, o := range options {
		if o.isSet {
			names = append(names, o.name)
		}
	}
	return names
}

// beyondFormula returns the options that the user set and the published formula ignores.
func (o Options) beyondFormula() []string {
	return namesOfSet([]option{
		{"precision", o.Precision != ""},
		{"gradient_checkpointing", o.GradientCheckpointing != nil},
		{"every_n_layers", o.EveryNLayers != nil},
		{"offload_checkpoints", o.OffloadCheckpoints != nil},
		{"length_handling", o.LengthHandling != ""},
		{"max_length_s", o.MaxLengthS != nil},
		{"distributed", o.Distributed != "" && o.Distributed != "ddp"},
		{"lora_rank", o.LoRARank != 0},
	})
}

// ofStreams reports whether clips can come in this order when a window of them is known at a time.
func ofStreams(order string) bool { return order == batching.Random || order == batching.Bucketed }

// leastPositive is below all sensible values; quotients by it stay finite.
const leastPositive = 1e-12

func checkPositive(name string, value *float64, high float64) error {
	if value == nil || (*value >= leastPositive && *value <= high) {
		return nil
	}
	return fault.New(fault.InvalidArgument, fmt.Sprintf("set %s to a number above 0 and at most %v",
		name, high),
		"%s is %v, not above 0 and at most %v", name, *value, high)
}
