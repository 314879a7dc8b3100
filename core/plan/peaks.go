package plan

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/sharding"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// peak is the memory of a micro-batch of the longest clips on the tightest device: that of the next
// larger one that was traced.
func (s *search) peak(f evaluated, batch int) TracedPeak {
	peak, ok := f.traced.peak(batch)
	if !ok {
		peak = f.traced.Peaks[len(f.traced.Peaks)-1]
	}
	peak.Parts = inOrder(s.partsOf(f.candidate, peak))
	return peak
}

// partsOf are the parts of a peak. A trace is of a process that holds the whole model: where
// several divide its state, their parts replace it.
func (s *search) partsOf(w candidate, p TracedPeak) []profile.Part {
	if !s.sharded() {
		return slices.Clone(p.Parts)
	}
	// the request is one that shardState asked already
	states, _ := sharding.Of(s.shardingRequest(s.in.Options.Distributed, s.pool.count, w))
	parts := []profile.Part{{Name: "parameters", Bytes: states.Parameters},
		{Name: "gradients", Bytes: states.Gradients}, {Name: "optimizer", Bytes: states.Optimizer},
		{Name: "buffers", Bytes: states.Buffers}}
	cached := p.Bytes
	for _, part := range p.Parts {
		if !slices.Contains([]string{"parameters", "gradients", "optimizer", "cached", "context"},
			part.Name) {
			parts = append(parts, part)
		}
	}
	for _, part := range parts {
		cached -= part.Bytes
	}
	return append(parts, profile.Part{Name: "cached", Bytes: cached})
}

// partOrder in which parts of memory are drawn; those that are not here come before "cached".
var partOrder = []string{"parameters", "buffers", "gradients", "optimizer", "inputs", "activations",
	"temporaries", "outputs", "workspaces"}

func inOrder(parts []profile.Part) []profile.Part {
	place := func(name string) int {
		if i := slices.Index(partOrder, name); i >= 0 {
			return i
		}
		return len(partOrder) + slices.Index([]string{"", "cached", "context"}, name) + 1
	}
	slices.SortFunc(parts, func(a, b profile.Part) int {
		return cmp.Or(place(a.Name)-place(b.Name), cmp.Compare(b.Bytes, a.Bytes))
	})
	return slices.DeleteFunc(parts, func(p profile.Part) bool { return p.Bytes <= 0 })
}

// writeDevices records what each GPU does. Cards with more memory take larger micro-batches where
// the guard splits by memory.
func (s *search) writeDevices(d *draft, f evaluated) {
	d.Distributed = "none"
	reason := "one device"
	if s.pool.count > 1 {
		d.Distributed, reason = "ddp", "each GPU holds the whole model, which fits"
	}
	if engine := s.in.Options.Distributed; engine != "" && s.pool.count > 1 {
		d.Distributed, reason = engine, "asked for"
		d.warn(s.engineWarning())
	}
	d.because("distributed", reason)
	if f.chosen.shares != nil {
		shared, gain := s.sharesReason(f.chosen)
		d.reasons[len(d.reasons)-1].Reason += "; " + shared
		d.comparedWith("even shares", gain)
	}
	d.Devices = d.devices(s.pool, f.chosen.shares)
	for i := range d.Devices {
		device := &d.Devices[i]
		if i != s.pool.tightest && d.MicroBatching == memoryMicro &&
			device.BudgetBytes > d.BudgetBytes {
			roomier := *f.traced
			roomier.BudgetBytes = device.BudgetBytes
			device.MicroBatchSize = max(device.MicroBatchSize,
				min(device.Samples, roomier.Largest(s.clips.longest())))
			device.PeakBytes = max(device.PeakBytes, roomier.bytes(device.MicroBatchSize))
		}
	}
}

// engineWarning describes what the guard cannot do where an engine shards the model's state.
func (s *search) engineWarning() string {
	if !s.sharded() {
		return ""
	}
	return "With DeepSpeed and FSDP the guard cannot retry a step that runs out of memory: the " +
		"launcher restarts with a smaller " +
		"micro-batch (torchrun --max-restarts). config.launch_files(folder, model=model) writes " +
		"what they need."
}
