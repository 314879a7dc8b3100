package analytic

// WavLM's attention goes through torch.nn.functional.multi_head_attention_forward with the weights asked for, hence
// without a fused kernel, and gates one table of relative positions anew in each layer.
// transformers 5.23, models/wavlm/modeling_wavlm.py, WavLMAttention.

// wavlmScores is (batch × heads, frames, frames).
func (e *speechEncoder) wavlmScores() shape {
	return of(e.batch, e.heads, e.frames, dim{"frames", e.frames.n})
}

// positionBias is the table's values at every distance, repeated for each clip. The first layer makes it, and all use it.
func (e *speechEncoder) positionBias() value {
	square := of(e.frames, dim{"frames", e.frames.n})
	buckets := e.fresh("position buckets", square, int64s, "compute_bias")
	values := e.fresh("position values", of(e.frames, dim{"frames", e.frames.n}, e.heads), float32s, "rel_attn_embed")
	n := e.graph("position values", &values, e.weights())
	e.save(n, buckets)
	e.leaf(n, of(dim{"buckets", e.Buckets}, e.heads))
	e.drop(buckets)
	return e.then(values, e.scaled("position bias", values, e.wavlmScores()))
}

// biasOf gives layer i the bias; the first makes it, and makes it again when it is recomputed.
func (e *speechEncoder) biasOf(i int) value {
	switch {
	case i > 0:
		return e.same(e.bias)
	case !e.backward:
		quiet := e.quiet
		e.quiet = 0 // its graph is kept: it is a result of the layer, not something inside
		e.bias = e.positionBias()
		e.keep(e.bias.at) // all layers save it
		e.release(e.bias.at)
		e.quiet = quiet
		return e.same(e.bias)
	}
	again := e.bias
	again.at = e.birth("position bias", e.wavlmScores(), float32s, temporaries, "recomputed")
	return again
}

func (e *speechEncoder) wavlmAttention(i int, x value) value {
	bias := e.biasOf(i)
	gated := e.gatedBias(x, bias)
	mask := e.same(gated)
	if e.masked() { // the padding joins the bias, in a copy of it
		mask = e.then(mask, e.scaled("position bias and padding", mask, mask.shape))
	}
	q, k, v := e.flattened("queries", x), e.flattened("keys", x), e.flattened("values", x)
	q = e.then(q, e.scaled("queries, scaled", q, q.shape))
	w := e.biasedProduct(mask, q, k)
	e.drop(q, k)
	w = e.then(w, e.softmax("attention weights", w))
	w = e.then(w, e.dropout(w, e.AttentionDropout))
	y := e.matmul("attention output", w, v, x.shape)
	e.drop(v)
	y = e.then(y, e.cloned("attention output, contiguous", y))
	y = e.then(y, e.linear("attention projection", y, e.hidden, true))
	e.hold(e.fresh("mean attention weights", of(e.batch, e.frames, dim{"frames", e.frames.n}), float32s, "need_weights"))
	e.drop(w, mask, gated, bias)
	return y
}

// flattened is a linear layer on a view with time first, which it copies unless there is one clip.
func (e *speechEncoder) flattened(what string, x value) value {
	d := e.lower()
	b, w := e.parameter(of(e.hidden), d, true), e.parameter(of(e.hidden, e.hidden), d, true)
	in := e.cast(x, d)
	if e.batch.n > 1 {
		in = e.then(in, e.cloned("transposed input", in))
	}
	y := e.product(what, in, w, b, true, e.hidden)
	e.drop(in)
	return y
}

// gatedBias is the gate of each frame and head times the bias: gru_rel_pos_linear, a sigmoid, and small products.
func (e *speechEncoder) gatedBias(x, bias value) value {
	d, eight := e.lower(), dim{"gate", 8}
	b, w := e.parameter(of(eight), d, true), e.parameter(of(eight, e.headSize), d, true)
	in := e.cast(x, d)
	in.shape = of(e.batch, e.heads, e.frames, e.headSize)
	in = e.then(in, e.cloned("input by heads", in))
	projected := e.product("gate projection", in, w, b, true, eight)
	e.drop(in)
	two := of(e.batch, e.heads, e.frames, dim{"gates", 2})
	gates := e.summed("gate sums", projected, two)
	e.drop(projected)
	gates = e.then(gates, e.fromResult("sigmoid", gates))
	gate := e.gateProduct(gates)
	e.drop(gates)
	y := e.fresh("gated position bias", e.wavlmScores(), float32s, saveInput)
	n := e.graph("gated position bias", &y, &gate, &bias)
	e.save(n, gate, bias)
	e.back(n, gate)
	e.back(n, bias)
	e.needs(n, "gradient of the gate, spread", e.wavlmScores(), float32s)
	e.drop(gate)
	return y
}

// summed adds over a dimension, in float32 under autocast.
func (t *tape) summed(what string, x value, s shape) value {
	y := t.fresh(what, s, float32s, "")
	n := t.graph(what, &y, &x)
	t.back(n, x)
	return y
}

// gateProduct is a · (b · c - 1) + 2 on one number per frame and head.
func (e *speechEncoder) gateProduct(gates value) value {
	s := of(e.batch, e.heads, e.frames)
	y := e.fresh("gate", s, float32s, "")
	inner, outer := e.fresh("gate product", s, float32s, saveInput), e.fresh("gate product", s, float32s, saveInput)
	n := e.graph("gate", &y, &gates)
	e.save(n, gates, inner, outer)
	e.back(n, gates)
	e.leaf(n, of(e.heads))
	e.drop(inner, outer)
	return y
}

// biasedProduct is baddbmm: the bias plus queries times keys, in 16 bits under autocast.
func (e *speechEncoder) biasedProduct(bias, q, k value) value {
	in := e.toLower(bias)
	y := e.fresh("attention scores", e.wavlmScores(), in.kind, saveInput)
	n := e.graph("attention scores", &y, &in, &q, &k)
	e.save(n, q, k)
	e.pass(n, in, y.kind)
	e.back(n, q)
	e.back(n, k)
	e.drop(in)
	return y
}
