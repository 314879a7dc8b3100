package compare

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// CalibrateRequest holds optimizer steps of a training, each of micro-batches of its own, against
// their estimates.
type CalibrateRequest struct {
	Training
	Shapes []Shape        `json:"shapes"` // of all micro-batches
	Steps  []MeasuredStep `json:"steps"`  // 1..10 000
}

// Shape is the work of micro-batches of so many clips, padded to the longest.
type Shape struct {
	Clips   int         `json:"clips"`
	Seconds float64     `json:"seconds"`
	Work    kernel.Work `json:"work"` // from memory.work
}

// MeasuredStep is an optimizer step on one GPU.
type MeasuredStep struct {
	MicroBatches []int   `json:"micro_batches"` // of Shapes, by their places; 1..65536
	MeasuredS    float64 `json:"measured_s"`    // seconds
}

// CalibrateAnswer is what the measured steps show of a model on a GPU.
type CalibrateAnswer struct {
	GPU       string `json:"gpu"` // key of the catalogue
	Precision string `json:"precision"`
	// seconds of audio in all, padding included
	PaddedS     float64                `json:"padded_s"`
	Calibration timing.StepCalibration `json:"calibration"`
}

const mostMeasured, mostInStep = 10_000, 1 << 16

// Calibrate compares steps of varying shapes. Errors: those of Step, and InvalidArgument for what
// is no step.
func Calibrate(r CalibrateRequest) (CalibrateAnswer, error) {
	if len(r.Steps) > mostMeasured {
		return CalibrateAnswer{}, fault.New(fault.InvalidArgument, "give some of them",
			"%d steps; 10000 are the most", len(r.Steps))
	}
	s, err := r.stepper()
	if err != nil {
		return CalibrateAnswer{}, err
	}
	a := CalibrateAnswer{GPU: s.card.Key, Precision: s.Precision}
	micros := make([]micro, len(r.Shapes))
	for i, shape := range r.Shapes {
		if micros[i], err = s.micro(shape.Work); err != nil {
			return CalibrateAnswer{}, err
		}
	}
	predicted, measured := make([]timing.Range, len(r.Steps)), make([]float64, len(r.Steps))
	for i, step := range r.Steps {
		parts, err := unequal(step.MicroBatches, micros)
		if err != nil {
			return CalibrateAnswer{}, err
		}
		predicted[i], measured[i] = parts.Sum(), step.MeasuredS
		for _, micro := range step.MicroBatches {
			a.PaddedS += float64(r.Shapes[micro].Clips) * r.Shapes[micro].Seconds
		}
	}
	a.Calibration, err = s.calibrate(predicted, measured)
	return a, err
}

// calibrate holds measured seconds against predicted ones, by the kernels that those rest on.
func (s *stepper) calibrate(predicted []timing.Range,
	measured []float64) (timing.StepCalibration, error) {
	c, err := timing.Calibrate(predicted, measured)
	return timing.StepCalibration{Calibration: c, Kernels: s.timer.MeasuredOn}, err
}

// unequal is an optimizer step of micro-batches of any shapes.
func unequal(micros []int, shapes []micro) (total timing.Parts, err error) {
	if len(micros) == 0 || len(micros) > mostInStep {
		return total, fault.New(fault.InvalidArgument, "give the shape of each",
			"a step of %d micro-batches", len(micros))
	}
	var m micro
	for _, shape := range micros {
		if shape < 0 || shape >= len(shapes) {
			return total, fault.New(fault.InvalidArgument, "give its place among shapes",
				"shape %d of %d", shape, len(shapes))
		}
		m = shapes[shape]
		total = total.Plus(m.parts)
	}
	return total.Plus(m.update.After(len(micros))), nil
}
