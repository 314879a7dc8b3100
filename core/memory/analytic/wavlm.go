package analytic

import "github.com/asrconfig/asrconfig-go/core/timing/kernel"

// WavLM's attention goes through torch.nn.functional.multi_head_attention_forward with the weights asked for, hence
// without a fused kernel, and gates one table of relative positions again in each layer.
// transformers 5.23, models/wavlm/modeling_wavlm.py, WavLMAttention.

// allScores is (batch, heads, frames, frames).
func (e *speechEncoder) allScores() shape { return of(e.batch, e.heads, e.frames, e.frames) }

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
	w = e.then(w, e.softmax("attention weights", w, float32s))
	w = e.then(w, e.dropout(w, e.AttentionDropout))
	y := e.matmul("attention output", w, v, x.shape, e.attentionShape(e.hidden).weighting(q))
	e.drop(v)
	y = e.then(y, e.cloned("attention output, contiguous", y))
	y = e.then(y, e.linear("attention projection", y, e.hidden, true))
	e.hold(e.fresh("mean attention weights", e.square(), float32s, "need_weights"))
	e.copies(kernel.Reduction, "mean attention weights", float32s, w.bytes())
	e.drop(w, mask, gated, bias)
	return y
}

// biasOf gives layer i the position bias. The first layer makes it, all use it, and the first makes it again when it is
// recomputed.
func (e *speechEncoder) biasOf(i int) value {
	switch {
	case i > 0:
		return e.same(e.bias)
	case e.pass == recomputed:
		again := e.bias
		again.at = e.allocate("position bias", e.allScores(), float32s, temporaries, "")
		return again
	}
	quiet := e.checkpointDepth
	e.checkpointDepth = 0 // its graph is kept: it is a result of the layer, not something inside
	e.bias = e.positionBias()
	e.checkpointDepth = quiet
	e.keep(e.bias.at) // all layers save it
	e.release(e.bias.at)
	e.storages[e.bias.at].shared = true
	return e.same(e.bias)
}

// positionBias is the table's value for each distance, repeated for each clip.
func (e *speechEncoder) positionBias() value {
	buckets := e.fresh("position buckets", of(e.frames, e.frames), int64s, savedInput)
	values, n := e.embedding("position values", of(e.frames, e.frames, e.heads), of(dim{"buckets", e.Buckets}, e.heads), false)
	e.sorts(n, e.frames.n*e.frames.n, int64(values.bytes()))
	e.save(n, buckets)
	e.drop(buckets)
	return e.then(values, e.scaled("position bias", values, e.allScores()))
}

// flattened is a linear layer on a view with time first, which it copies unless there is one clip.
func (e *speechEncoder) flattened(what string, x value) value {
	b, w := e.parameter(e.hidden), e.parameter(e.hidden, e.hidden)
	in := e.toLower(x)
	if e.batch.n > 1 {
		in = e.then(in, e.cloned("input, time first", in))
	}
	y := e.product(what, in, w, b)
	e.drop(in)
	return y
}

// gatedBias is the gate of each frame and head times the bias: gru_rel_pos_linear, a sigmoid, and small products.
func (e *speechEncoder) gatedBias(x, bias value) value {
	eight := dim{"gates", 8}
	b, w := e.parameter(eight), e.parameter(eight, e.headSize)
	in := e.toLower(x).as(of(e.batch, e.heads, e.frames, e.headSize))
	in = e.then(in, e.cloned("input by heads", in))
	projected := e.product("gate projection", in, w, b)
	e.drop(in)
	gates := e.then(projected, e.summed("gate sums", projected, of(e.batch, e.heads, e.frames, dim{"gates", 2}), float32s))
	gates = e.then(gates, e.fromResult("sigmoid", gates))
	gate := e.then(gates, e.gateProduct(gates))
	y := e.fresh("gated position bias", e.allScores(), float32s, savedInput)
	n := e.graph(elementwise, "gated position bias", &y, false, gate, bias)
	e.save(n, gate, bias)
	e.gradientsFor(n, gate, bias)
	e.takesScratch(n, "gradient of the gate before its sum", e.allScores(), "")
	e.drop(gate)
	return y
}

// gateProduct is a · (b · c - 1) + 2, one number for each frame and head.
func (e *speechEncoder) gateProduct(gates value) value {
	s := of(e.batch, e.heads, e.frames)
	y, inner, outer := e.fresh("gate", s, float32s, ""), e.fresh("gate product", s, float32s, savedInput), e.fresh("gate product", s, float32s, savedInput)
	n := e.graph(elementwise, "gate", &y, true, gates)
	e.save(n, gates, inner, outer)
	e.gradientsFor(n, gates)
	e.leaf(n, of(e.heads))
	e.drop(inner, outer)
	return y
}

// biasedProduct is baddbmm: the bias plus queries times keys, in 16 bits under autocast.
func (e *speechEncoder) biasedProduct(bias, q, k value) value {
	in := e.toLower(bias)
	y := e.fresh("attention scores", e.allScores(), in.kind, "")
	e.takeWorkspace(false)
	n := e.graph(multiplying, "attention scores", &y, false, in, q, k)
	e.save(n, q, k)
	e.passGradient(n, in, y.kind)
	e.gradientsFor(n, q, k)
	e.multiply(n, "attention scores", e.attentionShape(e.hidden).scoring(q), q, k, y)
	e.takesWorkspace(n)
	e.drop(in)
	return y
}
