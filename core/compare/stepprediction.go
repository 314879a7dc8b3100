package compare

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Training is how steps are computed.
type Training struct {
	GPU       string `json:"gpu"`       // "T4", "2xT4"
	Precision string `json:"precision"` // what suits the card
	Optimizer string `json:"optimizer"` // "adamw_torch_fused"

	// of this card by measured kernels, as of plan.Options
	KernelProfile  *kernel.Profile  `json:"kernel_profile"`
	KernelProfiles []kernel.Profile `json:"kernel_profiles"` // of any cards, in its absence
}

// StepRequest asks how long one optimizer step takes, and compares it with what was measured.
type StepRequest struct {
	Training
	Work         kernel.Work `json:"work"`         // of a micro-batch, from memory.work
	Accumulation int         `json:"accumulation"` // 1
	MeasuredS    []float64   `json:"measured_s"`   // seconds of steps of that shape; none
}

// StepAnswer is the seconds of one optimizer step; with measured steps, scaled by their
// calibration.
type StepAnswer struct {
	GPU       string            `json:"gpu"`
	Precision string            `json:"precision"`
	StepS     timing.Range      `json:"step_s"`
	Parts     profile.StepParts `json:"parts"`
	// the day on which kernels of this card were measured that the times rest on; "" for none
	Measured    string                  `json:"measured"`
	Calibration *timing.StepCalibration `json:"calibration"` // absent without measured steps
}

// stepper predicts the times of micro-batches on a machine.
type stepper struct {
	Training
	card  gpus.Entry
	count int
	timer *estimate.Timer
}

// stepper reads the machine. Errors: NotFound for an unknown GPU, those of estimate.TimerOf,
// InvalidArgument for profiles that cannot be.
func (t Training) stepper() (*stepper, error) {
	card, count, err := gpus.Parse(t.GPU)
	if err != nil {
		return nil, err
	}
	t.Precision, t.Optimizer = or(t.Precision, estimate.Precision(card.GPU())),
		or(t.Optimizer, estimate.DefaultOptimizer)
	timer, err := estimate.TimerOf(card.GPU(),
		estimate.Measured{Named: t.KernelProfile, Known: t.KernelProfiles})
	return &stepper{t, card, count, timer}, err
}

// micro is a micro-batch, and the update that follows it.
type micro struct {
	parts  timing.Parts
	update estimate.Update
}

// step is an optimizer step of so many equal micro-batches.
func (m micro) step(accumulation int) timing.Parts {
	return m.parts.Times(float64(accumulation)).Plus(m.update.After(accumulation))
}

func (s *stepper) micro(work kernel.Work) (m micro, err error) {
	if m.parts, err = s.timer.Micro(work); err != nil {
		return m, err
	}
	m.update, err = s.timer.Update(work, s.Optimizer, s.Precision, s.count)
	return m, err
}

// Step estimates one optimizer step. Errors: NotFound for an unknown GPU, those of
// timing.Calibrate.
func Step(r StepRequest) (StepAnswer, error) {
	s, err := r.stepper()
	if err != nil {
		return StepAnswer{}, err
	}
	m, err := s.micro(r.Work)
	if err != nil {
		return StepAnswer{}, err
	}
	parts := m.step(or(r.Accumulation, 1))
	a := StepAnswer{GPU: s.card.Key, Precision: s.Precision, StepS: parts.Sum(),
		Parts: parts.Record(), Measured: s.timer.MeasuredOn}
	if r.MeasuredS != nil {
		c, err := s.calibrate(slices.Repeat([]timing.Range{a.StepS}, len(r.MeasuredS)), r.MeasuredS)
		if err != nil {
			return StepAnswer{}, err
		}
		a.Calibration, a.StepS = &c, c.Apply(a.StepS)
	}
	return a, nil
}
