package compare

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// Training is how steps are computed.
type Training struct {
	Model model.Request `json:"model"`
	GPU   string        `json:"gpu"` // "T4", "2xT4"

	Precision            string `json:"precision"` // what suits the card
	Checkpointing        bool   `json:"checkpointing"`
	Optimizer            string `json:"optimizer"` // "adamw_torch_fused"
	FreezeFeatureEncoder bool   `json:"freeze_feature_encoder"`
	LoRARank             int64  `json:"lora_rank"`
	Attention            string `json:"attention"` // "sdpa" or "eager"; "sdpa"
}

// StepRequest asks how long one optimizer step takes, and compares it with what was measured.
type StepRequest struct {
	Training
	Batch        int64     `json:"batch"`
	Seconds      float64   `json:"seconds"`
	Accumulation int       `json:"accumulation"` // 1
	MeasuredS    []float64 `json:"measured_s"`   // seconds of steps of that shape; none
}

// StepAnswer is a step's time.
type StepAnswer struct {
	GPU         string              `json:"gpu"`
	Precision   string              `json:"precision"`
	StepS       timing.Range        `json:"step_s"`
	Parts       timing.Parts        `json:"parts"`
	Calibration *timing.Calibration `json:"calibration"`
}

// stepper tells the work of micro-batches on a machine.
type stepper struct {
	Training
	card  gpus.Entry
	count int
	model *analytic.Model
	rates timing.Rates
}

func (t Training) stepper() (*stepper, error) {
	card, count, err := gpus.Parse(t.GPU)
	if err != nil {
		return nil, err
	}
	t.Precision, t.Optimizer = or(t.Precision, estimate.Precision(card.GPU())), or(t.Optimizer, analytic.DefaultOptimizer)
	t.Model.FreezeFeatureEncoder = t.Model.FreezeFeatureEncoder || t.FreezeFeatureEncoder
	m, err := analytic.Read(t.Model)
	if err != nil {
		return nil, err
	}
	rates, err := timing.RatesOf(card.GPU())
	return &stepper{t, card, count, m, rates}, err
}

func (s *stepper) work(batch int64, seconds float64, accumulation int) (analytic.Work, error) {
	prediction, err := s.model.Predict(analytic.Request{Batch: batch, Seconds: seconds, Precision: s.Precision, Checkpointing: s.Checkpointing,
		Accumulation: int64(accumulation), Optimizer: s.Optimizer, LoRARank: s.LoRARank, Attention: s.Attention, ComputeCapability: estimate.Class(s.card.GPU())})
	return prediction.Work, err
}

// Step estimates one optimizer step. Errors: those of analytic.Read and Model.Predict, NotFound for an unknown GPU, those of
// timing.Calibrate.
func Step(r StepRequest) (StepAnswer, error) {
	s, err := r.stepper()
	if err != nil {
		return StepAnswer{}, err
	}
	accumulation := or(r.Accumulation, 1)
	work, err := s.work(r.Batch, r.Seconds, accumulation)
	if err != nil {
		return StepAnswer{}, err
	}
	a := StepAnswer{GPU: s.card.Key, Precision: s.Precision, Parts: s.rates.Step(work, s.Optimizer, accumulation, s.count)}
	a.StepS = a.Parts.Sum()
	if r.MeasuredS != nil {
		c, err := timing.Calibrate(slices.Repeat([]timing.Range{a.StepS}, len(r.MeasuredS)), r.MeasuredS)
		if err != nil {
			return StepAnswer{}, err
		}
		a.Calibration, a.StepS = &c, c.Apply(a.StepS)
	}
	return a, nil
}
