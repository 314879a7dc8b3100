package compare

import (
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/hardware"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// StepRequest asks how long one optimizer step takes, and compares it with what was measured.
type StepRequest struct {
	Model model.Request `json:"model"`
	GPU   string        `json:"gpu"` // "T4", "2xT4"

	Batch                int64     `json:"batch"`
	Seconds              float64   `json:"seconds"`
	Precision            string    `json:"precision"` // what suits the card
	Checkpointing        bool      `json:"checkpointing"`
	Accumulation         int       `json:"accumulation"` // 1
	Optimizer            string    `json:"optimizer"`    // "adamw_torch"
	FreezeFeatureEncoder bool      `json:"freeze_feature_encoder"`
	LoRARank             int64     `json:"lora_rank"`
	Attention            string    `json:"attention"`  // "sdpa" or "eager"; "sdpa"
	MeasuredS            []float64 `json:"measured_s"` // seconds of steps of that shape; none
}

// StepAnswer is a step's time.
type StepAnswer struct {
	GPU         string              `json:"gpu"`
	Precision   string              `json:"precision"`
	StepS       timing.Range        `json:"step_s"`
	Parts       timing.Parts        `json:"parts"`
	Work        analytic.Work       `json:"work"` // of one micro-batch
	Calibration *timing.Calibration `json:"calibration"`
}

// Step estimates one optimizer step. Errors: those of analytic.Read and Model.Sketch, NotFound for an unknown GPU, those of
// timing.Calibrate.
func Step(r StepRequest) (StepAnswer, error) {
	card, count, err := hardware.Asked(r.GPU)
	if err != nil {
		return StepAnswer{}, err
	}
	g := card.GPU()
	r.Precision, r.Accumulation, r.Optimizer = or(r.Precision, estimate.Precision(g)), or(r.Accumulation, 1), or(r.Optimizer, adamw)
	r.Model.FreezeFeatureEncoder = r.Model.FreezeFeatureEncoder || r.FreezeFeatureEncoder
	m, err := analytic.Read(r.Model)
	if err != nil {
		return StepAnswer{}, err
	}
	rates, err := timing.RatesOf(g)
	if err != nil {
		return StepAnswer{}, err
	}
	s, err := m.Sketch(analytic.Request{Batch: r.Batch, Seconds: r.Seconds, Precision: r.Precision, Checkpointing: r.Checkpointing,
		Accumulation: int64(r.Accumulation), Optimizer: r.Optimizer, LoRARank: r.LoRARank, Attention: r.Attention, ComputeCapability: estimate.Class(g)})
	if err != nil {
		return StepAnswer{}, err
	}
	a := StepAnswer{GPU: card.Key, Precision: r.Precision, Work: s.Work, Parts: rates.Step(s.Work, r.Optimizer, r.Accumulation, count)}
	a.StepS = a.Parts.Sum()
	if r.MeasuredS != nil {
		c, err := timing.Calibrate(a.StepS, r.MeasuredS)
		if err != nil {
			return StepAnswer{}, err
		}
		a.Calibration, a.StepS = &c, c.Apply(a.StepS)
	}
	return a, nil
}
