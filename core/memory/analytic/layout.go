package analytic

import "github.com/asrconfig/asrconfig-go/core/timing/kernel"

// In which order a tensor's dimensions lie in memory matters where a kernel wants them in order: convolutions over time
// (aten/src/ATen/native/Convolution.cpp) and layer norms (layer_norm_kernel.cu) copy transposed tensors first. Operations
// on each element keep the order of their input, all others make new tensors in order.

const (
	contiguousCopy   = "contiguous copy"
	contiguousSource = "aten/src/ATen/native/Convolution.cpp, cuda/layer_norm_kernel.cu"
)

// transpose is a view with time and channels the other way round.
func (v value) transpose() value {
	v.transposed = !v.transposed
	return v
}

// contiguous is the copy that a kernel makes of a transposed tensor for the time it runs, and makes again in backward of what
// it saved; nothing for a tensor in order.
func (t *tracker) contiguous(x value) value {
	if !x.transposed {
		return nothing
	}
	y := t.fresh(contiguousCopy, x.shape, x.kind, contiguousSource)
	t.copies(kernel.Copy, contiguousCopy, x.kind, x.bytes())
	return y
}

func (t *tracker) copiesInput(n *node, x value) {
	if n != nil && x.transposed {
		n.savedCopy = t.rowFor(contiguousCopy, scratch, x.shape, x.kind, contiguousSource)
	}
}

// transposedGradient says that the gradient of a convolution's or norm's result comes back transposed, since what follows
// looks at it so; backward copies it. A convolution then sums the gradient of its bias in columns.
func (t *tracker) transposedGradient(y value, bias bool) {
	if y.node == none || t.checkpointDepth > 0 {
		return
	}
	n := &t.nodes[y.node]
	n.gradCopy = t.rowFor(contiguousCopy, scratch, y.shape, y.kind, contiguousSource)
	if bias {
		t.takesColumnSum(n, y.shape[0].n*y.shape[2].n, y.shape[1].n)
	}
}
