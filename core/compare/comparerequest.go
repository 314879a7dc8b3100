// Package compare asks core/plan for one training on many GPUs, so that each row is the plan for that machine, and says which is the
// fastest and the cheapest.
package compare

import (
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Request is a training to plan on several GPUs. An absent value takes the default named at the end of its line.
type Request struct {
	Model profile.Model `json:"model"`
	Data  timing.Data   `json:"data"`
	GPUs  []string      `json:"gpus"` // "T4", "2xT4", "A100-40GB", at most 256; the whole catalogue

	Prices       map[string]float64                `json:"prices"`       // dollars per hour and GPU by card, before those of the table
	Calibrations map[string]timing.StepCalibration `json:"calibrations"` // by card, from timing.step

	Traced [][]plan.Traced `json:"traced"` // of each machine what was wanted; none

	AnyDepth       bool             `json:"any_depth"`       // as of plan.Options
	CanOffload     bool             `json:"can_offload"`     // as of plan.Options
	LossUnknown    bool             `json:"loss_unknown"`    // as of plan.Options
	KernelProfiles []kernel.Profile `json:"kernel_profiles"` // of cards whose kernels were measured, from timing.profile; the first of each counts

	TargetBatchSize      int      `json:"target_batch_size"`      // clips per optimizer step, 1..65536; 32
	Epochs               float64  `json:"epochs"`                 // above 0 to 10^4; 3
	Precision            string   `json:"precision"`              // "fp32", "fp16" or "bf16"; what suits the card
	Optimizer            string   `json:"optimizer"`              // the Trainer's name; "adamw_torch_fused"
	FreezeFeatureEncoder bool     `json:"freeze_feature_encoder"` //
	Adapted              bool     `json:"adapted"`                // as of plan.Options
	LoRARank             int64    `json:"lora_rank"`              // rank of adapters; 0, all parameters train
	LengthHandling       string   `json:"length_handling"`        // "random", "grouped", "bucketed" or "packed"; the planner's choice
	SafetyMargin         float64  `json:"safety_margin"`          // share of GPU memory to use, 0.70..0.95; 0.85
	LoaderRate           *float64 `json:"loader_rate"`            // seconds of audio that a worker prepares per second; an assumption
	DecodeRate           *float64 `json:"decode_rate"`            // seconds of audio that a worker decodes per second, where no more is known
	Workers              *int     `json:"workers"`                // of the loader for each GPU, 0..1024; with Hardware as many as keep it fed, else 4

	plan.EvaluationOptions

	// Durations are those of every clip of Data.Profile, in seconds; none: the profile's histogram.
	Durations []float64 `json:"-"`

	Hardware *profile.Hardware `json:"hardware"` // whose cores and RAM stand around the GPUs; 8 cores and 64 GiB, assumed
}

const (
	usualTarget  = 32
	usualEpochs  = 3
	usualMargin  = 0.85
	usualWorkers = 4
	mostGPUs     = 256
)

// completed fills in defaults; core/plan checks the values. Errors: InvalidArgument.
func (r Request) completed() (Request, error) {
	r.TargetBatchSize, r.Epochs = or(r.TargetBatchSize, usualTarget), or(r.Epochs, usualEpochs)
	r.SafetyMargin, r.Optimizer = or(r.SafetyMargin, usualMargin), or(r.Optimizer, estimate.DefaultOptimizer)
	if r.Workers == nil && r.Hardware == nil {
		workers := usualWorkers
		r.Workers = &workers
	}
	if len(r.GPUs) > mostGPUs {
		return r, fault.New(fault.InvalidArgument, "compare fewer at once", "%d GPUs to compare; 256 are the most", len(r.GPUs))
	}
	return r, nil
}

func or[T comparable](given, otherwise T) T {
	var zero T
	if given == zero {
		return otherwise
	}
	return given
}

// positive says whether seconds or a rate can be: between numbers beyond all that are met, whose ratios are finite.
func positive(x float64) bool { return x >= 1e-9 && x <= 1e15 }

// byCard reads a table whose keys name cards in any spelling.
func byCard[T any](given map[string]T) (map[string]T, error) {
	out := make(map[string]T, len(given))
	for name, v := range given {
		card, _, err := gpus.Parse(name)
		if err != nil {
			return nil, err
		}
		out[card.Key] = v
	}
	return out, nil
}

func (r Request) prices() (map[string]timing.Price, error) {
	given, err := byCard(r.Prices)
	if err != nil {
		return nil, err
	}
	out := make(map[string]timing.Price, len(given))
	for _, p := range timing.Prices() {
		out[p.GPU] = p
	}
	for key, hour := range given {
		if out[key], err = timing.GivenPrice(key, hour); err != nil {
			return nil, err
		}
	}
	return out, nil
}
