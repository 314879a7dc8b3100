package compare

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Training is what the time of a step depends on besides its work.
type Training struct {
	GPU       string `json:"gpu"`       // "T4", "2xT4"
	Precision string `json:"precision"` // what suits the card
	Optimizer string `json:"optimizer"` // "adamw_torch_fused"

	// what measured kernels show of this card, as in plan.Options
	KernelProfile  *kernel.Profile  `json:"kernel_profile"`
	KernelProfiles []kernel.Profile `json:"kernel_profiles"` // of any cards, without KernelProfile
}

// StepRequest asks how long one optimizer step takes. Measured steps calibrate the answer. An
// absent value takes the default named at the end of its line.
type StepRequest struct {
	Training
	Work         kernel.Work `json:"work"`         // of a micro-batch, from memory.work
	Accumulation int         `json:"accumulation"` // micro-batches per step; 1
	MeasuredS    []float64   `json:"measured_s"`   // seconds of steps of that shape; none
}

// StepAnswer is the predicted time of one optimizer step, calibrated by the measured steps.
type StepAnswer struct {
	GPU       string            `json:"gpu"` // key of the catalogue
	Precision string            `json:"precision"`
	StepS     profile.Range     `json:"step_s"`
	Parts     profile.StepParts `json:"parts"` // before the calibration
	// the day on which the kernels of this card were measured that the times rest on; "" for none
	Measured    string                  `json:"measured"`
	Calibration *timing.StepCalibration `json:"calibration"` // absent without measured steps
}

// predictor predicts the times of micro-batches on a machine.
type predictor struct {
	Training
	card  gpus.Entry
	count int // GPUs
	timer *estimate.Timer
}

// predictor fills in defaults. Errors: NotFound for an unknown GPU, those of estimate.TimerOf.
func (t Training) predictor() (*predictor, error) {
	card, count, err := gpus.Parse(t.GPU)
	if err != nil {
		return nil, err
	}
	t.Precision = cmp.Or(t.Precision, estimate.Precision(card.GPU()))
	t.Optimizer = cmp.Or(t.Optimizer, estimate.DefaultOptimizer)
	timer, err := estimate.TimerOf(card.GPU(),
		estimate.Measured{Named: t.KernelProfile, Known: t.KernelProfiles})
	return &predictor{t, card, count, timer}, err
}

// microBatch is the time of a micro-batch, and of the update that ends its step.
type microBatch struct {
	parts  profile.StepParts
	update estimate.Update
}

// step returns the time of an optimizer step of equal micro-batches.
func (m microBatch) step(accumulation int) profile.StepParts {
	return m.parts.Times(float64(accumulation)).Plus(m.update.After(accumulation))
}

func (p *predictor) microBatch(work kernel.Work) (m microBatch, err error) {
	if m.parts, err = p.timer.Micro(work); err != nil {
		return m, err
	}
	m.update, err = p.timer.Update(work, p.Optimizer, p.Precision, p.count)
	return m, err
}

// Step predicts the time of one optimizer step. Errors: NotFound for an unknown GPU, those of
// timing.Calibrate.
func Step(r StepRequest) (StepAnswer, error) {
	p, err := r.predictor()
	if err != nil {
		return StepAnswer{}, err
	}
	micro, err := p.microBatch(r.Work)
	if err != nil {
		return StepAnswer{}, err
	}
	parts := micro.step(cmp.Or(r.Accumulation, 1))
	a := StepAnswer{GPU: p.card.Key, Precision: p.Precision, StepS: parts.Sum(),
		Parts: parts, Measured: p.timer.MeasuredOn}
	if r.MeasuredS != nil {
		c, err := p.calibrate(slices.Repeat([]profile.Range{a.StepS}, len(r.MeasuredS)), r.MeasuredS)
		if err != nil {
			return StepAnswer{}, err
		}
		a.Calibration, a.StepS = &c, c.Apply(a.StepS)
	}
	return a, nil
}

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
		return CalibrateAnswer{}, fault.New(fault.InvalidArgument, "pass some of them",
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
		return total, fault.New(fault.InvalidArgument, "pass the shape of each",
			"a step of %d micro-batches", len(shapes))
	}
	var micro microBatch
	for _, shape := range shapes {
		if shape < 0 || shape >= len(micros) {
			return total, fault.New(fault.InvalidArgument, "pass its place among shapes",
				"shape %d of %d", shape, len(micros))
		}
		micro = micros[shape]
		total = total.Plus(micro.parts)
	}
	return total.Plus(micro.update.After(len(shapes))), nil
}
