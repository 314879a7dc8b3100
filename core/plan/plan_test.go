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

func reasonOf(t *testing.T, c profile.Config, setting string) string {
	t.Helper()
	for _, d := range c.Decisions {
		if d.Setting == setting {
			return d.Reason
		}
	}
	t.Fatalf("no decision on %q", setting)
	return ""
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
			assert.Equal(t, 32, effective(c))
			assert.Equal(t, 16*s.parameters, c.ModelMemoryBytes)
		})
	}
}

func TestBatchReasonShowsTheArithmetic(t *testing.T) {
	c := planned(t, inputs())
	assert.Equal(t, "(22.49 GiB × 0.85 − 11.64 GiB) / (1.16 GiB activations + 0.5 MiB audio) = 6.4 → "+
		"largest power of two ≤ 0.8 × 6.4 = 5.1 is 4", reasonOf(t, c, "per_device_train_batch_size"))
	assert.Equal(t, "32 / (4 × 1 device); effective batch 4 × 8 × 1 = 32", reasonOf(t, c, "gradient_accumulation_steps"))
	assert.Equal(t, "sqrt scaling: 2e-05 × √(32 / 8) = 4e-05", reasonOf(t, c, "learning_rate"))
	assert.Empty(t, c.Warnings)
}

func TestPresets(t *testing.T) {
	assert.Equal(t, []string{"balanced", "speed", "reproducible"}, Presets())
	assert.Equal(t, []string{"fastest", "published"}, Policies())
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
			assert.Equal(t, 32, effective(c))
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
	assert.Equal(t, 32, effective(c))
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

func TestBadInputIsNamed(t *testing.T) {
	nan := math.NaN()
	for _, s := range []struct {
		name string
		edit func(in *Inputs)
		code fault.Code
		text string
	}{
		{"margin NaN", func(in *Inputs) { in.Options.SafetyMargin = nan }, fault.InvalidArgument, "NaN, outside 0.70..0.95"},
		{"margin inf", func(in *Inputs) { in.Options.SafetyMargin = math.Inf(1) }, fault.InvalidArgument, "+Inf"},
		{"margin low", func(in *Inputs) { in.Options.SafetyMargin = 0.6999 }, fault.InvalidArgument, "0.6999"},
		{"margin high", func(in *Inputs) { in.Options.SafetyMargin = 0.96 }, fault.InvalidArgument, "0.96"},
		{"margin absent", func(in *Inputs) { in.Options.SafetyMargin = 0 }, fault.InvalidArgument, "safety_margin is 0"},
		{"target 0", func(in *Inputs) { in.Options.TargetBatchSize = 0 }, fault.InvalidArgument, "target_batch_size is 0, outside 1..65536"},
		{"target 10^9", func(in *Inputs) { in.Options.TargetBatchSize = 1e9 }, fault.InvalidArgument, "1000000000"},
		{"target negative", func(in *Inputs) { in.Options.TargetBatchSize = -3 }, fault.InvalidArgument, "-3"},
		{"preset", func(in *Inputs) { in.Options.Preset = "fast" }, fault.InvalidArgument, `preset is "fast", not one of balanced, speed, reproducible`},
		{"policy", func(in *Inputs) { in.Options.Policy = "magic" }, fault.InvalidArgument, `"magic"`},
		{"optimizer", func(in *Inputs) { in.Options.Optimizer = "lion" }, fault.InvalidArgument, `"lion"`},
		{"scaling", func(in *Inputs) { in.Options.LRScaling = "cubic" }, fault.InvalidArgument, `"cubic"`},
		{"preprocessing", func(in *Inputs) { in.Options.Preprocessing = "odd" }, fault.InvalidArgument, `"odd"`},
		{"rate", func(in *Inputs) { in.Options.BaseLearningRate = &nan }, fault.InvalidArgument, "base_learning_rate is NaN"},
		{"rate 0", func(in *Inputs) { in.Options.BaseLearningRate = pointer(0.0) }, fault.InvalidArgument, "base_learning_rate is 0"},
		{"base batch", func(in *Inputs) { in.Options.BaseBatchSize = pointer(0) }, fault.InvalidArgument, "base_batch_size is 0"},
		{"epochs", func(in *Inputs) { in.Options.NumTrainEpochs = pointer(-1.0) }, fault.InvalidArgument, "num_train_epochs is -1"},
		{"seed", func(in *Inputs) { in.Options.Seed = pointer(-1) }, fault.InvalidArgument, "seed is -1"},
		{"devices 0", func(in *Inputs) { in.Options.DeviceCount = pointer(0) }, fault.InvalidArgument, "device_count is 0"},
		{"devices over target", func(in *Inputs) { in.Options.DeviceCount = pointer(33) }, fault.InvalidArgument, "more than target_batch_size 32"},
		{"devices on CPU", func(in *Inputs) { in.Hardware.GPUs, in.Options.DeviceCount = nil, pointer(2) }, fault.InvalidArgument, "there is no GPU"},
		{"no parameters", func(in *Inputs) { in.Model.TotalParameters = 0 }, fault.InvalidArgument, "has 0 parameters"},
		{"trainable over total", func(in *Inputs) { in.Model.TrainableParameters++ }, fault.InvalidArgument, "781250001 trainable of 781250000"},
		{"trainable negative", func(in *Inputs) { in.Model.TrainableParameters = -1 }, fault.InvalidArgument, "-1 trainable"},
		{"no bytes", func(in *Inputs) { in.Model.ParameterBytes = 0 }, fault.InvalidArgument, "parameter_bytes"},
		{"absurd bytes", func(in *Inputs) { in.Model.GradientBytes = math.MaxInt64 }, fault.InvalidArgument, "gradient_bytes"},
		{"no state", func(in *Inputs) { in.Model.OptimizerBytes = nil }, fault.InvalidArgument, `"adamw"`},
		{"empty", func(in *Inputs) { in.Dataset = profile.Dataset{Source: "folder x"} }, fault.EmptyDataset, `"folder x" has 0 usable clips`},
		{"mean NaN", func(in *Inputs) { in.Dataset.MeanS = nan }, fault.InvalidArgument, "mean_s"},
		{"mean 0", func(in *Inputs) { in.Dataset.MeanS = 0 }, fault.InvalidArgument, "mean_s"},
		{"hours", func(in *Inputs) { in.Dataset.TotalHours = -1 }, fault.InvalidArgument, "total_hours"},
		{"GPU without memory", func(in *Inputs) { in.Hardware.GPUs[0].MemoryTotalBytes = 0 }, fault.InvalidArgument, "GPU 0 (NVIDIA L4)"},
		{"no RAM", func(in *Inputs) { in.Hardware.Memory.TotalBytes = 0 }, fault.InvalidArgument, "host memory"},
		{"GPU without free memory", func(in *Inputs) {
			in.Hardware.GPUs[0].MemoryFreeBytes, in.Options.Policy = pointer(uint64(0)), PublishedRule
		}, fault.Infeasible,
			"no memory of GPU 0 (NVIDIA L4) is free"},
		{"no RAM available", func(in *Inputs) {
			in.Hardware.GPUs, in.Hardware.Memory.AvailableBytes, in.Options.Policy = nil, 0, PublishedRule
		}, fault.Infeasible,
			"no memory of host RAM is free"},
		{"cores NaN", func(in *Inputs) { in.Hardware.CPU.UsableCores = nan }, fault.InvalidArgument, "usable_cores"},
	} {
		t.Run(s.name, func(t *testing.T) {
			in := inputs()
			s.edit(&in)
			_, err := makePlan(in)
			requireFault(t, err, s.code, s.text)
		})
	}
}
