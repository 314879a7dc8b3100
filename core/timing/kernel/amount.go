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

// Amount is what operations add up to. A multiplication and an addition count as two.
type Amount struct {
	Products         float64 // operations of matrix products in 16 bits
	WideProducts     float64 // of those in float32
	Convolutions     float64 // of convolutions in 16 bits
	WideConvolutions float64 // of those in float32
	MovedBytes       float64 // read and written
	Kernels          float64
}

// Sum adds up all operations.
func (w Work) Sum() (a Amount) {
	for _, phase := range Phases {
		a = a.Plus(w.In(phase), 1)
	}
	return a
}

// In adds up the operations of a phase.
func (w Work) In(phase Phase) (a Amount) {
	for _, o := range w.Operations {
		if o.Phase == phase {
			a = a.Plus(amountOf(o), o.Times)
		}
	}
	return a
}

// ModelFLOPs is the arithmetic of the model itself: its products forward and backward. Left out is
// what is computed again, by gradient checkpointing or by fused attention, which computes its
// scores once more for the gradients.
func (w Work) ModelFLOPs() (sum float64) {
	for _, o := range w.Operations {
		switch {
		case !o.product() || o.Phase != Forward && o.Phase != Backward:
		case o.Kind == Attention && o.Phase == Backward:
			sum += cmp.Or(o.Times, 1) * o.FLOPs() * 4 / 5
		default:
			sum += cmp.Or(o.Times, 1) * o.FLOPs()
		}
	}
	return sum
}

// Plus adds another amount some times over.
func (a Amount) Plus(b Amount, times float64) Amount {
	return Amount{a.Products + times*b.Products, a.WideProducts + times*b.WideProducts,
		a.Convolutions + times*b.Convolutions,
		a.WideConvolutions + times*b.WideConvolutions, a.MovedBytes + times*b.MovedBytes,
		a.Kernels + times*b.Kernels}
}

func amountOf(o Operation) Amount {
	a := Amount{MovedBytes: o.Bytes(), Kernels: float64(o.Kernels)}
	half := o.DType == Float16 || o.DType == BFloat16
	switch {
	case o.Kind == Convolution && half:
		a.Convolutions = o.FLOPs()
	case o.Kind == Convolution:
		a.WideConvolutions = o.FLOPs()
	case half:
		a.Products = o.FLOPs()
	default:
		a.WideProducts = o.FLOPs()
	}
	return a
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
