package compare

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Training is how steps are computed.
type Training struct {
	Model model.Request `json:"model"`
	GPU   string        `json:"gpu"` // "T4", "2xT4"

	Precision            string `json:"precision"` // what suits the card
	Checkpointing        bool   `json:"checkpointing"`
	EveryNLayers         int64  `json:"every_n_layers"`      // with checkpointing: one of so many is computed again; 1
	OffloadCheckpoints   bool   `json:"offload_checkpoints"` // what checkpointed layers save lies in pinned host memory
	Optimizer            string `json:"optimizer"`           // "adamw_torch_fused"
	FreezeFeatureEncoder bool   `json:"freeze_feature_encoder"`
	LoRARank             int64  `json:"lora_rank"`
	Attention            string `json:"attention"` // "sdpa" or "eager"; "sdpa"

	KernelProfile  *kernel.Profile  `json:"kernel_profile"`  // of this card by measured kernels, as of plan.Options
	KernelProfiles []kernel.Profile `json:"kernel_profiles"` // of any cards, in its absence
}

// StepRequest asks how long one optimizer step takes, and compares it with what was measured.
type StepRequest struct {
	Training
	Batch        int64        `json:"batch"`
	Seconds      float64      `json:"seconds"`
	Accumulation int          `json:"accumulation"` // 1
	MeasuredS    []float64    `json:"measured_s"`   // seconds of steps of that shape; none
	Work         *kernel.Work `json:"work"`         // of a traced micro-batch of that shape, from memory.work, in place of the model
}

// StepAnswer is a step's time.
type StepAnswer struct {
	GPU         string                  `json:"gpu"`
	Precision   string                  `json:"precision"`
	StepS       timing.Range            `json:"step_s"`
	Parts       profile.StepParts       `json:"parts"`
	Measured    string                  `json:"measured"` // the day on which kernels of this card were measured that the times rest on; ""
	Calibration *timing.StepCalibration `json:"calibration"`
}

// stepper tells the times of micro-batches on a machine.
type stepper struct {
	Training
	card  gpus.Entry
	count int
	model *analytic.Model
	timer *estimate.Timer
}

// stepper reads the model. Errors: those of analytic.Read and onCard.
func (t Training) stepper() (*stepper, error) {
	s, err := t.onCard()
	if err == nil {
		err = s.read()
	}
	return s, err
}

// onCard is a stepper of no model yet. Errors: NotFound for an unknown GPU, those of estimate.TimerOf, InvalidArgument for profiles that cannot be.
func (t Training) onCard() (*stepper, error) {
	card, count, err := gpus.Parse(t.GPU)
	if err != nil {
		return nil, err
	}
	t.Precision, t.Optimizer = or(t.Precision, estimate.Precision(card.GPU())), or(t.Optimizer, analytic.DefaultOptimizer)
	timer, err := estimate.TimerOf(card.GPU(), estimate.Measured{Named: t.KernelProfile, Known: t.KernelProfiles})
	return &stepper{t, card, count, nil, timer}, err
}

// read finds the model. Errors: those of analytic.Read.
func (s *stepper) read() (err error) {
	s.Model.FreezeFeatureEncoder = s.Model.FreezeFeatureEncoder || s.FreezeFeatureEncoder
	s.model, err = analytic.Read(s.Model)
	return err
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

func (s *stepper) request(batch int64, seconds float64) analytic.Request {
	return analytic.Request{Batch: batch, Seconds: seconds, Precision: s.Precision, Checkpointing: s.Checkpointing, EveryNLayers: s.EveryNLayers, OffloadCheckpoints: s.OffloadCheckpoints,
		Optimizer: s.Optimizer, LoRARank: s.LoRARank, Attention: s.Attention, ComputeCapability: estimate.Class(s.card.GPU())}
}

func (s *stepper) micro(batch int64, seconds float64) (m micro, err error) {
	work, err := s.model.Work(s.request(batch, seconds))
	if err != nil {
		return m, err
	}
	return s.timed(work)
}

func (s *stepper) timed(work kernel.Work) (m micro, err error) {
	if m.parts, err = s.timer.Micro(work); err != nil {
		return m, err
	}
	m.update, err = s.timer.Update(work, s.Optimizer, s.Precision, s.count)
	return m, err
}

// asked is the micro-batch of a request: traced, or played from the model's config.
func (s *stepper) asked(r StepRequest) (micro, error) {
	if r.Work != nil {
		return s.timed(*r.Work)
	}
	if err := s.read(); err != nil {
		return micro{}, err
	}
	return s.micro(r.Batch, r.Seconds)
}

// Step estimates one optimizer step. Errors: those of analytic.Read and Model.Work, NotFound for an unknown GPU, those of
// timing.Calibrate.
func Step(r StepRequest) (StepAnswer, error) {
	s, err := r.onCard()
	if err != nil {
		return StepAnswer{}, err
	}
	m, err := s.asked(r)
	if err != nil {
		return StepAnswer{}, err
	}
	parts := m.step(or(r.Accumulation, 1))
	a := StepAnswer{GPU: s.card.Key, Precision: s.Precision, StepS: parts.Sum(), Parts: parts.Record(), Measured: s.timer.MeasuredOn}
	if r.MeasuredS != nil {
		c, err := s.calibrate(slices.Repeat([]timing.Range{a.StepS}, len(r.MeasuredS)), r.MeasuredS)
		if err != nil {
			return StepAnswer{}, err
		}
		a.Calibration, a.StepS = &c, c.Apply(a.StepS)
	}
	return a, nil
}
