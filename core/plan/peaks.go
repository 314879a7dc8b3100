package plan

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/memory/sharding"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// peak is the memory of a micro-batch of the longest clips on the tightest device: traced, or simulated from the config.
func (s *search) peak(f evaluated, batch int) (TracedPeak, error) {
	if f.traced != nil {
		if traced, known := f.traced.peak(batch); known {
			traced.Parts = inOrder(slices.Clone(traced.Parts))
			return traced, nil
		}
	}
	if s.estimator == nil {
		return f.traced.Peaks[len(f.traced.Peaks)-1], nil
	}
	e, err := s.estimator.Estimate(s.question(f.candidate, batch))
	if err != nil {
		return TracedPeak{}, err
	}
	beside, err := s.budget.OutsideAllocator(s.in.Model.TrainableParameters)
	if err != nil {
		return TracedPeak{}, err
	}
	held := map[string]int64{}
	for name, bytes := range e.AtPeak.Components {
		held[name] = int64(bytes)
	}
	total := max(1, int64(e.PeakReserved)+beside)
	if s.sharded() {
		if err := s.addSharded(f.candidate, held); err != nil {
			return TracedPeak{}, err
		}
		beside -= *s.budget.Shared
	}
	held["context"] = beside
	rest, parts := total, []profile.Part{}
	for name, bytes := range held {
		parts, rest = append(parts, profile.Part{Name: name, Bytes: bytes}), rest-bytes
	}
	return TracedPeak{Batch: batch, Bytes: total, PinnedBytes: int64(profile.Or(e.PinnedBytes, 0)), Parts: inOrder(append(parts, profile.Part{Name: "cached", Bytes: rest}))}, nil
}

// addSharded replaces what a process alone holds of the model by its part.
func (s *search) addSharded(w candidate, held map[string]int64) error {
	states, err := sharding.Of(s.shardingRequest(s.in.Options.Distributed, s.pool.count, w))
	if err == nil {
		held["parameters"], held["gradients"], held["optimizer"] = states.Parameters, states.Gradients, states.Optimizer
		held["buffers"] += states.Buffers
	}
	return err
}

// partOrder in which parts of memory are drawn; those that are not here come before "cached".
var partOrder = []string{"parameters", "buffers", "gradients", "optimizer", "inputs", "activations", "temporaries", "outputs", "workspaces"}

func inOrder(parts []profile.Part) []profile.Part {
	place := func(name string) int {
		if i := slices.Index(partOrder, name); i >= 0 {
			return i
		}
		return len(partOrder) + slices.Index([]string{"", "cached", "context"}, name) + 1
	}
	slices.SortFunc(parts, func(a, b profile.Part) int {
		if d := place(a.Name) - place(b.Name); d != 0 {
			return d
		}
		return int(b.Bytes - a.Bytes)
	})
	return slices.DeleteFunc(parts, func(p profile.Part) bool { return p.Bytes <= 0 })
}

// writeDevices says what each GPU does. Cards with more room take larger micro-batches where the guard cuts.
func (s *search) writeDevices(d *draft, f evaluated) error {
	d.Distributed = "none"
	why := "one device"
	if s.pool.count > 1 {
		d.Distributed, why = "ddp", "each GPU holds the whole model, which fits"
	}
	if asked := s.in.Options.Distributed; asked != "" && s.pool.count > 1 {
		d.Distributed, why = asked, "asked for"
		d.warn(s.engineWarning())
	}
	d.because("distributed", why)
	if f.chosen.shares != nil {
		shared, gain := s.sharesReason(f.chosen)
		d.reasons[len(d.reasons)-1].text += "; " + shared
		d.comparedWith("even shares", gain)
	}
	d.Devices = []profile.Device{}
	for i, g := range s.pool.gpus {
		planned, _ := plannedMemory(g, d.SafetyMargin)
		samples := s.samples(f.chosen, i)
		device := profile.Device{Index: g.Index, UUID: g.UUID, Name: g.Name, Samples: samples, MicroBatchSize: min(d.MicroBatchSize, samples),
			PeakBytes: d.PredictedBytes, BudgetBytes: int64(planned * d.SafetyMargin)}
		if i != s.pool.tightest && d.MicroBatching == memoryMicro && s.estimator != nil && device.BudgetBytes > d.BudgetBytes {
			own := *s
			own.budget = estimate.Budget{GPU: g, Devices: s.pool.count, Bytes: uint64(device.BudgetBytes)}
			q := own.question(f.candidate, 1)
			factor, err := s.estimator.Factor(q, own.budget, samples)
			if err != nil {
				return err
			}
			device.MicroBatchSize = max(device.MicroBatchSize, s.estimator.Largest(q, own.budget, factor, 1, samples))
			peak, err := own.peak(evaluated{candidate: f.candidate}, device.MicroBatchSize)
			if err != nil {
				return err
			}
			device.PeakBytes = peak.Bytes
		}
		d.Devices = append(d.Devices, device)
	}
	return nil
}

// samples is the clips of one device in a step.
func (s *search) samples(b batches, device int) int {
	if b.shares == nil {
		return s.perDevice
	}
	return b.shares[device]
}

// engineWarning says what the guard cannot do where an engine holds the model's state.
func (s *search) engineWarning() string {
	if !s.sharded() {
		return ""
	}
	return "With DeepSpeed and FSDP the guard cannot retry a step that runs out of memory: the launcher restarts with a smaller " +
		"micro-batch (torchrun --max-restarts). config.launch_files(folder, model=model) writes what they need."
}
