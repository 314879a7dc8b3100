package analytic

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
func (t *tape) cast(x value, d dtype) value {
	if x.kind == d {
		return t.same(x)
	}
	y := t.fresh("cast", x.shape, d, autocast)
	y.turned = x.turned
	n := t.graph("cast", &y, false, x)
	t.back(n, x)
	return y
}

// lower is the type in which products run.
func (t *tape) lower() dtype {
	if t.low {
		return halves
	}
	return float32s
}

// toLower casts an operand of a product.
func (t *tape) toLower(x value) value { return t.cast(x, t.lower()) }

// parameter is a weight as a product sees it: itself, which counts with the model, or autocast's 16-bit copy. That is made
// once in a forward pass and kept until its end; of a frozen one for each use.
func (t *tape) parameter(dims ...dim) value {
	w := value{at: none, node: none, grad: !t.frozen && !t.fixed(), shape: of(dims...), kind: float32s}
	if !t.low {
		return w
	}
	y := t.fresh("weights in 16 bits", w.shape, halves, autocast)
	n := t.graph("weight cast", &y, w.grad)
	t.leaf(n, w.shape)
	if w.grad {
		t.retain(y.at)
		t.cache = append(t.cache, cached{y.at, t.times})
	}
	return y
}

// optional is a parameter that may be absent.
func (t *tape) optional(there bool, dims ...dim) value {
	if !there {
		return nothing
	}
	return t.parameter(dims...)
}

// gradientOf says that a node makes the gradient of a parameter, or of its 16-bit copy.
func (t *tape) gradientOf(n *node, w value) {
	switch {
	case n == nil || !w.grad:
	case w.at == none:
		t.leaf(n, w.shape)
	default:
		t.back(n, w)
	}
}

// linear is x·W + b. The input is saved for the gradient of the weight, and the weight for that of the input.
func (t *tape) linear(what string, x value, out dim, bias bool) value {
	b := t.optional(bias, out)
	w := t.parameter(out, x.shape.last())
	return t.product(what, x, w, b)
}

// product is linear with parameters that are there already.
func (t *tape) product(what string, x, w, b value) value {
	in := t.toLower(x)
	y := t.fresh(what, x.shape.withLast(w.shape[0]), in.kind, savedInput)
	t.multiplies(b.shape.rank() > 0)
	n := t.graph(what, &y, w.grad, in)
	if w.grad {
		t.save(n, in)
	}
	if x.grad {
		t.save(n, w)
	}
	t.back(n, in)
	t.gradientOf(n, w)
	t.gradientOf(n, b)
	t.computes(n, product, in.kind, y.shape.flops(w.shape.last().n), in.grad, w.grad)
	t.multipliesBack(n)
	if b.grad {
		t.sumsColumns(n, y.shape.elements()/w.shape[0].n, w.shape[0].n)
	}
	t.drop(in, w, b)
	return t.adapted(what, x, y)
}

// convolution is over (batch, channels, time…); the weight's dimensions are (out, in / groups, taps…).
func (t *tape) convolution(what string, x value, s shape, bias bool, weight ...dim) value {
	b := t.optional(bias, weight[0])
	w := t.parameter(weight...)
	return t.convolve(what, x, s, w, b)
}

// convolve is convolution with parameters that are there already.
func (t *tape) convolve(what string, x value, s shape, w, b value) value {
	in := t.toLower(x)
	inOrder := t.ordered(in)
	y := t.fresh(what, s, in.kind, savedInput)
	t.drop(inOrder)
	n := t.graph(what, &y, w.grad, in)
	t.copiesInput(n, in)
	t.save(n, in, w)
	t.back(n, in)
	t.gradientOf(n, w)
	t.gradientOf(n, b)
	t.computes(n, convolution, in.kind, y.shape.flops(w.shape.elements()/max(1, w.shape[0].n)), in.grad, w.grad)
	t.drop(in, w, b)
	return y
}

// norm is a layer or group norm, in float32: it saves its input, and a mean and a deviation for each of the rows.
func (t *tape) norm(what string, x value, rows shape, size dim) value {
	in := t.cast(x, float32s)
	inOrder := t.ordered(in)
	y := t.fresh(what, in.shape, float32s, "")
	mean := t.fresh(what+" statistics", rows, float32s, savedResult)
	deviation := t.fresh(what+" statistics", rows, float32s, savedResult)
	t.drop(inOrder)
	n := t.graph(what, &y, !t.frozen, in)
	t.copiesInput(n, in)
	t.save(n, in, mean, deviation)
	t.back(n, in)
	t.affine(n, size)
	t.drop(in, mean, deviation)
	return y
}

// batchNorm saves its input and runs in the type of it.
func (t *tape) batchNorm(what string, x value, size dim) value {
	y := t.fresh(what, x.shape, x.kind, savedInput)
	n := t.graph(what, &y, !t.frozen, x)
	t.save(n, x)
	t.back(n, x)
	t.affine(n, size)
	return y
}

// affine says that the node makes the gradients of a norm's weight and bias.
func (t *tape) affine(n *node, size dim) {
	if !t.frozen {
		t.leaf(n, of(size), of(size))
	}
}

// pointwise is an operation on each element that saves its input: gelu, silu.
func (t *tape) pointwise(what string, x value) value {
	y := t.saving(what, x, x.shape)
	y.turned = x.turned
	return y
}

// gated is a gated linear unit: it halves the channels, and saves its input.
func (t *tape) gated(x value, s shape) value { return t.saving("gate", x, s) }

func (t *tape) saving(what string, x value, s shape) value {
	y := t.fresh(what, s, x.kind, savedInput)
	n := t.graph(what, &y, false, x)
	t.save(n, x)
	t.back(n, x)
	return y
}

// fromResult is an operation on each element whose backward needs the result only: relu, sigmoid.
func (t *tape) fromResult(what string, x value) value {
	y := t.fresh(what, x.shape, x.kind, savedResult)
	y.turned = x.turned
	n := t.graph(what, &y, false, x)
	t.save(n, y)
	t.back(n, x)
	return y
}

// cloned is a contiguous copy; backward hands its gradient on.
func (t *tape) cloned(what string, x value) value {
	y := t.fresh(what, x.shape, x.kind, "")
	n := t.graph(what, &y, false, x)
	t.pass(n, x, y.kind)
	return y
}

// scaled is an operation that saves nothing: a product with a number, padding, filling, repeating.
func (t *tape) scaled(what string, x value, s shape) value { return t.summed(what, x, s, x.kind) }

// summed is one that may also change the type, as sums do under autocast.
func (t *tape) summed(what string, x value, s shape, d dtype) value {
	y := t.fresh(what, s, d, "")
	n := t.graph(what, &y, false, x)
	t.back(n, x)
	return y
}

// dropout saves one byte an element; without a probability it is nothing.
func (t *tape) dropout(x value, p float64) value {
	if p <= 0 {
		return t.same(x)
	}
	y := t.fresh("dropout", x.shape, x.kind, "")
	y.turned = x.turned
	mask := t.fresh("dropout mask", x.shape, bools, savedMask)
	n := t.graph("dropout", &y, false, x)
	t.save(n, mask)
	t.back(n, x)
	t.drop(mask)
	return y
}

// sum adds two values of one shape, in the wider of their types.
func (t *tape) sum(a, b value) value {
	y := t.fresh("sum", a.shape, min(a.kind, b.kind), "")
	y.turned = a.turned
	n := t.graph("sum", &y, false, a, b)
	t.pass(n, a, y.kind)
	t.pass(n, b, y.kind)
	return y
}

// matmul multiplies two activations; each element of the result sums over the inner dimension.
func (t *tape) matmul(what string, a, b value, s shape, inner dim) value {
	left, right := t.toLower(a), t.toLower(b)
	y := t.bmm(what, left, right, s, inner)
	t.drop(left, right)
	return y
}

// bmm is matmul in the type of its operands.
func (t *tape) bmm(what string, a, b value, s shape, inner dim) value {
	y := t.fresh(what, s, a.kind, savedInput)
	t.multiplies(false)
	n := t.graph(what, &y, false, a, b)
	t.save(n, a, b)
	t.back(n, a, b)
	t.computes(n, product, a.kind, s.flops(inner.n), a.grad, b.grad)
	t.multipliesBack(n)
	return y
}

// softmax saves its result. The kernel reads half itself; bfloat16 goes through a copy in the result's type
// (aten/src/ATen/native/SoftMax.cpp).
func (t *tape) softmax(what string, x value, d dtype) value {
	in := t.same(x)
	if t.bfloat {
		in = t.then(in, t.cast(in, d))
	}
	y := t.fresh(what, in.shape, d, savedResult)
	n := t.graph(what, &y, false, in)
	t.save(n, y)
	t.back(n, in)
	t.drop(in)
	return y
}

// embedding looks rows of a table up; the gradient is as large as the table. A tied one's joins that of the head.
// Over 3072 indices, backward sums runs of equal ones (aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu).
func (t *tape) embedding(what string, s, table shape, tied bool) (y value, n *node) {
	y = t.fresh(what, s, float32s, "")
	n = t.graph(what, &y, !t.frozen)
	if tied {
		t.leafAgain(n, table)
	} else {
		t.leaf(n, table)
	}
	if indices := s.elements() / s.last().n; indices > 3072 {
		t.needs(n, what+" sums", of(dim{"runs", indices/10 + min(indices, table[0].n)}, s.last()), "EmbeddingBackwardKernel.cu")
	}
	return y, n
}

// written is a value that was written into in place where a mask says so: backward needs the mask, if large, and makes a
// gradient of its own.
func (t *tape) written(x value, masks ...value) value {
	y := x
	n := t.graph("masking", &y, false, x)
	t.save(n, masks...)
	t.back(n, x)
	return y
}

// sliced is a view of the first elements; backward pads the gradient.
func (t *tape) sliced(x value, s shape) value {
	y := x.as(s)
	n := t.graph("slice", &y, false, x)
	t.back(n, x)
	return y
}
