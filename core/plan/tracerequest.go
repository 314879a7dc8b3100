package plan

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// TraceRequest is a candidate to trace, and the figures that the planner needs of it.
type TraceRequest struct {
	Precision     string `json:"precision"`
	Checkpointing bool   `json:"gradient_checkpointing"`
	// with checkpointing: one layer in so many is computed again
	EveryNLayers int `json:"every_n_layers"`
	// what checkpointed layers save is kept in pinned host memory
	Offload   bool   `json:"offload_checkpoints"`
	Optimizer string `json:"optimizer"` // the Trainer's name
	// what the plan sets PYTORCH_CUDA_ALLOC_CONF to; "" without a GPU
	Allocator   string `json:"allocator"`
	Devices     int    `json:"devices"`      // that share an optimizer step
	Share       int    `json:"share"`        // clips of an optimizer step on one device
	BudgetBytes int64  `json:"budget_bytes"` // of one device, context included
	// what a process holds beside its allocator's memory and the context, with several GPUs
	BesideBytes int64 `json:"beside_bytes"`
	// longer clips are left out; absent: no limit
	MaxLengthS *float64 `json:"max_length_s"`
	// the longest clip planned for; of a stream, one that may not have been measured
	LongestS float64 `json:"longest_s"`
	// whether to return the worst peak of whole runs, too
	High bool `json:"high"`
	// evaluations generate texts, if the model can, so that their keys and values must fit
	Generates bool `json:"generates"`
	Beams     int  `json:"beams"`  // of a generation
	Tokens    int  `json:"tokens"` // the most of a text
	// micro-batches of the longest clips whose peaks to return, whether they fit or not
	Sizes []int `json:"sizes"`
}

// Next returns the candidate to trace before planning: first the one without checkpointing; then
// those that existing traces suggest as the fastest, with the guard and without it, and grouped by
// length where a plan could not state that gain otherwise; if nothing fits, all others, which take
// less memory. It returns nil when a plan needs no further trace. Errors: those of Make except
// Infeasible.
func Next(in Inputs) (*TraceRequest, error) {
	in, err := in.checked()
	if err != nil || in.Options.Policy != DefaultPolicy {
		return nil, err
	}
	s, err := newSearch(in)
	if err != nil {
		return nil, err
	}
	if err := s.checkPrecision(); err != nil {
		return nil, err
	}
	queue := s.candidates()
	if s.anyTraced() {
		s.guesses = true
		shorter, ranked, err := s.feasible()
		if err != nil {
			return nil, err
		}
		if len(ranked) > 0 {
			s, queue = shorter, []candidate{ranked[0].candidate, unguarded(ranked).candidate}
			if s.mayMissGrouping(ranked) {
				queue = append(queue, fastestInOneSize(ranked, "grouped").candidate)
			}
		} else {
			queue = append(queue, s.offloaded()...)
		}
	}
	for _, w := range queue {
		if s.traced(w) == nil {
			return s.traceRequest(w), nil
		}
	}
	return nil, nil
}

func (s *search) anyTraced() bool {
	return slices.ContainsFunc(s.candidates(), func(w candidate) bool { return s.traced(w) != nil })
}

func (s *search) traceRequest(w candidate) *TraceRequest {
	out := &TraceRequest{Precision: w.precision, Checkpointing: w.checkpointing.On(),
		EveryNLayers: max(1, w.checkpointing.EveryN), Offload: w.checkpointing.Offload,
		Optimizer: w.optimizer, Devices: s.pool.count, Share: s.perDevice,
		BudgetBytes: int64(s.budget.bytes), BesideBytes: s.beside(), MaxLengthS: s.maxLength(),
		LongestS: s.clips.longest(), High: !s.in.WithoutAlternatives,
		Beams:     profile.Or(s.in.Options.NumBeams, 1),
		Tokens:    profile.Or(s.in.Options.GenerationMaxLength, usualGeneration),
		Generates: profile.Or(s.in.Options.PredictWithGenerate, true), Sizes: []int{}}
	if !s.pool.onCPU() {
		out.Allocator = estimate.AllocatorSettings
	}
	return out
}
