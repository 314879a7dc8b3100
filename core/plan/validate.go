package plan

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Limits of inputs. They are far beyond any real run and keep every sum inside int64.
const (
	maxPartBytes = 1 << 58 // of parameters, of gradients, of optimizer state
	maxClipS     = batching.MaxSeconds
	maxHours     = 1e12
)

// check refuses facts that no plan can be made from.
func check(in Inputs) error {
	if err := checkModel(in.Model, optimizers[in.Options.Optimizer].state); err != nil {
		return err
	}
	if err := checkDataset(in.Dataset); err != nil {
		return err
	}
	for _, t := range in.Traced {
		if err := t.check(); err != nil {
			return err
		}
	}
	return checkHardware(in.Hardware, in.Options)
}

const modelHint = "profile the model again, or pass a ModelProfile with total_parameters and " +
	"trainable_parameters"

func checkModel(m profile.Model, state string) error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.InvalidArgument, modelHint, format, args...)
	}
	switch {
	case m.TotalParameters < 1:
		return bad("model %q has %d parameters; at least 1 is needed", m.Name, m.TotalParameters)
	case m.TrainableParameters < 0 || m.TrainableParameters > m.TotalParameters:
		return bad("model %q has %d trainable of %d parameters; 0..%d is possible",
			m.Name, m.TrainableParameters, m.TotalParameters, m.TotalParameters)
	case m.ParameterBytes < 1 || m.ParameterBytes > maxPartBytes:
		return bad("parameter_bytes of model %q is %d, outside 1..2^58", m.Name, m.ParameterBytes)
	case m.GradientBytes < 0 || m.GradientBytes > maxPartBytes:
		return bad("gradient_bytes of model %q is %d, outside 0..2^58", m.Name, m.GradientBytes)
	}
	bytes, ok := m.OptimizerBytes[state]
	if !ok || bytes < 0 || bytes > maxPartBytes {
		return bad("optimizer_bytes of model %q has no %q entry in 0..2^58 (found %v)", m.Name,
			state, m.OptimizerBytes)
	}
	return nil
}

func checkDataset(d profile.Dataset) error {
	if d.SampleCount < 1 {
		return fault.New(fault.EmptyDataset,
			"check the path or the split; files that cannot be read are listed in bad_files",
			"the dataset %q has %d usable %s (%d bad files); at least 1 is needed", d.Source,
			d.SampleCount, d.RowKind.Nouns(), len(d.BadFiles))
	}
	for _, f := range []struct {
		name       string
		value, low float64
		high       float64
	}{
		{"mean_s", d.MeanS, math.SmallestNonzeroFloat64, maxClipS},
		{"max_s", d.MaxS, 0, maxClipS},
		{"total_hours", d.TotalHours, 0, maxHours},
		{"size_bytes", float64(d.SizeBytes), 0, math.MaxInt64},
		{"decoded_bytes", float64(d.DecodedBytes), 0, math.MaxInt64},
		{"share_over_30s", d.ShareOver30S, 0, 1},
	} {
		if !(f.value >= f.low && f.value <= f.high) { // written so that NaN fails
			return fault.New(fault.InvalidArgument, "profile the dataset again",
				"%s of dataset %q is %v, outside %.3g..%.3g", f.name, d.Source, f.value, f.low,
				f.high)
		}
	}
	return nil
}

func checkHardware(h profile.Hardware, o Options) error {
	for _, g := range h.GPUs {
		if g.MemoryTotalBytes == 0 {
			return fault.New(fault.InvalidArgument,
				`name a GPU of the catalogue instead, such as gpu="T4"`,
				"GPU %d (%s) reports no memory", g.Index, g.Name)
		}
	}
	if h.Memory.TotalBytes == 0 || h.Memory.AvailableBytes > h.Memory.TotalBytes {
		return fault.New(fault.InvalidArgument, "profile the hardware again",
			"host memory is %d bytes with %d available; a total above 0 and not more than that "+
				"available is needed",
			h.Memory.TotalBytes, h.Memory.AvailableBytes)
	}
	if !(h.CPU.UsableCores >= 0) || math.IsInf(h.CPU.UsableCores, 1) {
		return fault.New(fault.InvalidArgument, "profile the hardware again",
			"usable_cores is %v; a number of at least 0 is needed", h.CPU.UsableCores)
	}
	return checkDeviceCount(h.GPUs, o)
}

func checkDeviceCount(gpus []profile.GPU, o Options) error {
	switch {
	case o.DeviceCount == nil:
		return nil
	case len(gpus) == 0 && *o.DeviceCount > 1:
		return fault.New(fault.InvalidArgument,
			`leave device_count out, or name a GPU to plan for, such as gpu="T4"`,
			"device_count is %d, but there is no GPU; 1..1 is possible on a CPU", *o.DeviceCount)
	case *o.DeviceCount > o.TargetBatchSize:
		return fault.New(fault.InvalidArgument, "raise target_batch_size or lower device_count",
			"device_count is %d, more than target_batch_size %d; every device needs at least one "+
				"sample a step",
			*o.DeviceCount, o.TargetBatchSize)
	}
	return nil
}
