package compare

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
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
	p, err := r.predictor()
	if err != nil {
		return CalibrateAnswer{}, err
	}
	a := CalibrateAnswer{GPU: p.card.Key, Precision: p.Precision}
	micros := make([]microBatch, len(r.Shapes))
	for i, shape := range r.Shapes {
		if micros[i], err = p.microBatch(shape.Work); err != nil {
			return CalibrateAnswer{}, err
		}
	}
	predicted, measured := make([]profile.Range, len(r.Steps)), make([]float64, len(r.Steps))
	for i, step := range r.Steps {
		parts, err := unequalStep(step.MicroBatches, micros)
		if err != nil {
			return CalibrateAnswer{}, err
		}
		predicted[i], measured[i] = parts.Sum(), step.MeasuredS
		for _, shape := range step.MicroBatches {
			a.PaddedS += float64(r.Shapes[shape].Clips) * r.Shapes[shape].Seconds
		}
	}
	a.Calibration, err = p.calibrate(predicted, measured)
	return a, err
}

// calibrate compares measured seconds with predicted ones, and notes the kernels that those rest
// on.
func (p *predictor) calibrate(predicted []profile.Range,
	measured []float64) (timing.StepCalibration, error) {
	c, err := timing.Calibrate(predicted, measured)
	return timing.StepCalibration{Calibration: c, Kernels: p.timer.MeasuredOn}, err
}

// unequalStep returns the time of an optimizer step of micro-batches of the given shapes, which are
// indices of micros. The update is the last one's.
func unequalStep(shapes []int, micros []microBatch) (total profile.StepParts, err error) {
	if len(shapes) == 0 || len(shapes) > mostInStep {
		return total, fault.New(fault.InvalidArgument, "give the shape of each",
			"a step of %d micro-batches", len(shapes))
	}
	var micro microBatch
	for _, shape := range shapes {
		if shape < 0 || shape >= len(micros) {
			return total, fault.New(fault.InvalidArgument, "give its place among shapes",
				"shape %d of %d", shape, len(micros))
		}
		micro = micros[shape]
		total = total.Plus(micro.parts)
	}
	return total.Plus(micro.update.After(len(shapes))), nil
}
