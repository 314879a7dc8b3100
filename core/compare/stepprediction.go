package compare

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
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
