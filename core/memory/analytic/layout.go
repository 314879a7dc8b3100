package analytic

// In which order a tensor's dimensions lie in memory matters where a kernel wants them in order: convolutions over time
// (aten/src/ATen/native/Convolution.cpp) and layer norms (layer_norm_kernel.cu) copy transposed tensors first. Operations
// on each element keep the order of their input, all others make new tensors in order.

const (
	orderedCopy   = "copy in order"
	orderedSource = "aten/src/ATen/native/Convolution.cpp, cuda/layer_norm_kernel.cu"
)

// turn is transpose(): a view with time and channels the other way round.
func (v value) turn() value {
	v.turned = !v.turned
	return v
}

// ordered is the copy that a kernel makes of a transposed tensor for the time it runs, and makes again in backward of what
// it saved; nothing for a tensor in order.
func (t *tape) ordered(x value) value {
	if !x.turned {
		return nothing
	}
	return t.fresh(orderedCopy, x.shape, x.kind, orderedSource)
}

func (t *tape) copiesInput(n *node, x value) {
	if n != nil && x.turned {
		n.inCopy = t.rowFor(orderedCopy, beside, x.shape, x.kind, orderedSource)
	}
}

// turnedGradient says that the gradient of a convolution's or norm's result comes back transposed, since what follows
// looks at it so; backward copies it. A convolution then sums the gradient of its bias in columns.
func (t *tape) turnedGradient(y value, bias bool) {
	if y.node == none || t.quiet > 0 {
		return
	}
	n := &t.nodes[y.node]
	n.gradCopy = t.rowFor(orderedCopy, beside, y.shape, y.kind, orderedSource)
	if bias {
		t.sumsColumns(n, y.shape[0].n*y.shape[2].n, y.shape[1].n)
	}
}
