package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	mixedPrecisionBytes     = 8e9         // published: on from 8 GB of GPU memory
	checkpointingParameters = 100_000_000 // published: on above 100 M parameters
	// compute capability; also the oldest that torch.compile's Triton supports
	tensorCores = 7.0
	ampere      = 8.0 // compute capability; the first with TF32
	hopper      = 9.0 // the first where PyTorch prefers cuDNN's attention
)

// oldest returns the GPU with the lowest compute capability: what it lacks, all must do without.
func oldest(gpus []profile.GPU) profile.GPU {
	return slices.MinFunc(gpus, func(a, b profile.GPU) int {
		return cmp.Compare(timing.Capability(a), timing.Capability(b))
	})
}

// mixedPrecision: bf16 where every GPU has it, else fp16 with a loss scaler.
func mixedPrecision(gpus []profile.GPU, preset string) (fp16, bf16 bool, reason string) {
	switch {
	case len(gpus) == 0:
		return false, false, "no GPU: float32 throughout"
	case preset == Reproducible:
		return false, false, "preset reproducible: float32 throughout"
	case slices.ContainsFunc(gpus, func(g profile.GPU) bool { return !g.BF16 }):
		return true, false, fmt.Sprintf(
			"compute capability %s has no native bfloat16, so fp16 with a loss scaler",
			oldest(gpus).ComputeCapability)
	}
	return false, true, fmt.Sprintf(
		"compute capability %s has bfloat16, which needs no loss scaler",
		oldest(gpus).ComputeCapability)
}

// publishedPrecision is mixedPrecision from 8 GB of GPU memory on.
func publishedPrecision(gpus []profile.GPU, preset string) (fp16, bf16 bool, reason string) {
	fp16, bf16, reason = mixedPrecision(gpus, preset)
	if !fp16 && !bf16 {
		return fp16, bf16, reason
	}
	smallest := slices.MinFunc(gpus, func(a, b profile.GPU) int {
		return cmp.Compare(a.MemoryTotalBytes, b.MemoryTotalBytes)
	}).MemoryTotalBytes
	if smallest < mixedPrecisionBytes {
		return false, false, fmt.Sprintf("%s of GPU memory, under %s", units.Size(smallest),
			threshold(mixedPrecisionBytes))
	}
	return fp16, bf16, fmt.Sprintf("%s of GPU memory ≥ %s; %s", units.Size(smallest),
		threshold(mixedPrecisionBytes), reason)
}

// writePrecision writes down a choice of precision, and what follows from it.
func (d *draft) writePrecision(gpus []profile.GPU, fp16, bf16 bool, reason string) {
	d.FP16, d.BF16 = fp16, bf16
	d.because("fp16", reason)
	d.because("bf16", reason)
	d.warn(slowHalfWarning(gpus, fp16))
	d.TF32, reason = tf32(gpus, d.Preset)
	d.because("tf32", reason)
}

// slowHalfWarning warns of GPUs on which fp16 saves memory but no time.
func slowHalfWarning(gpus []profile.GPU, fp16 bool) string {
	if !fp16 {
		return ""
	}
	if g := oldest(gpus); timing.Capability(g) > 0 && timing.Capability(g) < tensorCores {
		return fmt.Sprintf("%s (compute capability %s) has no tensor cores: fp16 saves memory "+
			"there, but hardly any time.", g.Name, g.ComputeCapability)
	}
	return ""
}

func tf32(gpus []profile.GPU, preset string) (on bool, reason string) {
	switch {
	case len(gpus) == 0:
		return false, "no GPU"
	case preset == Reproducible:
		return false, "preset reproducible: full float32 products"
	case timing.Capability(oldest(gpus)) < ampere:
		return false, fmt.Sprintf("compute capability %q is below 8.0 (Ampere)",
			oldest(gpus).ComputeCapability)
	}
	return true, fmt.Sprintf("compute capability %s ≥ 8.0 (Ampere)", oldest(gpus).ComputeCapability)
}

func gradientCheckpointing(m profile.Model) (on bool, reason string) {
	millions := float64(m.TotalParameters) / 1e6
	if m.TotalParameters > checkpointingParameters {
		return true, fmt.Sprintf("%.1f M parameters > 100 M", millions)
	}
	return false, fmt.Sprintf("%.1f M parameters ≤ 100 M", millions)
}

// writeChoiceOfKernels decides what PyTorch may take time to choose or to compile for a shape. The
// published rules know no shapes: to them all batches have one length.
func (d *draft) writeChoiceOfKernels(gpus []profile.GPU, oneLength bool) {
	var reason string
	d.TorchCompile, reason = torchCompile(gpus, d.Preset, oneLength)
	d.because("torch_compile", reason)
	d.CudnnBenchmark, reason = cudnnBenchmark(gpus, d.Preset, oneLength)
	d.because("cudnn_benchmark", reason)
	d.CudnnAttention, reason = d.cudnnAttention(gpus, oneLength)
	d.because("cudnn_attention", reason)
	d.Deterministic, reason = false, fmt.Sprintf("preset %s", d.Preset)
	if d.Preset == Reproducible {
		d.Deterministic, reason = true,
			"preset reproducible: deterministic kernels, where PyTorch has them"
	}
	d.because("deterministic", reason)
}

func torchCompile(gpus []profile.GPU, preset string, oneLength bool) (on bool, reason string) {
	switch {
	case preset != Speed:
		return false, "only the speed preset compiles"
	case len(gpus) == 0:
		return false, "no GPU"
	case timing.Capability(oldest(gpus)) < tensorCores:
		return false, fmt.Sprintf("torch.compile needs compute capability 7.0; this is %q",
			oldest(gpus).ComputeCapability)
	case !oneLength:
		return false, fmt.Sprintf("preset %s compiles only where all batches have one length; here "+
			"nearly every batch has its own and would be recompiled", preset)
	}
	return true, "preset speed; the first steps are slow while kernels are built"
}

func cudnnBenchmark(gpus []profile.GPU, preset string, oneLength bool) (on bool, reason string) {
	switch {
	case len(gpus) == 0:
		return false, "no GPU"
	case preset == Reproducible:
		return false, "preset reproducible: the choice of kernels must not depend on timing"
	case !oneLength:
		return false, fmt.Sprintf("preset %s benchmarks cuDNN's kernels only where all batches have "+
			"one length; here nearly every batch has its own and would be timed again", preset)
	}
	return true, fmt.Sprintf("preset %s; each new input shape is timed once", preset)
}

// cudnnAttention is whether PyTorch may choose cuDNN's attention. On a Hopper and later it prefers
// it, and cuDNN compiles a graph for each shape of a batch (pytorch/pytorch#155958): on an H100
// the first micro-batch of a shape took 0.3 to 3 s more (benchmarks/gpu/results.md).
func (d *draft) cudnnAttention(gpus []profile.GPU, oneLength bool) (on bool, reason string) {
	switch {
	case d.Policy == PublishedRule:
		return true, "the published rules leave the choice to PyTorch"
	case len(gpus) == 0:
		return true, "no GPU"
	case timing.Capability(oldest(gpus)) < hopper:
		return true, "PyTorch does not prefer it on this GPU"
	case oneLength:
		return true, "all batches have one length, for which cuDNN prepares it once"
	}
	return false, "cuDNN would prepare its attention again for nearly every batch, as each has a " +
		"shape of its own; PyTorch's other kernels need no preparation"
}
