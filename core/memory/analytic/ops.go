package analytic

import "github.com/asrconfig/asrconfig-go/core/timing/kernel"

// The operations that speech models are made of. Each says what its result takes, what autograd saves
// (tools/autograd/derivatives.yaml) and which gradients its backward makes. Under autocast an operation runs in the type
// of its list (aten/src/ATen/autocast_mode.h): products, convolutions and attention in 16 bits, norms in float32.

const (
	savedInput  = "input saved for backward: tools/autograd/derivatives.yaml"
	savedResult = "result saved for backward: tools/autograd/derivatives.yaml"
	savedMask   = "saved, one byte an element: aten/src/ATen/native/cuda/Dropout.cu"
	autocast    = "autocast's copy: aten/src/ATen/autocast_mode.h"
)

// cast gives the value in another type: itself, or a copy.
func (t *tracker) cast(x value, d dtype) value {
	if x.kind == d {
		return t.same(x)
	}
	y := t.fresh("cast", x.shape, d, autocast)
	y.transposed = x.transposed
	n := t.graph(elementwise, "cast", &y, false, x)
	t.gradientsFor(n, x)
	return y
}

// lower is the type in which products run.
func (t *tracker) lower() dtype {
	if t.low {
		return halves
	}
	return float32s
}

// toLower casts an operand of a product.
func (t *tracker) toLower(x value) value { return t.cast(x, t.lower()) }

// parameter is a weight as a product sees it: itself, which counts with the model, or autocast's 16-bit copy. That is made
// once in a forward pass and kept until its end; of a frozen one for each use.
func (t *tracker) parameter(dims ...dim) value {
	w := value{at: none, node: none, grad: !t.frozen && !t.fixed(), shape: of(dims...), kind: float32s}
	if !t.low {
		return w
	}
	y := t.fresh("weights in 16 bits", w.shape, halves, autocast)
	n := t.graph(elementwise, "weight cast", &y, w.grad, w)
	t.leaf(n, w.shape)
	if w.grad {
		t.retain(y.at)
		t.cache = append(t.cache, cached{y.at, t.repeats})
	}
	return y
}

// optional is a parameter that may be absent.
func (t *tracker) optional(there bool, dims ...dim) value {
	if !there {
		return nothing
	}
	return t.parameter(dims...)
}

// gradientOf says that a node makes the gradient of a parameter, or of its 16-bit copy.
func (t *tracker) gradientOf(n *node, w value) {
	switch {
	case n == nil || !w.grad:
	case w.at == none:
		t.leaf(n, w.shape)
	default:
		t.gradientsFor(n, w)
	}
}

// linear is x·W + b. The input is saved for the gradient of the weight, and the weight for that of the input.
func (t *tracker) linear(what string, x value, out dim, bias bool) value {
	b := t.optional(bias, out)
	w := t.parameter(out, x.shape.last())
	return t.product(what, x, w, b)
}

// product is linear with parameters that are there already.
func (t *tracker) product(what string, x, w, b value) value {
	in := t.toLower(x)
	y := t.fresh(what, x.shape.withLast(w.shape[0]), in.kind, savedInput)
	t.takeWorkspace(b.shape.rank() > 0)
	n := t.graph(multiplying, what, &y, w.grad, in)
	if w.grad {
		t.save(n, in)
	}
	if x.grad {
		t.save(n, w)
	}
	t.gradientsFor(n, in)
	t.gradientOf(n, w)
	t.gradientOf(n, b)
	t.multiply(n, what, product{kernel.GEMM, 1, y.shape.elements() / w.shape[0].n, w.shape[0].n, w.shape.last().n}, in, w, y)
	t.sumBias(n, what, y, b)
	t.takesWorkspace(n)
	if b.grad {
		t.takesColumnSum(n, y.shape.elements()/w.shape[0].n, w.shape[0].n)
	}
	t.drop(in, w, b)
	return t.adapted(what, x, y)
}

// convolution is over (batch, channels, time…); the weight's dimensions are (out, in, taps…).
func (t *tracker) convolution(what string, x value, s shape, bias bool, weight ...dim) value {
	return t.grouped(what, x, s, 1, bias, weight...)
}

// grouped is a convolution in groups of channels; the weight's dimensions are (out, in / groups, taps…).
func (t *tracker) grouped(what string, x value, s shape, groups int64, bias bool, weight ...dim) value {
	b := t.optional(bias, weight[0])
	w := t.parameter(weight...)
	return t.convolve(what, x, s, groups, w, b)
}

// convolve is grouped with parameters that are there already.
func (t *tracker) convolve(what string, x value, s shape, groups int64, w, b value) value {
	in := t.toLower(x)
	copied := t.contiguous(in)
	y := t.fresh(what, s, in.kind, savedInput)
	work := t.takeConvolution(in, w, y, groups)
	t.drop(copied)
	n := t.graph(multiplying, what, &y, w.grad, in)
	t.copiesInput(n, in)
	t.save(n, in, w)
	t.gradientsFor(n, in)
	t.gradientOf(n, w)
	n.works(work)
	t.gradientOf(n, b)
	out := max(1, w.shape[0].n)
	t.multiply(n, what, product{kernel.Convolution, groups, y.shape.elements() / out, out / groups, w.shape.elements() / out}, in, w, y)
	t.sumBias(n, what, y, b)
	t.drop(in, w, b)
	return y
}

// norm is a layer or group norm, in float32: it saves its input, and a mean and a deviation for each of the rows.
func (t *tracker) norm(what string, x value, rows shape, size dim) value {
	in := t.cast(x, float32s)
	copied := t.contiguous(in)
	y := t.fresh(what, in.shape, float32s, "")
	mean := t.fresh(what+" statistics", rows, float32s, savedResult)
	deviation := t.fresh(what+" statistics", rows, float32s, savedResult)
	t.drop(copied)
	n := t.graph(normalizing, what, &y, !t.frozen, in)
	t.copiesInput(n, in)
	t.save(n, in, mean, deviation)
	t.gradientsFor(n, in)
	t.affine(n, size)
	t.drop(in, mean, deviation)
	return y
}

// batchNorm saves its input and runs in the type of it.
func (t *tracker) batchNorm(what string, x value, size dim) value {
	y := t.fresh(what, x.shape, x.kind, savedInput)
	n := t.graph(normalizing, what, &y, !t.frozen, x)
	t.save(n, x)
	t.gradientsFor(n, x)
	t.affine(n, size)
	return y
}

// affine says that the node makes the gradients of a norm's weight and bias.
func (t *tracker) affine(n *node, size dim) {
	if !t.frozen {
		t.leaf(n, of(size), of(size))
	}
}

// pointwise is an operation on each element that saves its input: gelu, silu.
func (t *tracker) pointwise(what string, x value) value {
	y := t.saving(what, x, x.shape)
	y.transposed = x.transposed
	return y
}

// gated is a gated linear unit: it halves the channels, and saves its input.
func (t *tracker) gated(x value, s shape) value { return t.saving("gate", x, s) }

func (t *tracker) saving(what string, x value, s shape) value {
	y := t.fresh(what, s, x.kind, savedInput)
	n := t.graph(elementwise, what, &y, false, x)
	t.save(n, x)
	t.gradientsFor(n, x)
	return y
}

// fromResult is an operation on each element whose backward needs the result only: relu, sigmoid.
func (t *tracker) fromResult(what string, x value) value {
	y := t.fresh(what, x.shape, x.kind, savedResult)
	y.transposed = x.transposed
	n := t.graph(elementwise, what, &y, false, x)
	t.save(n, y)
	t.gradientsFor(n, x)
	return y
}

// cloned is a contiguous copy; backward hands its gradient on.
func (t *tracker) cloned(what string, x value) value {
	y := t.fresh(what, x.shape, x.kind, "")
	n := t.graph(copying, what, &y, false, x)
	t.passGradient(n, x, y.kind)
	return y
}

// scaled is an operation that saves nothing: a product with a number, padding, filling, repeating.
func (t *tracker) scaled(what string, x value, s shape) value { return t.summed(what, x, s, x.kind) }

// summed is one that may also change the type, as sums do under autocast.
func (t *tracker) summed(what string, x value, s shape, d dtype) value {
	y := t.fresh(what, s, d, "")
	n := t.graph(elementwise, what, &y, false, x)
	t.gradientsFor(n, x)
	return y
}

// dropout saves one byte an element; without a probability it is nothing.
func (t *tracker) dropout(x value, p float64) value {
	if p <= 0 {
		return t.same(x)
	}
	y := t.fresh("dropout", x.shape, x.kind, "")
	y.transposed = x.transposed
	mask := t.fresh("dropout mask", x.shape, bools, savedMask)
	n := t.graph(elementwise, "dropout", &y, false, x)
	t.save(n, mask)
	t.gradientsFor(n, x)
	t.drop(mask)
	return y
}

// sum adds two values of one shape, in the wider of their types.
func (t *tracker) sum(a, b value) value {
	y := t.fresh("sum", a.shape, min(a.kind, b.kind), "")
	y.transposed = a.transposed
	n := t.graph(elementwise, "sum", &y, false, a, b)
	t.passGradient(n, a, y.kind)
	t.passGradient(n, b, y.kind)
	return y
}

// matmul multiplies two activations, in batches.
func (t *tracker) matmul(what string, a, b value, s shape, p product) value {
	left, right := t.toLower(a), t.toLower(b)
	y := t.bmm(what, left, right, s, p)
	t.drop(left, right)
	return y
}

// bmm is matmul in the type of its operands.
func (t *tracker) bmm(what string, a, b value, s shape, p product) value {
	y := t.fresh(what, s, a.kind, savedInput)
	t.takeWorkspace(false)
	n := t.graph(multiplying, what, &y, false, a, b)
	t.save(n, a, b)
	t.gradientsFor(n, a, b)
	t.multiply(n, what, p, a, b, y)
	t.takesWorkspace(n)
	return y
}

// softmax saves its result. The kernel reads half itself; bfloat16 goes through a copy in the result's type
// (aten/src/ATen/native/SoftMax.cpp).
func (t *tracker) softmax(what string, x value, d dtype) value {
	return t.softened(softening, what, x, d)
}

// logSoftmax is its logarithm.
func (t *tracker) logSoftmax(what string, x value, d dtype) value {
	return t.softened(logSoftening, what, x, d)
}

func (t *tracker) softened(does *activity, what string, x value, d dtype) value {
	in := t.same(x)
	if t.bfloat {
		in = t.then(in, t.cast(in, d))
	}
	y := t.fresh(what, in.shape, d, savedResult)
	n := t.graph(does, what, &y, false, in)
	t.save(n, y)
	t.gradientsFor(n, in)
	t.drop(in)
	return y
}

// embedding looks rows of a table up; the gradient is as large as the table. A tied one's joins that of the head.
// Over 3072 indices, backward sums runs of equal ones (aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu).
func (t *tracker) embedding(what string, s, table shape, tied bool) (y value, n *node) {
	y = t.fresh(what, s, float32s, "")
	n = t.graph(gathering, what, &y, !t.frozen, value{shape: s, kind: float32s}) // as many rows as it reads
	if tied {
		t.leafAgain(n, table)
	} else {
		t.leaf(n, table)
	}
	if indices := s.elements() / s.last().n; indices > sortedIndices {
		t.sorts(n, indices, 0)
		t.takesScratch(n, what+" sums", of(dim{"runs", indices/10 + min(indices, table[0].n)}, s.last()), "EmbeddingBackwardKernel.cu")
	}
	return y, n
}

// sortedIndices is how many an embedding's backward takes without sorting them.
const sortedIndices = 3072

// sorts says that a node's backward sorts indices: they, their places and what is sorted along, twice, beside a copy of so many
// bytes of a gradient whose rows do not lie in order (embedding_dense_backward_cuda).
func (t *tracker) sorts(n *node, indices, copied int64) {
	if n != nil && indices > sortedIndices {
		s := of(dim{"sorted indices and gradients", 4*int64s.bytes()*indices + copied})
		n.gradCopy = t.rowFor("sorted indices", scratch, s, bools, "aten/src/ATen/native/cuda/Embedding.cu")
	}
}

// written is a value that was written into in place where a mask says so: backward needs the mask, if large, and makes a
// gradient of its own.
func (t *tracker) written(x value, masks ...value) value {
	y := x
	t.made += int64(x.bytes())
	n := t.graph(elementwise, "masking", &y, false, x)
	t.save(n, masks...)
	t.gradientsFor(n, x)
	return y
}

// sliced is a view of the first elements; backward pads the gradient.
func (t *tracker) sliced(x value, s shape) value {
	y := x.as(s)
	n := t.graph(elementwise, "slice", &y, false, x)
	t.gradientsFor(n, x)
	return y
}
