package plan

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// peak is the memory of a micro-batch of the longest clips on the tightest device: traced, or simulated from the config.
func (s *search) peak(f found, batch int) (TracedPeak, error) {
	if f.traced != nil {
		if traced, known := f.traced.peak(batch); known {
			return traced, nil
		}
	}
	if s.ask == nil {
		return f.traced.Peaks[len(f.traced.Peaks)-1], nil
	}
	e, err := s.ask.Estimate(s.question(f.way, batch))
	if err != nil {
		return TracedPeak{}, err
	}
	beside, err := s.place.Beside(s.in.Model.TrainableParameters)
	if err != nil {
		return TracedPeak{}, err
	}
	parts, cached := []profile.Part{}, int64(e.PeakReserved)
	for name, bytes := range e.AtPeak.Components {
		parts = append(parts, profile.Part{Name: name, Bytes: int64(bytes)})
		cached -= int64(bytes)
	}
	parts = append(parts, profile.Part{Name: "cached", Bytes: cached}, profile.Part{Name: "context", Bytes: int64(beside)})
	return TracedPeak{Batch: batch, Bytes: int64(e.PeakReserved + beside), Parts: drawn(parts)}, nil
}

// order in which parts of memory are drawn; those that are not here come before "cached".
var order = []string{"parameters", "buffers", "gradients", "optimizer", "inputs", "activations", "temporaries", "outputs", "workspaces"}

func drawn(parts []profile.Part) []profile.Part {
	place := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order) + slices.Index([]string{"", "cached", "context"}, name) + 1
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
func (s *search) writeDevices(d *draft, f found) error {
	d.Distributed = "none"
	why := "one device"
	if s.pool.count > 1 {
		d.Distributed, why = "ddp", "each GPU holds the whole model, which fits"
	}
	d.because("distributed", why)
	d.Devices = []profile.Device{}
	for i, g := range s.pool.gpus {
		planned, _ := plannedMemory(g, d.SafetyMargin)
		device := profile.Device{Index: g.Index, Name: g.Name, Samples: s.share, MicroBatchSize: d.MicroBatchSize,
			PeakBytes: d.PredictedBytes, BudgetBytes: int64(planned * d.SafetyMargin)}
		if i != s.pool.tightest && d.MicroBatching == memoryMicro && s.ask != nil && device.BudgetBytes > d.BudgetBytes {
			own := *s
			own.place = estimate.Place{GPU: g, Devices: s.pool.count, Budget: uint64(device.BudgetBytes)}
			q := own.question(f.way, 1)
			device.MicroBatchSize = max(d.MicroBatchSize, s.ask.Largest(q, own.place, 1, 1, s.share))
			peak, err := own.peak(found{way: f.way}, device.MicroBatchSize)
			if err != nil {
				return err
			}
			device.PeakBytes = peak.Bytes
		}
		d.Devices = append(d.Devices, device)
	}
	return nil
}
