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
func Calibrate(predicted []profile.Range, measured []float64) (Calibration, error) {
	if len(measured) == 0 {
		return Calibration{}, fault.New(fault.InvalidArgument,
			"pass the seconds of some optimizer steps, without the first ones", "no measured step")
	}
	if len(predicted) != len(measured) {
		return Calibration{}, fault.New(fault.InvalidArgument, "pass one estimate for each",
			"%d measured steps for %d estimates", len(measured), len(predicted))
	}
	ratios := make([]float64, len(measured))
	for i, s := range measured {
		if !(s >= shortest && s <= longest) {
			return Calibration{}, fault.New(fault.InvalidArgument,
				"pass the seconds of an optimizer step, 1e-9 to 1e9", "a measured step of %v s", s)
		}
		ratios[i] = s / predicted[i].Likely
	}
	slices.Sort(ratios)
	quantile := func(share float64) float64 { return between(ratios, share*float64(len(ratios)-1)) }
	return Calibration{quantile(0.5), quantile(0.1) * (1 - spare), quantile(0.9) * (1 + spare),
		len(ratios)}, nil
}

// Apply replaces the assumed range by the measured factors.
func (c Calibration) Apply(r profile.Range) profile.Range {
	return profile.Range{Low: r.Likely * c.Low, Likely: r.Likely * c.Factor,
		High: r.Likely * c.High}
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
