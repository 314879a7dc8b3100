package analytic

import "github.com/asrconfig/asrconfig-go/core/timing/kernel"

// layer is a conformer block; the results of its parts stay variables until it returns.
func (p *parakeet) layer(x value) value {
	y := p.halfStep("first", x, false)
	normed := p.norm("attention layer norm", y, p.rows(), p.hidden)
	a := p.attention(normed)
	y = p.then(y, p.sum(y, a))
	n := p.norm("convolution layer norm", y, p.rows(), p.hidden)
	p.transposedGradient(n, false)
	c := p.then(n, p.convolutionModule(n))
	y = p.then(y, p.sum(y, c))
	p.hold(normed, a, c)
	y = p.then(y, p.halfStep("second", y, true))
	return p.then(y, p.norm("final layer norm", y, p.rows(), p.hidden))
}

// halfStep is x + feed-forward(norm(x)) / 2.
func (p *parakeet) halfStep(which string, x value, keep bool) value {
	normed := p.norm(which+" layer norm", x, p.rows(), p.hidden)
	y := p.then(normed, p.feedForward(normed))
	half := p.scaled(which+" feed-forward, halved", y, y.shape)
	sum := p.then(half, p.sum(x, half))
	if keep {
		p.hold(y)
	} else {
		p.drop(y)
	}
	return sum
}

func (p *parakeet) feedForward(x value) value {
	y := p.linear("feed-forward inner", x, dim{"inner", p.Inner}, p.AttentionBias)
	y = p.then(y, p.pointwise("silu", y))
	y = p.then(y, p.dropout(y, p.Activation))
	return p.then(y, p.linear("feed-forward output", y, p.hidden, p.AttentionBias))
}

// attention adds learned vectors to the queries, in float32, and multiplies one sum with the relative positions.
func (p *parakeet) attention(x value) value {
	q, k, v := p.linear("queries", x, p.hidden, p.AttentionBias), p.linear("keys", x, p.hidden, p.AttentionBias), p.linear("values", x, p.hidden, p.AttentionBias)
	content, position := p.biased(q), p.biased(q)
	relative := p.linear("relative keys", p.positions, p.hidden, false)
	bias := p.positionBias(position, relative)
	h := heads{n: p.heads, size: p.size, queries: p.frames, keys: p.frames, dropout: p.Attention}
	narrow := p.toLower(content)
	y := p.attend(h, narrow, k, v, bias)
	out := p.linear("attention projection", y, p.hidden, p.AttentionBias)
	p.drop(narrow, y, q, k, v, content, position, relative, bias)
	return out
}

// biased adds a learned vector per head.
func (p *parakeet) biased(q value) value {
	y := p.fresh("biased queries", q.shape, float32s, "")
	n := p.graph(elementwise, "biased queries", &y, true, q)
	p.passGradient(n, q, float32s)
	p.leaf(n, of(p.heads, p.size))
	return y
}

// positionBias multiplies, shifts rows against each other by padding, and scales.
func (p *parakeet) positionBias(q, relative value) value {
	twice := relative.shape[1]
	left := p.toLower(q)
	left = p.then(left, p.cloned("queries by heads", left))
	right := p.cloned("relative keys by heads", relative)
	y := p.matmul("relative scores", left, right, of(p.batch, p.heads, p.frames, twice), product{kernel.GEMM, p.batch.n * p.heads.n, p.frames.n, twice.n, p.size.n})
	p.drop(left, right)
	y = p.then(y, p.scaled("shifted scores", y, of(p.batch, p.heads, p.frames, dim{"2 frames", twice.n + 1})))
	y = p.then(y, p.scaled("position bias", y, of(p.batch, p.heads, p.frames, p.frames)))
	return p.written(y)
}

func (p *parakeet) convolutionModule(x value) value {
	s, double, one := of(p.batch, p.hidden, p.frames), p.hidden.doubled(), dim{"taps", 1}
	x = x.as(s).transpose()
	y := p.convolution("pointwise convolution", x, of(p.batch, double, p.frames), p.ConvBias, double, p.hidden, one)
	y = p.then(y, p.gated(y, s))
	y = p.then(y, p.scaled("padding filled", y, s))
	y = p.then(y, p.grouped("depthwise convolution", y, s, p.hidden.n, p.ConvBias, p.hidden, dim{"taps", p.Taps}))
	y = p.then(y, p.batchNorm("batch norm", y, p.hidden))
	y = p.then(y, p.pointwise("silu", y))
	y = p.then(y, p.convolution("pointwise convolution", y, s, p.ConvBias, p.hidden, p.hidden, one))
	p.transposedGradient(y, p.ConvBias)
	return y.as(of(p.batch, p.frames, p.hidden)).transpose()
}
