package analytic

// layer is one transformer layer; with do_stable_layer_norm the norms stand before attention and feed-forward.
func (e *speechEncoder) layer(i int, x value, masks []value) (y value) {
	e.call(e.module, func() {
		if e.Stable {
			y = e.stableLayer(i, x, masks)
		} else {
			y = e.plainLayer(i, x, masks)
		}
	})
	return y
}

func (e *speechEncoder) plainLayer(i int, x value, masks []value) value {
	y := e.attention(i, x, masks)
	y = e.then(y, e.dropout(y, e.HiddenDropout))
	y = e.then(y, e.sum(x, y))
	y = e.then(y, e.norm("layer norm", y, e.rows(), e.hidden))
	f := e.feedForward(y)
	y = e.then(y, e.sum(y, f))
	e.drop(f)
	return e.then(y, e.norm("final layer norm", y, e.rows(), e.hidden))
}

func (e *speechEncoder) stableLayer(i int, x value, masks []value) value {
	normed := e.norm("layer norm", x, e.rows(), e.hidden)
	y := e.then(normed, e.attention(i, normed, masks))
	y = e.then(y, e.dropout(y, e.HiddenDropout))
	y = e.then(y, e.sum(x, y))
	normed = e.norm("final layer norm", y, e.rows(), e.hidden)
	f := e.then(normed, e.feedForward(normed))
	y = e.then(y, e.sum(y, f))
	e.drop(f)
	if e.Language > 0 && e.kind != wavlm && e.kind != data2vec {
		a := e.languageAdapter(y)
		y = e.then(y, e.sum(y, a))
		e.drop(a)
	}
	return y
}

// languageAdapter is the small network of MMS: Wav2Vec2AttnAdapterLayer.
func (e *speechEncoder) languageAdapter(x value) value {
	y := e.norm("adapter norm", x, e.rows(), e.hidden)
	y = e.then(y, e.linear("adapter, narrow", y, dim{"adapter", e.Language}, true))
	y = e.then(y, e.fromResult("relu", y))
	return e.then(y, e.linear("adapter, wide", y, e.hidden, true))
}

func (e *speechEncoder) attention(i int, x value, masks []value) value {
	if e.kind == wavlm {
		return e.wavlmAttention(i, x)
	}
	return e.plainAttention(x, e.hidden, masks)
}

// attentionShape is that of a self-attention over the frames.
func (e *speechEncoder) attentionShape(size dim) heads {
	return heads{n: e.heads, size: dim{"head size", size.n / e.Heads}, queries: e.frames, keys: e.frames, dropout: e.AttentionDropout}
}

func (e *speechEncoder) plainAttention(x value, size dim, masks []value) value {
	q, k, v := e.linear("queries", x, size, true), e.linear("keys", x, size, true), e.linear("values", x, size, true)
	y := e.attend(e.attentionShape(size), q, k, v, masks...)
	out := e.linear("attention projection", y, size, true)
	e.drop(q, k, v, y)
	return out
}

func (e *speechEncoder) feedForward(x value) value {
	y := e.linear("feed-forward inner", x, e.inner, true)
	y = e.then(y, e.pointwise("gelu", y))
	return e.feedForwardOutput(y, e.hidden)
}

// feedForwardOutput is the second half of a feed-forward network, which takes the first half's result over.
func (e *speechEncoder) feedForwardOutput(y value, size dim) value {
	y = e.then(y, e.dropout(y, e.ActivationDropout))
	y = e.then(y, e.linear("feed-forward output", y, size, true))
	return e.then(y, e.dropout(y, e.HiddenDropout))
}
