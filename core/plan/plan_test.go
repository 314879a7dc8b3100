package plan

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	gib = 1 << 30
	mib = 1 << 20
)

func pointer[T any](value T) *T { return &value }

// trainedModel is a model of total parameters, all trained, with the bytes of the published
// formula.
func trainedModel(total int64) profile.Model {
	return profile.Model{
		Name: "test", TotalParameters: total, TrainableParameters: total, ParameterBytes: 4 * total, GradientBytes: 4 * total,
		OptimizerBytes: map[string]int64{"adamw": 8 * total, "adamw_8bit": 2 * total, "adafactor": total / 100, "sgd": 0},
	}
}

func gpu(name, capability string, bytes uint64) profile.GPU {
	return profile.GPU{Name: name, ComputeCapability: capability, MemoryTotalBytes: bytes, BF16: capability >= "8.0", Source: "catalogue"}
}

func machine(cores float64, ramGiB uint64, gpus ...profile.GPU) profile.Hardware {
	for i := range gpus {
		gpus[i].Index = i
	}
	return profile.Hardware{
		GPUs: gpus, CPU: profile.CPU{UsableCores: cores},
		Memory: profile.Memory{TotalBytes: ramGiB * gib, AvailableBytes: ramGiB * gib},
	}
}

// clips is a dataset of hours of clips that all last seconds.
func clips(seconds, hours float64) profile.Dataset {
	bytes := int64(hours * 3600 * 16000 * 2)
	return profile.Dataset{
		SampleCount: max(1, int(hours*3600/seconds)), MeanS: seconds, MinS: seconds, MaxS: seconds, TotalHours: hours,
		SizeBytes: bytes, DecodedBytes: 2 * bytes, Source: "folder clips",
	}
}

func inputs() Inputs {
	return Inputs{
		Hardware: machine(12, 64, gpu("NVIDIA L4", "8.9", 23034*mib)),
		Dataset:  clips(8, 50),
		Model:    trainedModel(781_250_000),
		Options:  Options{Policy: PublishedRule, TargetBatchSize: 32, SafetyMargin: 0.85},
	}
}

func planned(t *testing.T, in Inputs) profile.Config {
	t.Helper()
	c, err := makePlan(in)
	require.NoError(t, err)
	return c
}

// The published rows, from the published inputs: 12.5 GB of model memory is what 781.25 M trained
// parameters take at 16 B each, 4.8 GB is 300 M. Memory once as published (GB) and once as drivers
// report it (MiB).
func TestPublishedScenarios(t *testing.T) {
	for _, s := range []struct {
		name                string
		gpu, capability     string
		bytes               uint64
		parameters          int64
		micro, accumulation int
	}{
		{"L4 as published", "NVIDIA L4", "8.9", 24e9, 781_250_000, 4, 8},
		{"L4 as reported", "NVIDIA L4", "8.9", 23034 * mib, 781_250_000, 4, 8},
		{"A100 as published", "NVIDIA A100-SXM4-40GB", "8.0", 40e9, 781_250_000, 8, 4},
		{"A100 as reported", "NVIDIA A100-SXM4-40GB", "8.0", 40960 * mib, 781_250_000, 8, 4},
		{"T4 as published", "Tesla T4", "7.5", 16e9, 300_000_000, 8, 4},
		{"T4 as reported", "Tesla T4", "7.5", 15360 * mib, 300_000_000, 8, 4},
		{"the real XLS-R-1B on L4", "NVIDIA L4", "8.9", 23034 * mib, 962_000_000, 2, 16},
	} {
		t.Run(s.name, func(t *testing.T) {
			in := inputs()
			in.Hardware = machine(12, 64, gpu(s.gpu, s.capability, s.bytes))
			in.Model = trainedModel(s.parameters)
			c := planned(t, in)
			assert.Equal(t, s.micro, c.PerDeviceTrainBatchSize)
			assert.Equal(t, s.accumulation, c.GradientAccumulationSteps)
			assert.Equal(t, 32, c.Effective())
			assert.Equal(t, 16*s.parameters, c.ModelMemoryBytes)
		})
	}
}

func TestBatchReasonShowsTheArithmetic(t *testing.T) {
	c := planned(t, inputs())
	assert.Equal(t, "(22.49 GiB × 0.85 − 11.64 GiB) / (1.16 GiB activations + 0.5 MiB audio) = 6.4 → "+
		"largest power of two ≤ 0.8 × 6.4 = 5.1 is 4", decision(t, c, "per_device_train_batch_size").Reason)
	assert.Equal(t, "32 / (4 × 1 device); effective batch 4 × 8 × 1 = 32", decision(t, c, "gradient_accumulation_steps").Reason)
	assert.Equal(t, "sqrt scaling: 2e-05 × √(32 / 8) = 4e-05", decision(t, c, "learning_rate").Reason)
	assert.Empty(t, c.Warnings)
}

func TestPresets(t *testing.T) {
	for _, s := range []struct {
		preset                                       string
		micro                                        int
		bf16, tf32, benchmark, compile, reproducible bool
	}{
		{"", 8, true, true, true, false, false},
		{"balanced", 8, true, true, true, false, false},
		{"speed", 16, true, true, true, true, false}, // max_batch 19.2, no step down
		{"reproducible", 8, false, false, false, false, true},
	} {
		t.Run(s.preset, func(t *testing.T) {
			in := inputs()
			in.Hardware.GPUs[0].MemoryTotalBytes = 40960 * mib
			in.Options.Preset = s.preset
			in.Options.Seed = pointer(7)
			c := planned(t, in)
			assert.Equal(t, s.micro, c.PerDeviceTrainBatchSize)
			assert.Equal(t, 32, c.Effective())
			assert.Equal(t, s.bf16, c.BF16)
			assert.False(t, c.FP16)
			assert.Equal(t, s.tf32, c.TF32)
			assert.Equal(t, s.benchmark, c.CudnnBenchmark)
			assert.Equal(t, s.compile, c.TorchCompile)
			assert.Equal(t, s.reproducible, c.Deterministic)
			assert.Equal(t, 7, c.Seed)
		})
	}
}

func TestCPUPlan(t *testing.T) {
	in := inputs()
	in.Hardware = machine(8, 16)
	in.Hardware.NoGPUReason = "no NVIDIA driver"
	in.Hardware.Memory.AvailableBytes = 12e9
	in.Model = trainedModel(100_000_000) // 1.6 GB
	c := planned(t, in)
	assert.Equal(t, 32, c.PerDeviceTrainBatchSize) // (12 GB x 0.85 - 1.6 GB) / 0.1605 GB = 53.6
	assert.Equal(t, 32, c.Effective())
	assert.Nil(t, c.GPUMemoryBytes)
	assert.Empty(t, c.GPUName)
	for name, on := range map[string]bool{"fp16": c.FP16, "bf16": c.BF16, "tf32": c.TF32, "pin": c.DataloaderPinMemory,
		"benchmark": c.CudnnBenchmark, "compile": c.TorchCompile} {
		assert.False(t, on, name)
	}
	require.Len(t, c.Warnings, 1)
	assert.Contains(t, c.Warnings[0], "on the CPU: no NVIDIA driver")
}

func TestFreeMemoryLimits(t *testing.T) {
	in := inputs()
	in.Hardware.GPUs[0].MemoryFreeBytes = pointer(uint64(22e9)) // 91 % free: within the margin
	assert.Empty(t, planned(t, in).Warnings)
	in.Hardware.GPUs[0].MemoryFreeBytes = pointer(uint64(20e9))
	c := planned(t, in)
	assert.Equal(t, 2, c.PerDeviceTrainBatchSize) // (20 x 0.85 - 12.5) / 1.2505 = 3.6, x 0.8 = 2.9
	assert.Equal(t, uint64(23034*mib), *c.GPUMemoryBytes)
	require.Len(t, c.Warnings, 1)
	assert.Contains(t, c.Warnings[0], "GPU 0 (NVIDIA L4) has 18.63 GiB of 22.49 GiB free, less than the safety margin allows (19.12 GiB)")
}

func TestModelLargerThanTheBudget(t *testing.T) {
	in := inputs()
	in.Model = trainedModel(2_000_000_000) // 8 GB of parameters, 32 GB in all
	c := planned(t, in)
	assert.Equal(t, 1, c.PerDeviceTrainBatchSize)
	assert.Equal(t, 32, c.GradientAccumulationSteps)
	require.Len(t, c.Warnings, 1)
	assert.Contains(t, c.Warnings[0], "32.78 GiB for the model and one clip, 19.12 GiB usable on GPU 0 (NVIDIA L4)")
	assert.Contains(t, c.Warnings[0], "adamw_bnb_8bit")

	in.Model = trainedModel(7_000_000_000)
	_, err := makePlan(in)
	requireFault(t, err, fault.Infeasible, "26.08 GiB")
}

func requireFault(t *testing.T, err error, code fault.Code, text string) {
	t.Helper()
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	assert.Equal(t, code, f.Code)
	assert.Contains(t, f.Message, text)
	assert.NotEmpty(t, f.Hint)
}

// TestInputsThatCannotBe: of the published rule, whose facts are made by hand.
func TestInputsThatCannotBe(t *testing.T) {
	nan := math.NaN()
	for text, edit := range map[string]func(in *Inputs){
		"NaN, outside 0.70..0.95":        func(in *Inputs) { in.Options.SafetyMargin = nan },
		"0.6999":                         func(in *Inputs) { in.Options.SafetyMargin = 0.6999 },
		"outside 1..65536":               func(in *Inputs) { in.Options.TargetBatchSize = 0 },
		`preset is "fast", not one`:      func(in *Inputs) { in.Options.Preset = "fast" },
		`"magic"`:                        func(in *Inputs) { in.Options.Policy = "magic" },
		`"lion"`:                         func(in *Inputs) { in.Options.Optimizer = "lion" },
		"base_learning_rate is NaN":      func(in *Inputs) { in.Options.BaseLearningRate = &nan },
		"num_train_epochs is -1":         func(in *Inputs) { in.Options.NumTrainEpochs = pointer(-1.0) },
		"seed is -1":                     func(in *Inputs) { in.Options.Seed = pointer(-1) },
		"more than target_batch_size 32": func(in *Inputs) { in.Options.DeviceCount = pointer(33) },
		"there is no GPU": func(in *Inputs) {
			in.Hardware.GPUs, in.Options.DeviceCount = nil, pointer(2)
		},
		"has 0 parameters":            func(in *Inputs) { in.Model.TotalParameters = 0 },
		"781250001 trainable of 7812": func(in *Inputs) { in.Model.TrainableParameters++ },
		"parameter_bytes":             func(in *Inputs) { in.Model.ParameterBytes = 0 },
		"gradient_bytes":              func(in *Inputs) { in.Model.GradientBytes = math.MaxInt64 },
		`no "adamw" entry`:            func(in *Inputs) { in.Model.OptimizerBytes = nil },
		"mean_s":                      func(in *Inputs) { in.Dataset.MeanS = nan },
		"total_hours":                 func(in *Inputs) { in.Dataset.TotalHours = -1 },
		"reports no memory":           func(in *Inputs) { in.Hardware.GPUs[0].MemoryTotalBytes = 0 },
		"host memory":                 func(in *Inputs) { in.Hardware.Memory.TotalBytes = 0 },
		"usable_cores":                func(in *Inputs) { in.Hardware.CPU.UsableCores = nan },
		"num_beams is 70000":          func(in *Inputs) { in.Options.NumBeams = pointer(70000) },
		"options of evaluations":      func(in *Inputs) { in.Options.EvalSamples = pointer(2) },
		"does not accept loader_rate": func(in *Inputs) { in.Options.LoaderRate = pointer(900.0) },
		"not accept price_usd_hour":   func(in *Inputs) { in.Options.PriceUSDHour = pointer(2.0) },
		"not accept length_handling, lora_rank": func(in *Inputs) {
			in.Options.LengthHandling, in.Options.LoRARank, in.Options.Distributed = "stratified", 8, "ddp"
		},
	} {
		in := inputs()
		edit(&in)
		_, err := makePlan(in)
		requireFault(t, err, fault.InvalidArgument, text)
	}
	in := inputs()
	in.Hardware.GPUs[0].MemoryFreeBytes = pointer(uint64(0))
	_, err := makePlan(in)
	requireFault(t, err, fault.Infeasible, "no memory of GPU 0 (NVIDIA L4) is free")
	in.Dataset = profile.Dataset{Source: "folder x"}
	_, err = makePlan(in)
	requireFault(t, err, fault.EmptyDataset, `"folder x" has 0 usable clips`)
}

// TestSettingsThatCannotBe: of the search.
func TestSettingsThatCannotBe(t *testing.T) {
	off, on := pointer(false), pointer(true)
	for text, edit := range map[string]func(in *Inputs){
		"trains in float32": func(in *Inputs) {
			in.Options.Precision, in.Options.Preset = "bf16", Reproducible
		},
		"which Tesla T4 (compute capability 7.5)": func(in *Inputs) { in.Options.Precision = "bf16" },
		"a CPU trains in float32": func(in *Inputs) {
			in.Options.Precision, in.Hardware.GPUs = "fp16", nil
		},
		"no GPU to offload from": func(in *Inputs) {
			in.Options.OffloadCheckpoints, in.Hardware.GPUs = on, nil
		},
		"offload_checkpoints is true, and gradient": func(in *Inputs) {
			in.Options.OffloadCheckpoints, in.Options.GradientCheckpointing = on, off
		},
		"FSDP's own checkpoints": func(in *Inputs) {
			in.Options.OffloadCheckpoints, in.Options.Distributed = on, "fsdp"
		},
		"every_n_layers is 2, and gradient": func(in *Inputs) {
			in.Options.EveryNLayers, in.Options.GradientCheckpointing = pointer(2), off
		},
		"FSDP computes each layer": func(in *Inputs) {
			in.Options.EveryNLayers, in.Options.Distributed = pointer(2), "fsdp"
		},
		"every_n_layers is 65537":     func(in *Inputs) { in.Options.EveryNLayers = pointer(65537) },
		"max_length_s":                func(in *Inputs) { in.Options.MaxLengthS = pointer(math.NaN()) },
		"price_usd_hour":              func(in *Inputs) { in.Options.PriceUSDHour = pointer(-1.0) },
		"clip 1 lasts NaN s":          func(in *Inputs) { in.Durations = []float64{1, math.NaN()} },
		`rule is "median"`:            func(in *Inputs) { in.Options.Rule = "median" },
		`length_handling is "sorted"`: func(in *Inputs) { in.Options.LengthHandling = "sorted" },
		"eval_samples is -1":          func(in *Inputs) { in.Options.EvalSamples = pointer(-1) },
		"max_eval_share is 1.5":       func(in *Inputs) { in.Options.MaxEvalShare = pointer(1.5) },
		"no decoder that generates":   func(in *Inputs) { in.Options.PredictWithGenerate = on },
	} {
		in := described(t, xlsr, speech(100, 20, 1), "T4")
		edit(&in)
		_, err := makePlan(in)
		requireFault(t, err, fault.InvalidArgument, text)
	}
	in := described(t, xlsr, speech(100, 20, 1), "T4")
	in.Options.MaxLengthS = pointer(0.5)
	_, err := makePlan(in)
	requireFault(t, err, fault.EmptyDataset, "the shortest lasts 1")
}
