package report

import (
	"cmp"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

// comparison are the figures that two runs are compared by; units are those of view.ComparedFigure.
var comparison = []struct {
	key, name, unit string
	of              func(s *side) *float64
}{
	{"steps_per_s", "steps/s", "", func(s *side) *float64 { return s.figures.Steps.StepsPerS }},
	{"clips_per_s", "clips/s", "", (*side).clipRate},
	{"audio_rate", "audio s/s", "", func(s *side) *float64 { return s.figures.Steps.AudioRate }},
	{"waited", "loader wait", "share", func(s *side) *float64 { return s.figures.Steps.Waited }},
	{"padding", "padding", "share", func(s *side) *float64 { return s.figures.Steps.Padding }},
	{"utilization", "GPU busy", "share", func(s *side) *float64 { return s.gpuMean(func(g view.GPUFigures) *float64 { return g.Utilization }) }},
	{"model_flops_utilization", "useful work (MFU)", "share", func(s *side) *float64 { return s.figures.Steps.MFU }},
	{"used_peak_bytes", "peak GPU memory", "bytes", func(s *side) *float64 { return s.gpuMost(func(g view.GPUFigures) *float64 { return g.UsedPeak }) }},
	{"used_mean_bytes", "mean GPU memory", "bytes", func(s *side) *float64 { return s.gpuMean(func(g view.GPUFigures) *float64 { return g.UsedMean }) }},
	{"allocated_peak_bytes", "peak allocated", "bytes", func(s *side) *float64 { return s.gpuMost(func(g view.GPUFigures) *float64 { return g.Allocated }) }},
	{"host_used_peak_bytes", "peak host RAM", "bytes", (*side).hostPeak},
	{"energy_wh", "energy", "Wh", func(s *side) *float64 { return s.figures.EnergyWh }},
	{"train_s", "training time", "s", func(s *side) *float64 { return s.figures.Steps.TrainS }},
	{"evaluation_s", "evaluation time", "s", func(s *side) *float64 { return s.figures.Steps.EvaluationS }},
	{"errors_recovered", "errors recovered", "count", func(s *side) *float64 { return when(s.Guard != nil, float64(len(s.errors))) }},
}

// comparedFigures are those that at least one of the runs knows.
func comparedFigures(a, b *side) (found []view.ComparedFigure) {
	for _, f := range comparison {
		if x, y := f.of(a), f.of(b); cmp.Or(x, y) != nil {
			found = append(found, compared(f.key, f.name, f.unit, x, y))
		}
	}
	return found
}

func compared(key, name, unit string, a, b *float64) view.ComparedFigure {
	f := view.ComparedFigure{Key: key, Name: name, Unit: unit, A: a, B: b}
	if a != nil && b != nil {
		f.Ratio = ratio(*b, *a)
	}
	return f
}

// clipRate is known where the settings tell how many clips a step has.
func (s *side) clipRate() *float64 {
	r, rate := s.Settings, s.figures.Steps.StepsPerS
	if r.PerDeviceBatch == nil || r.Accumulation == nil || r.Devices == nil || rate == nil {
		return nil
	}
	return when(true, *rate*float64(*r.PerDeviceBatch)*float64(*r.Accumulation)*float64(*r.Devices))
}

func (s *side) gpuMean(figure func(view.GPUFigures) *float64) *float64 {
	return s.ofGPUs(figure).mean()
}

func (s *side) gpuMost(figure func(view.GPUFigures) *float64) *float64 { return s.ofGPUs(figure).top() }

// ofGPUs are the figures that are known, as of one moment.
func (s *side) ofGPUs(figure func(view.GPUFigures) *float64) (found line) {
	for _, g := range s.figures.GPUs {
		if v := figure(g); v != nil {
			found.add([]float64{0}, runlog.Column{*v})
		}
	}
	return found
}

func (s *side) hostPeak() (most *float64) {
	for _, h := range s.figures.Hosts {
		if h.UsedPeak != nil && (most == nil || *h.UsedPeak > *most) {
			most = h.UsedPeak
		}
	}
	return most
}
