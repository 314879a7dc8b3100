package analytic

// The operations that speech models are made of. Each says what its result takes, what autograd saves
// (tools/autograd/derivatives.yaml) and which gradients its backward makes. Under autocast an operation runs in the type
// of its list (aten/src/ATen/autocast_mode.h): linear, convolution and attention in 16 bits, norms and softmax in float32.

const (
	saveInput  = "saved input: derivatives.yaml"
	saveResult = "saved result: derivatives.yaml"
	saveMask   = "one byte an element: aten/src/ATen/native/cuda/Dropout.cu"
	castCopy   = "autocast copy: aten/src/ATen/autocast_mode.h"
)

// cast gives the value in another type: itself, or a copy.
func (t *tape) cast(x value, d dtype) value {
	if x.kind == d {
		return t.same(x)
	}
	y := t.fresh("cast", x.shape, d, castCopy)
	n := t.graph("cast", &y, &x)
	t.back(n, x)
	return y
}

// lower is the type in which matrix products run.
func (t *tape) lower() dtype {
	if t.low {
		return halves
	}
	return float32s
}

// toLower casts an operand of a matrix product.
func (t *tape) toLower(x value) value { return t.cast(x, t.lower()) }

// parameter is a weight as an operation sees it: itself, counted with the model, or autocast's 16-bit copy, which is made
// once per forward pass and kept until its end (frozen ones are copied for each use).
func (t *tape) parameter(s shape, d dtype, trained bool) value {
	w := value{at: none, node: none, grad: trained, shape: s, kind: float32s}
	if d == float32s {
		return w
	}
	y := t.fresh("weights in 16 bits", s, d, castCopy)
	n := t.graph("weight cast", &y, &w)
	t.leaf(n, s)
	if trained {
		t.retain(y.at)
		t.cache = append(t.cache, cached{y.at, t.times})
	}
	return y
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

// linear is x·W + b. It saves the input for the weight's gradient and the weight for the input's.
func (t *tape) linear(what string, x value, out dim, bias bool) value {
	d, trained := t.lower(), !t.frozen
	var b value
	if bias {
		b = t.parameter(of(out), d, trained)
	}
	w := t.parameter(of(out, x.shape.lastDim()), d, trained)
	return t.product(what, x, w, b, bias, out)
}

// product is linear with a weight that is there already.
func (t *tape) product(what string, x, w, b value, bias bool, out dim) value {
	in := t.cast(x, t.lower())
	y := t.fresh(what, x.shape.last(out), in.kind, saveInput)
	n := t.graph(what, &y, &in, &w)
	if w.grad {
		t.save(n, in)
	}
	if x.grad {
		t.save(n, w)
	}
	t.back(n, in)
	t.gradientOf(n, w)
	if bias {
		t.gradientOf(n, b)
		t.drop(b)
	}
	t.drop(in, w)
	return y
}

// norm is a layer norm over the last dimension: it saves its input, mean and deviation.
func (t *tape) norm(what string, x value, rows shape, size dim) value {
	in := t.cast(x, float32s)
	y := t.fresh(what, in.shape, float32s, "")
	mean := t.fresh(what+" statistics", rows, float32s, saveResult)
	deviation := t.fresh(what+" statistics", rows, float32s, saveResult)
	n := t.graph(what, &y, &in, t.weights())
	t.save(n, in, mean, deviation)
	t.back(n, in)
	if !t.frozen {
		t.leaf(n, of(size))
		t.leaf(n, of(size))
	}
	t.drop(in, mean, deviation)
	return y
}

// batchNorm saves its input and runs in its type.
func (t *tape) batchNorm(what string, x value, channels dim) value {
	y := t.fresh(what, x.shape, x.kind, saveInput)
	n := t.graph(what, &y, &x, t.weights())
	t.save(n, x)
	t.back(n, x)
	if !t.frozen {
		t.leaf(n, of(channels))
		t.leaf(n, of(channels))
	}
	return y
}

// weights stands for an operation's float32 parameters when asking whether a gradient flows.
func (t *tape) weights() *value { return &value{at: none, node: none, grad: !t.frozen} }

// pointwise is an operation on each element that saves its input: gelu, silu, sigmoid of a gate.
func (t *tape) pointwise(what string, x value) value {
	y := t.fresh(what, x.shape, x.kind, saveInput)
	n := t.graph(what, &y, &x)
	t.save(n, x)
	t.back(n, x)
	return y
}

// fromResult is an operation on each element whose backward needs its result only: relu, sigmoid, tanh.
func (t *tape) fromResult(what string, x value) value {
	y := t.fresh(what, x.shape, x.kind, saveResult)
	n := t.graph(what, &y, &x)
	t.save(n, y)
	t.back(n, x)
	return y
}

// cloned is a contiguous copy; backward hands its gradient on.
func (t *tape) cloned(what string, x value) value {
	y := t.fresh(what, x.shape, x.kind, "")
	n := t.graph(what, &y, &x)
	t.pass(n, x, y.kind)
	return y
}

// scaled is an operation that saves nothing: a product with a number, padding, filling.
func (t *tape) scaled(what string, x value, s shape) value {
	y := t.fresh(what, s, x.kind, "")
	n := t.graph(what, &y, &x)
	t.back(n, x)
	return y
}

// dropout saves one byte an element; without a probability it is nothing.
func (t *tape) dropout(x value, p float64) value {
	if p <= 0 {
		return t.same(x)
	}
	y := t.fresh("dropout", x.shape, x.kind, "")
	mask := t.fresh("dropout mask", x.shape, bools, saveMask)
	n := t.graph("dropout", &y, &x)
	t.save(n, mask)
	t.back(n, x)
	t.drop(mask)
	return y
}

// sum adds two values of the same shape, in the wider of their types.
func (t *tape) sum(a, b value) value {
	y := t.fresh("sum", a.shape, min(a.kind, b.kind), "")
	n := t.graph("sum", &y, &a, &b)
	t.pass(n, a, y.kind)
	t.pass(n, b, y.kind)
	return y
}

// convolution is a conv1d over (batch, channels, time); the weight is (out, in / groups, taps).
func (t *tape) convolution(what string, x value, s, weight shape, bias bool) value {
	d, trained := t.lower(), !t.frozen
	var b value
	if bias {
		b = t.parameter(of(weight[0]), d, trained)
	}
	w := t.parameter(weight, d, trained)
	return t.convolve(what, x, w, b, bias, s)
}

func (t *tape) convolve(what string, x, w, b value, bias bool, s shape) value {
	in := t.cast(x, t.lower())
	y := t.fresh(what, s, in.kind, saveInput)
	n := t.graph(what, &y, &in, &w)
	t.save(n, in, w)
	t.back(n, in)
	t.gradientOf(n, w)
	if bias {
		t.gradientOf(n, b)
		t.drop(b)
	}
	t.drop(in, w)
	return y
}

func (s shape) lastDim() dim {
	for i := maxRank - 1; i >= 0; i-- {
		if s[i].name != "" {
			return s[i]
		}
	}
	return dim{"one", 1}
}
