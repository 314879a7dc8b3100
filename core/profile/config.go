package profile

import "github.com/asrconfig/asrconfig-go/core/units"

// SchemaVersion is the version of a saved Config. Readers refuse others and unknown keys.
const SchemaVersion = 2

// Config is a whole training configuration. Field names are those of transformers.TrainingArguments
// where one exists.
type Config struct {
	SchemaVersion int    `json:"schema_version"`
	Policy        string `json:"policy"` // the rule set that made it: "fastest" or "published"
	Preset        string `json:"preset"` // "balanced", "speed" or "reproducible"

	RowKind units.RowKind `json:"row_kind"` // "clips", or "texts": 50 tokens count as a second

	// samples per optimizer step that were asked for
	TargetBatchSize int `json:"target_batch_size"`
	// GPUs that share one optimizer step; 1 on a CPU
	DeviceCount               int `json:"device_count"`
	PerDeviceTrainBatchSize   int `json:"per_device_train_batch_size"`
	GradientAccumulationSteps int `json:"gradient_accumulation_steps"`
	PerDeviceEvalBatchSize    int `json:"per_device_eval_batch_size"`

	// "fixed": batches as the loader gives them; "memory": the guard splits each by predicted
	// memory
	MicroBatching string `json:"micro_batching"`
	// clips of the longest length that are computed at once
	MicroBatchSize int `json:"micro_batch_size"`
	// the fullest of an epoch: of those with about the longest clips, and of all; one where all
	// have one size
	MicroBatches []MicroBatch `json:"micro_batches"`
	// what a micro-batch takes on the GPU besides its padded audio, in seconds of audio
	MicroBatchOverheadS float64 `json:"micro_batch_overhead_s"`
	// what the CPU takes to launch its kernels, likewise: a micro-batch takes no less
	MicroBatchHostS float64 `json:"micro_batch_host_s"`
	// what the loss divides by, where that was given: "mean", "token_mean", "shifted_token_mean",
	// "sum", or "given" for a function, which is not saved
	Rule string `json:"rule,omitempty"`
	// clips of a step: "random", "grouped" (the Trainer's), "stratified" or "bucketed"
	LengthHandling string `json:"length_handling"`
	// of steps by length; else empty
	LengthBuckets []Bucket `json:"length_buckets"`
	// longer clips are left out; absent when none is
	MaxLengthS *float64 `json:"max_length_s"`
	// optimizer steps between evaluations; absent where none are planned
	EvalSteps *int `json:"eval_steps"`
	// optimizer steps between checkpoints; absent: the Trainer's default
	SaveSteps *int `json:"save_steps"`
	// clips to evaluate with, drawn at random; absent: all of the evaluation set
	EvalSamples *int `json:"eval_samples"`
	// evaluation batches after which predictions leave the GPU; absent: at the end
	EvalAccumulationSteps *int `json:"eval_accumulation_steps"`

	FP16                  bool `json:"fp16"`
	BF16                  bool `json:"bf16"`
	TF32                  bool `json:"tf32"`
	GradientCheckpointing bool `json:"gradient_checkpointing"`
	// with gradient checkpointing: one of so many layers is computed again; 1, each
	EveryNLayers int `json:"every_n_layers"`
	// what checkpointed layers save for recomputation is kept in pinned host memory
	OffloadCheckpoints bool `json:"offload_checkpoints"`
	TorchCompile       bool `json:"torch_compile"`
	CudnnBenchmark     bool `json:"cudnn_benchmark"`
	// whether PyTorch may choose cuDNN's attention, which it prepares again for each new shape
	CudnnAttention bool `json:"cudnn_attention"`
	Deterministic  bool `json:"deterministic"` // the Trainer's full_determinism

	// "sdpa", "eager"; "" leaves the model's
	AttnImplementation string `json:"attn_implementation"`
	// the convolutional front end does not train
	FreezeFeatureEncoder bool `json:"freeze_feature_encoder"`
	// of the adapters that train in place of the model; 0, the model itself trains
	LoRARank int `json:"lora_rank"`
	// for PYTORCH_ALLOC_CONF, before CUDA starts; "" leaves PyTorch's
	AllocConf string `json:"alloc_conf"`

	Distributed string   `json:"distributed"` // "none", "ddp", "zero1", "zero2", "zero3" or "fsdp"
	Devices     []Device `json:"devices"`     // what each GPU does; empty on a CPU

	DataloaderNumWorkers int `json:"dataloader_num_workers"`
	// batches per worker; absent without workers
	DataloaderPrefetchFactor    *int `json:"dataloader_prefetch_factor"`
	DataloaderPinMemory         bool `json:"dataloader_pin_memory"`
	DataloaderPersistentWorkers bool `json:"dataloader_persistent_workers"`

	// read the dataset as a stream instead of preparing it whole
	Streaming    bool `json:"streaming"`
	CacheDataset bool `json:"cache_dataset"` // keep decoded audio
	// split longer clips; absent when no clip needs it
	ChunkLengthS   *float64 `json:"chunk_length_s"`
	GroupByLength  bool     `json:"group_by_length"`  // batches of similar length
	LearningRate   float64  `json:"learning_rate"`    // after scaling
	LRScaling      string   `json:"lr_scaling"`       // "sqrt", "linear" or "none"
	NumTrainEpochs float64  `json:"num_train_epochs"` // may be a fraction
	WarmupRatio    float64  `json:"warmup_ratio"`     // 0..1 of all optimizer steps
	WeightDecay    float64  `json:"weight_decay"`
	MaxGradNorm    float64  `json:"max_grad_norm"`
	// Trainer's name: "adamw_torch_fused", "adamw_bnb_8bit", "adafactor", "sgd"
	Optimizer string `json:"optimizer"`
	Seed      int    `json:"seed"`

	// share of GPU memory that the plan may use, 0.70..0.95
	SafetyMargin float64 `json:"safety_margin"`
	GPUName      string  `json:"gpu_name"` // "" on a CPU
	// of the smallest GPU planned for; absent on a CPU
	GPUMemoryBytes *uint64 `json:"gpu_memory_bytes"`
	// parameters + gradients + optimizer state, by the policy
	ModelMemoryBytes int64 `json:"model_memory_bytes"`
	// peak of the tightest device at the chosen micro-batch, by the policy
	PredictedBytes int64 `json:"predicted_bytes"`
	// the worst over orders of clips that were simulated; absent when none was
	PredictedHighBytes *int64 `json:"predicted_high_bytes"`
	// what the plan may use of the tightest device: available memory with the margin
	BudgetBytes int64 `json:"budget_bytes"`
	// of PredictedBytes at its highest moment, in the order in which they are drawn
	MemoryParts []Part `json:"memory_parts"`
	// the settings of a Trainer without the guard; absent where the guard splits nothing
	Unguarded *Unguarded `json:"unguarded"`

	// absent where nothing is known of the device's speed
	Times *Times `json:"times"`
	// what clips need, for model FLOPs utilization; absent where neither a config nor a trace tells
	Arithmetic *Arithmetic `json:"arithmetic"`
	// alternatives, the published rule's among them
	Alternatives []Alternative `json:"alternatives"`
	// what settings without a planner take; absent where nothing is known of them
	ByHand *Alternative `json:"by_hand"`

	Decisions []Decision `json:"decisions"`
	Warnings  []string   `json:"warnings"` // what the user should know before starting
}

// Effective is the samples of one optimizer step over all devices.
func (c Config) Effective() int {
	return c.PerDeviceTrainBatchSize * c.GradientAccumulationSteps * c.DeviceCount
}

// Precision is "bf16", "fp16" or "fp32".
func (c Config) Precision() string {
	switch {
	case c.BF16:
		return "bf16"
	case c.FP16:
		return "fp16"
	}
	return "fp32"
}

// Checkpointing is which layers are computed again.
func (c Config) Checkpointing() Checkpointing {
	return CheckpointingOf(c.GradientCheckpointing, c.EveryNLayers, c.OffloadCheckpoints)
}

// Unguarded is the fixed batch that is fastest by `trainer.train()` without the guard, in place of
// the plan's settings.
type Unguarded struct {
	PerDeviceTrainBatchSize   int  `json:"per_device_train_batch_size"`
	GradientAccumulationSteps int  `json:"gradient_accumulation_steps"`
	GradientCheckpointing     bool `json:"gradient_checkpointing"`
	EveryNLayers              int  `json:"every_n_layers"`
	OffloadCheckpoints        bool `json:"offload_checkpoints"`
	// clips of the longest length that fit at once
	MicroBatchSize int   `json:"micro_batch_size"`
	PredictedBytes int64 `json:"predicted_bytes"` // peak of the tightest device
	// how many times as long as with the guard an epoch takes
	TimesLonger float64 `json:"times_longer"`
}

// WithoutGuard is the configuration as a Trainer without the guard carries it out.
func (c Config) WithoutGuard() Config {
	if u := c.Unguarded; u != nil {
		c.PerDeviceTrainBatchSize, c.GradientAccumulationSteps, c.MicroBatchSize =
			u.PerDeviceTrainBatchSize, u.GradientAccumulationSteps, u.MicroBatchSize
		c.GradientCheckpointing, c.EveryNLayers, c.OffloadCheckpoints =
			u.GradientCheckpointing, u.EveryNLayers, u.OffloadCheckpoints
	}
	return c
}

// Decision is one setting with the reason for its value, numbers and units included.
type Decision struct {
	Setting string `json:"setting"` // JSON name of the field
	Value   string `json:"value"`   // as shown to people
	Reason  string `json:"reason"`  // one sentence, with its numbers and units

	Alternative string `json:"alternative"` // the alternative, "on"; "" for none
	// of the value over the alternative: "1.4× faster", "needs 3.10 GiB less"
	Gain string `json:"gain"`
}

// MicroBatch is clips that are computed at once.
type MicroBatch struct {
	Clips   int     `json:"clips"`
	Seconds float64 `json:"seconds"` // of the longest of them
}

// Bucket is a range of durations whose clips share micro-batches.
type Bucket struct {
	UpToS float64 `json:"up_to_s"`
	Clips int     `json:"clips"`
	// what fits for its longest clip; absent where that is not known
	MicroBatch *int `json:"micro_batch"`
}

// Device is what one GPU does in a step.
type Device struct {
	// among the visible ones: CUDA's, but of unlike GPUs perhaps not before CUDA runs
	Index   int    `json:"index"`
	UUID    string `json:"uuid"` // "" when planned from the catalogue
	Name    string `json:"name"`
	Samples int    `json:"samples"` // of an optimizer step
	// clips of the longest length that are computed at once
	MicroBatchSize int   `json:"micro_batch_size"`
	PeakBytes      int64 `json:"peak_bytes"`   // predicted, context included
	BudgetBytes    int64 `json:"budget_bytes"` // available memory with the margin
}

// Part is a share of the predicted memory.
type Part struct {
	// "parameters", "gradients", "optimizer", "activations", "workspaces", "cached", "context", …
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Range is an estimate: low ≤ likely ≤ high.
type Range struct {
	Low    float64 `json:"low"`
	Likely float64 `json:"likely"`
	High   float64 `json:"high"`
}

// Arithmetic is the multiplications and additions of the model's products forward and backward, two
// for each multiply-add. What gradient checkpointing and fused attention compute again is left out,
// as model FLOPs utilization leaves it out.
type Arithmetic struct {
	ClipFLOPs [3]float64 `json:"clip_flops"` // of a clip: a constant, for each unit, for its square
	// "seconds" of the padded clip; "labels", tokens of its padded transcript, where audio is
	// padded to a fixed length
	Unit string `json:"unit"`
	// FLOP/s of the slowest GPU in the plan's precision, as published; absent where that is not
	// known
	Rate *float64 `json:"rate"`
}

// StepParts are seconds of an optimizer step, as they add up.
type StepParts struct {
	Compute Range `json:"compute"` // matrix products, convolutions and fused attention
	Memory  Range `json:"memory"`  // tensors written and read by everything else
	// what the GPU waits for the CPU's kernel launches beyond both
	Launches  Range `json:"launches"`
	Optimizer Range `json:"optimizer"` // its step, and gradients added up over micro-batches
	Exchange  Range `json:"exchange"`  // gradients between GPUs
	Overhead  Range `json:"overhead"`  // the Trainer's own work
}

// RunParts are hours of a run, as they add up.
type RunParts struct {
	Training    Range `json:"training"`    // all epochs, the loader's part in them
	Evaluation  Range `json:"evaluation"`  // all evaluations, generation in them
	Checkpoints Range `json:"checkpoints"` // written to disk
	// before the first step, and what the first steps take longer
	StartUp Range `json:"start_up"`
}

// Times is what training takes: estimates, each a range.
type Times struct {
	// seconds of an optimizer step, an epoch's mean; the loader's part in it
	StepS Range `json:"step_s"`
	// of the mean step, without the loader: their likely times add up to it
	Parts      StepParts `json:"parts"`
	EpochHours Range     `json:"epoch_hours"` // of an epoch, on average
	RunHours   Range     `json:"run_hours"`   // of the whole run
	RunParts   RunParts  `json:"run_parts"`   // hours that add up to them
	AudioRate  Range     `json:"audio_rate"`  // seconds of audio trained on per second
	// the largest part of the time: "compute", "memory", "launches", "optimizer", "exchange",
	// "overhead" or "loader"
	Bound      string `json:"bound"`
	Calibrated bool   `json:"calibrated"` // by measured steps
	// the day on which kernels of this card were measured that the times rest on; "" for the
	// model's own
	Measured string `json:"measured"`
	// of the run on all GPUs; absent where no price is known
	CostUSD *Range `json:"cost_usd"`
	// of the run, GPUs alone; absent where the board power is not known
	EnergyKWh *Range `json:"energy_kwh"`
}

// Alternative is an alternative to the plan.
type Alternative struct {
	// "published", "random order", "fixed micro-batches", "without checkpointing", …
	Name string `json:"name"`
	// in words and numbers: "4 × 8, float16, checkpointing"
	What      string `json:"what"`
	Fits      *bool  `json:"fits"`       // absent where that is not known
	PeakBytes *int64 `json:"peak_bytes"` // predicted for a batch of the longest clips
	// absent where it does not fit, or nothing is known of the device's speed
	EpochHours *Range `json:"epoch_hours"`
	// of the plan over this one: 1.5 is a plan 1.5 times as fast
	Speed *float64 `json:"speed"`
	// why it was not chosen although it is faster; "" where it is not
	Why string `json:"why"`
}
