// Package plan turns measured facts (hardware, dataset, model) and what the user asks for (Options)
// into one training configuration, with a reason for every setting. It is pure: no input or output,
// no clock, no randomness; equal inputs give equal plans.
//
// Units: bytes and seconds; in the texts GiB is 2^30 bytes; published thresholds keep their GB,
// 10^9 bytes.
package plan

import (
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Inputs is everything that a plan depends on.
type Inputs struct {
	Hardware profile.Hardware `json:"hardware"`
	Dataset  profile.Dataset  `json:"dataset"`
	Model    profile.Model    `json:"model"`
	Options  Options          `json:"options"`

	// Used by policy "fastest" alone. Without a trace it is the published rule.
	Traced []Traced `json:"traced"` // candidates that were traced
	// why the model was not traced, and what to do about that
	NotTraced *NotTraced      `json:"not_traced"`
	Durations []float64       `json:"-"` // seconds of every clip; none: the histogram's
	Cards     []estimate.Card `json:"-"` // GPUs that one might take instead

	// WithoutAlternatives leaves Alternatives out, which take about a third of a plan's time.
	WithoutAlternatives bool `json:"-"`
}

// Make plans a training run with the policy that Options names.
//
// Errors: InvalidArgument for a value outside its range, EmptyDataset for a dataset without clips,
// Infeasible when the parameters alone are larger than the memory of the device.
func Make(in Inputs) (profile.Config, error) {
	in, err := in.checked()
	if err != nil {
		return profile.Config{}, err
	}
	if in.Options.Policy == PublishedRule {
		return planPublished(in)
	}
	return planFastest(in)
}

// prepared is the search for a plan of inputs. Errors: those of Make except Infeasible.
func prepared(in Inputs) (*search, error) {
	in, err := in.checked()
	if err != nil {
		return nil, err
	}
	return newSearch(in)
}

// checked are the inputs with normalized options. Errors: those of Make except Infeasible.
func (in Inputs) checked() (Inputs, error) {
	options, err := in.Options.Normalized()
	if in.Options = options; err != nil {
		return in, err
	}
	return in, check(in)
}
