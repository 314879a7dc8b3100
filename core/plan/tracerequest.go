package plan

import "github.com/asrconfig/asrconfig-go/core/estimate"

// TraceRequest is a candidate to trace, and what the planner wants to know of it.
type TraceRequest struct {
	Precision     string   `json:"precision"`
	Checkpointing bool     `json:"gradient_checkpointing"`
	EveryNLayers  int      `json:"every_n_layers"`      // with checkpointing: one of so many is computed again
	Offload       bool     `json:"offload_checkpoints"` // what checkpointed layers save lies in pinned host memory
	Optimizer     string   `json:"optimizer"`           // the Trainer's name
	Allocator     string   `json:"allocator"`           // what the plan sets PYTORCH_CUDA_ALLOC_CONF to; "" without a GPU
	Share         int      `json:"share"`               // clips of one device in an optimizer step
	BudgetBytes   int64    `json:"budget_bytes"`        // of one device, context included
	MaxLengthS    *float64 `json:"max_length_s"`        // longer clips are left out; absent: none is
	Work          bool     `json:"work"`                // what micro-batches run is asked for, too: the config does not tell
	High          bool     `json:"high"`                // the worst peak of whole runs is asked for, too
}

// Next is the candidate to trace before a plan is made of what is known: the fastest that fits by the config, as long as it is not
// traced. Where none fits, the one that takes the least, as the estimate may err; where the config tells nothing, the first
// of all. Nil when a plan needs no further trace. Errors: those of Make but Infeasible.
func Next(in Inputs) (*TraceRequest, error) {
	options, err := in.Options.Normalized()
	if err != nil {
		return nil, err
	}
	in.Options = options
	if err := check(in); err != nil || options.Policy != DefaultPolicy {
		return nil, err
	}
	s, err := newSearch(in, newPool(in.Hardware, in.Options))
	if err != nil {
		return nil, err
	}
	left := s.candidates()
	if s.known() {
		found, ranked, err := s.feasible()
		if err != nil {
			return nil, err
		}
		if len(ranked) > 0 {
			s, left = found, []candidate{ranked[0].candidate}
		} else if s.estimator != nil {
			left = left[len(left)-1:]
		}
	}
	for _, w := range left {
		if s.traced(w) == nil {
			return s.traceRequest(w), nil
		}
	}
	return nil, nil
}

func (s *search) traceRequest(w candidate) *TraceRequest {
	out := &TraceRequest{Precision: w.precision, Checkpointing: w.checkpointing.On(), EveryNLayers: max(1, w.checkpointing.EveryN), Offload: w.checkpointing.Offload, Optimizer: w.optimizer, Share: s.perDevice,
		BudgetBytes: int64(s.budget.Bytes), MaxLengthS: s.maxLength(), Work: s.estimator == nil, High: !s.in.WithoutAlternatives}
	if !s.pool.onCPU() {
		out.Allocator = estimate.AllocatorSettings
	}
	return out
}
