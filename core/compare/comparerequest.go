// Package compare asks core/plan for one training on many GPUs, so that each row is the plan for
// that machine, and finds the fastest and the cheapest.
package compare

import (
	"cmp"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// Request is a training to plan on several GPUs. An absent value takes the default named at the end
// of its line.
type Request struct {
	Model profile.Model `json:"model"`
	Data  timing.Data   `json:"data"`
	// "T4", "2xT4", "A100-40GB", at most 256; the whole catalogue, by hand the published ones
	GPUs []string `json:"gpus"`

	// dollars per hour and GPU by card, before those of the table
	Prices map[string]float64 `json:"prices"`
	// by card, from timing.step
	Calibrations map[string]timing.StepCalibration `json:"calibrations"`

	Traced [][]plan.Traced `json:"traced"` // of each machine what was wanted; none

	// compares with settings by hand, too; no
	ByHand *Scenario `json:"by_hand"`

	// target_batch_size is 32 and safety_margin 0.85 unless they are given; workers are 4 of each
	// GPU, with Hardware as many as keep it fed
	plan.Options

	// Durations are those of every clip of Data.Profile, in seconds; none: the profile's histogram.
	Durations []float64 `json:"-"`

	// whose cores and RAM stand around the GPUs; 8 cores and 64 GiB, assumed
	Hardware *profile.Hardware `json:"hardware"`
}

const (
	usualTarget  = 32
	usualMargin  = 0.85
	usualWorkers = 4
	mostGPUs     = 256
)

// completed fills in defaults; core/plan checks the values. Errors: InvalidArgument.
func (r Request) completed() (Request, error) {
	r.TargetBatchSize = cmp.Or(r.TargetBatchSize, usualTarget)
	r.SafetyMargin = cmp.Or(r.SafetyMargin, usualMargin)
	r.Optimizer = cmp.Or(r.Optimizer, estimate.DefaultOptimizer)
	if len(r.GPUs) == 0 && r.ByHand != nil {
		for _, s := range scenarios {
			r.GPUs = append(r.GPUs, s.GPU)
		}
	}
	if r.Workers == nil && r.Hardware == nil {
		workers := usualWorkers
		r.Workers = &workers
	}
	if len(r.GPUs) > mostGPUs {
		return r, fault.New(fault.InvalidArgument, "compare fewer at once",
			"%d GPUs to compare; 256 are the most", len(r.GPUs))
	}
	return r, nil
}

// positive reports whether a time or rate is in the supported range, whose ratios are finite.
func positive(x float64) bool { return x >= 1e-9 && x <= 1e15 }

// byCard reads a table whose keys name cards in any spelling.
func byCard[T any](byName map[string]T) (map[string]T, error) {
	out := make(map[string]T, len(byName))
	for name, v := range byName {
		card, _, err := gpus.Parse(name)
		if err != nil {
			return nil, err
		}
		out[card.Key] = v
	}
	return out, nil
}

func (r Request) prices() (map[string]timing.Price, error) {
	hourly, err := byCard(r.Prices)
	if err != nil {
		return nil, err
	}
	out := make(map[string]timing.Price, len(hourly))
	for _, p := range timing.Prices() {
		out[p.GPU] = p
	}
	if r.ByHand != nil && r.ByHand.GPU != "" {
		out[publishedPrice.GPU] = publishedPrice
	}
	for key, hour := range hourly {
		if out[key], err = timing.GivenPrice(key, hour); err != nil {
			return nil, err
		}
	}
	return out, nil
}
