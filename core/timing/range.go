// Package timing has what times of a training are made of: ranges of seconds, the parts of a step,
// lengths of clips, prices, energy, and calibration, by which measured steps replace what was
// estimated (docs/timing.md). Kernels are timed in core/timing/kernel, steps in core/estimate.
// Nothing here does I/O.
package timing

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Range is an estimate: Low <= Likely <= High.
type Range struct {
	Low    float64 `json:"low"`
	Likely float64 `json:"likely"`
	High   float64 `json:"high"`
}

// Plus adds two ranges end by end: what makes one slow makes the other slow too.
func (r Range) Plus(s Range) Range {
	return Range{r.Low + s.Low, r.Likely + s.Likely, r.High + s.High}
}

// Times scales a range by a number that is not negative.
func (r Range) Times(x float64) Range { return Range{r.Low * x, r.Likely * x, r.High * x} }

// Product multiplies two ranges of numbers that are not negative.
func (r Range) Product(s Range) Range {
	return Range{r.Low * s.Low, r.Likely * s.Likely, r.High * s.High}
}

// AtLeast is the larger range, end by end.
func (r Range) AtLeast(s Range) Range {
	return Range{max(r.Low, s.Low), max(r.Likely, s.Likely), max(r.High, s.High)}
}

// Calibration replaces the assumed efficiencies by what was measured: one factor for a model on a
// GPU.
type Calibration struct {
	Factor float64 `json:"factor"` // the median
	// the fastest tenth of the measured steps over predicted, with a twentieth to spare
	Low   float64 `json:"low"`
	High  float64 `json:"high"`  // the slowest tenth, likewise
	Steps int     `json:"steps"` // how many were measured
}

// StepCalibration is measured over predicted time of optimizer steps.
type StepCalibration struct {
	Calibration
	// the day on which kernels of the card were measured that the predicted times rest on; "" for
	// none
	Kernels string `json:"kernels"`
}

// spare is how far a calibrated range reaches beyond what was measured: steps to come have other
// clips.
const spare = 0.05

// shortest and longest are beyond every optimizer step, in seconds: ratios of what lies between
// them are finite.
const shortest, longest = 1e-9, 1e9

// Calibrate compares spans of time that were measured, in seconds, with what was predicted for each
// of them. Errors: InvalidArgument without a span, and where one is not a positive number.
func Calibrate(predicted []Range, measured []float64) (Calibration, error) {
	if len(measured) == 0 {
		return Calibration{}, fault.New(fault.InvalidArgument,
			"give the seconds of some optimizer steps, without the first ones", "no measured step")
	}
	if len(predicted) != len(measured) {
		return Calibration{}, fault.New(fault.InvalidArgument, "give one estimate for each",
			"%d measured steps for %d estimates", len(measured), len(predicted))
	}
	ratios := make([]float64, len(measured))
	for i, s := range measured {
		if !(s >= shortest && s <= longest) {
			return Calibration{}, fault.New(fault.InvalidArgument,
				"give the seconds of an optimizer step, 1e-9 to 1e9", "a measured step of %v s", s)
		}
		ratios[i] = s / predicted[i].Likely
	}
	slices.Sort(ratios)
	quantile := func(share float64) float64 { return between(ratios, share*float64(len(ratios)-1)) }
	return Calibration{quantile(0.5), quantile(0.1) * (1 - spare), quantile(0.9) * (1 + spare),
		len(ratios)}, nil
}

// Apply puts the measured factors in the place of the assumed range.
func (c Calibration) Apply(r Range) Range {
	return Range{r.Likely * c.Low, r.Likely * c.Factor, r.Likely * c.High}
}

// between reads a sorted list at a place that may lie between two entries.
func between(sorted []float64, place float64) float64 {
	place = min(max(place, 0), float64(len(sorted)-1))
	i := int(place)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (place-float64(i))*(sorted[i+1]-sorted[i])
}

// Parts of a step, in seconds, as they add up; profile.StepParts has them for others to read.
type Parts struct {
	Compute   Range // matrix products, convolutions and fused attention
	Memory    Range // tensors written and read by everything else
	Launches  Range // what the GPU waits for the CPU's kernel launches beyond both
	Optimizer Range // its step, and gradients added up over micro-batches
	Exchange  Range // gradients between GPUs
	Overhead  Range // the Trainer's own work
}

// Record is the parts as a plan has them.
func (p Parts) Record() profile.StepParts {
	return profile.StepParts{Compute: profile.Range(p.Compute), Memory: profile.Range(p.Memory),
		Launches:  profile.Range(p.Launches),
		Optimizer: profile.Range(p.Optimizer), Exchange: profile.Range(p.Exchange),
		Overhead: profile.Range(p.Overhead)}
}

// Sum is the whole step.
func (p Parts) Sum() Range {
	return p.Compute.Plus(p.Memory).Plus(
		p.Launches).Plus(p.Optimizer).Plus(p.Exchange).Plus(p.Overhead)
}

// OnGPU is what the step takes without waiting for launches.
func (p Parts) OnGPU() Range {
	p.Launches = Range{}
	return p.Sum()
}

// Bound names the largest part.
func (p Parts) Bound() string {
	name, largest := "compute", p.Compute.Likely
	for _, other := range []struct {
		name  string
		value Range
	}{{"memory", p.Memory}, {"launches", p.Launches}, {"optimizer", p.Optimizer},
		{"exchange", p.Exchange}, {"overhead", p.Overhead}} {
		if other.value.Likely > largest {
			name, largest = other.name, other.value.Likely
		}
	}
	return name
}

// Plus adds two spans of time part by part.
func (p Parts) Plus(q Parts) Parts {
	return Parts{p.Compute.Plus(q.Compute), p.Memory.Plus(q.Memory), p.Launches.Plus(q.Launches),
		p.Optimizer.Plus(q.Optimizer), p.Exchange.Plus(q.Exchange), p.Overhead.Plus(q.Overhead)}
}

// Times repeats a span.
func (p Parts) Times(x float64) Parts {
	return Parts{p.Compute.Times(x), p.Memory.Times(x), p.Launches.Times(x), p.Optimizer.Times(x),
		p.Exchange.Times(x), p.Overhead.Times(x)}
}
