package kernel

import "cmp"

// Work is what the kernels of one micro-batch do, by a play or a trace of its step.
type Work struct {
	// of forward pass, recomputation and backward pass, equal ones together
	Operations []Operation `json:"operations"`
	// those with a gradient, which the optimizer updates
	TrainedParameters int64 `json:"trained_parameters"`
	TrainedTensors    int64 `json:"trained_tensors"` // how many tensors they are
}

// ModelFLOPs is the arithmetic of the model itself: its products forward and backward. Left out is
// what is computed again, by gradient checkpointing or by fused attention, which computes its
// scores again for the gradients.
func (w Work) ModelFLOPs() (sum float64) {
	for _, o := range w.Operations {
		switch {
		case !o.Kind.Product() || o.Phase != Forward && o.Phase != Backward:
		case o.Kind == Attention && o.Phase == Backward:
			sum += cmp.Or(o.Times, 1) * o.FLOPs() * 4 / 5
		default:
			sum += cmp.Or(o.Times, 1) * o.FLOPs()
		}
	}
	return sum
}

// ForwardPass is the operations of the forward pass alone, as an evaluation runs them: without
// dropout, which only training has.
func (w Work) ForwardPass() []Operation {
	forward := make([]Operation, 0, len(w.Operations))
	for _, o := range w.Operations {
		if o.Phase == Forward && o.Name != "dropout" {
			forward = append(forward, o)
		}
	}
	return forward
}
