package analytic

import "github.com/asrconfig/asrconfig-go/core/timing/kernel"

// relativeAttention adds to the scores a product of the queries with an embedding of each distance (relative_key).
func (b *bert) relativeAttention(x value) value {
	if kind := b.Relative; kind == nil || *kind == "" {
		return b.plainAttention(x, b.hidden, b.masks)
	}
	q, k, v := b.linear("queries", x, b.hidden, true), b.linear("keys", x, b.hidden, true), b.linear("values", x, b.hidden, true)
	h := b.attentionShape(b.hidden)
	bias := b.distanceBias(h, q)
	masks := b.combined(bias)
	y := b.attend(h, q, k, v, masks...)
	b.drop(masks...)
	out := b.linear("attention projection", y, b.hidden, true)
	b.drop(q, k, v, y, bias)
	return out
}

// combined is the position bias with the padding, contiguous, as scaled_dot_product_attention takes it
// (transformers/integrations/sdpa_attention.py, create_position_bias_mask). Eager attention adds the two itself.
func (b *bert) combined(bias value) []value {
	if b.eager {
		out := []value{b.same(bias)}
		for _, mask := range b.masks {
			out = append(out, b.same(mask))
		}
		return out
	}
	y := b.same(bias)
	if len(b.masks) > 0 {
		y = b.then(y, b.scaled("position bias and padding", y, y.shape))
	}
	return []value{b.then(y, b.cloned("position bias, contiguous", y))}
}

// distanceBias is queries times the embedding of the distance between each two frames, per head.
func (b *bert) distanceBias(h heads, q value) value {
	square := of(b.frames, b.frames)
	distance, index := b.fresh("distances", square, int64s, ""), b.fresh("distance indices", square, int64s, savedInput)
	table, n := b.embedding("distance embedding", of(b.frames, b.frames, b.headSize), of(dim{"distances", b.Left + b.Right + 1}, b.headSize), false)
	b.save(n, index)
	b.sorts(n, square.elements(), int64(table.bytes()))
	b.drop(index)
	table = b.then(table, b.toLower(table))
	by := b.cloned("queries by position", q)
	y := b.matmul("position scores", by, table, h.scores(b.batch), product{kernel.GEMM, b.frames.n, b.batch.n * h.n.n, b.frames.n, b.headSize.n})
	b.drop(by)
	bias := b.then(y, b.scaled("position bias", y, y.shape))
	b.drop(table, distance)
	return bias
}

// adapt shortens the sequence with attention on strided convolutions (add_adapter).
func (b *bert) adapt(x value) value {
	x = b.same(x)
	if b.FeedFirst {
		y := b.swish(x)
		half := b.scaled("intermediate feed-forward, halved", y, y.shape)
		x = b.then(x, b.then(half, b.sum(x, half)))
		b.drop(y)
	}
	size := b.adapterSize()
	if size != b.hidden {
		x = b.then(x, b.linear("projection", x, size, true))
		x = b.then(x, b.norm("layer norm", x, b.rows(), size))
	}
	for range b.AdapterN {
		x = b.then(x, b.adapterLayer(x, size))
	}
	return x
}

func (b *bert) adapterLayer(x value, size dim) value {
	short := dim{"frames", max(1, (b.frames.n+2*(b.AdapterStep/2)-b.AdapterTaps)/b.AdapterStep+1)}
	residual := b.norm("residual layer norm", x, b.rows(), size)
	residual = b.then(residual, b.shortened("residual convolution", residual, size, short))
	y := b.norm("attention layer norm", x, b.rows(), size)
	y = b.then(y, b.shortened("attention convolution", y, size, short))
	b.frames = short
	if len(b.masks) > 0 {
		b.masks = b.attentionMask()
	}
	y = b.then(y, b.plainAttention(y, size, b.masks))
	y = b.then(y, b.dropout(y, b.ConvDropout))
	y = b.then(y, b.sum(y, residual))
	b.drop(residual)
	normed := b.norm("feed-forward layer norm", y, b.rows(), size)
	f := b.linear("feed-forward inner", normed, b.inner, true)
	f = b.feedForwardOutput(b.then(f, b.fromResult("relu", f)), size)
	b.drop(normed)
	return b.then(y, b.then(f, b.sum(f, y)))
}

// shortened is a strided convolution with a gate.
func (b *bert) shortened(what string, x value, size, short dim) value {
	y := b.convolution(what, x, of(b.batch, size.doubled(), short), true, size.doubled(), size, dim{"taps", b.AdapterTaps})
	return b.then(y, b.gated(y, of(b.batch, size, short))).as(of(b.batch, short, size))
}
