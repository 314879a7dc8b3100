package analytic

// heads is the shape of one attention.
type heads struct {
	n, size       dim // how many, and elements of each
	queries, keys dim // lengths
	dropout       float64
	contiguous    bool // each head's queries, keys and values lie together: flash attention's result does too, and is copied back
}

// capability is a GPU's compute capability; it decides which attention kernels run.
type capability struct{ major, minor int }

func (c capability) ampere() bool { return c.major >= 8 }

const (
	sdpaChoice = "aten/src/ATen/native/transformers/cuda/sdp_utils.cpp"
	sdpaMask   = "aten/src/ATen/native/transformers/attention.cpp: a boolean mask becomes one of numbers in each layer"
)

// attend is attention over (batch, length, heads × size) views; the result has the shape of the queries. A mask is
// boolean (batch, queries, keys) or additive; only eager attention takes several.
func (t *tape) attend(h heads, q, k, v value, masks ...value) value {
	var mask *value
	if len(masks) > 0 {
		mask = &masks[0]
	}
	switch {
	case t.eager:
		return t.eagerAttention(h, q, k, v, masks)
	case t.flash(h, q.kind, mask):
		return t.flashAttention(h, q, k, v)
	case t.efficient(h, q.kind):
		return t.efficientAttention(h, q, k, v, mask)
	}
	return t.mathAttention(h, q, k, v, mask)
}

// flash tells whether flash attention runs: 16 bits, no mask, compute capability 8.0 on.
func (t *tape) flash(h heads, d dtype, mask *value) bool {
	return t.gpu.ampere() && d == halves && mask == nil && h.size.n <= 256
}

// efficient tells whether memory-efficient attention runs: aligned heads, and no bfloat16 before compute capability 8.0.
func (t *tape) efficient(h heads, d dtype) bool {
	if d == halves {
		return h.size.n%8 == 0 && (!t.bfloat || t.gpu.ampere())
	}
	return h.size.n%4 == 0
}

// flashAttention sums the queries' gradient in float32, in rows of 128 and heads of 32: mha_bwd, flash_api.cpp.
func (t *tape) flashAttention(h heads, q, k, v value) value {
	sums := of(q.shape[0], h.n, h.queries.padded(128), h.size.padded(32))
	y := t.fused("flash attention", h, q, k, v, nil, h.queries, sums)
	if h.contiguous {
		y = t.then(y, t.cloned("attention output, contiguous", y))
	}
	return y
}

// efficientAttention sums the queries' gradient in float32 too, in tiles of 64, when they have 16 bits, and multiplies
// result and gradient when not: attention_backward.cu. Its log-sum-exp comes in rows of 32.
func (t *tape) efficientAttention(h heads, q, k, v value, mask *value) value {
	sums := of(q.shape[0], h.n, h.queries, h.size)
	if q.kind == halves {
		sums = of(q.shape[0], h.n, h.queries.padded(64), h.size.padded(64))
	}
	if mask == nil {
		return t.fused("efficient attention", h, q, k, v, nil, h.queries.padded(32), sums)
	}
	additive := t.additive(*mask, q.kind)
	aligned := t.alignedMask(additive)
	y := t.fused("efficient attention", h, q, k, v, &aligned, h.queries.padded(32), sums)
	t.drop(additive, aligned)
	return y
}

// additive is the mask as numbers of the queries' type.
func (t *tape) additive(mask value, d dtype) value {
	if mask.kind != bools {
		return t.same(mask)
	}
	y := t.fresh("attention mask in numbers", mask.shape, d, sdpaMask)
	t.drop(t.fresh("inverted attention mask", mask.shape, bools, ""))
	return y
}

// alignedMask pads the rows to eight elements, in a copy.
func (t *tape) alignedMask(mask value) value {
	columns := mask.shape.lastDim()
	aligned := columns.padded(8)
	if aligned == columns {
		return t.same(mask)
	}
	y := t.scaled("attention mask, aligned", mask, mask.shape.last(aligned))
	if y.grad { // backward undoes the slice that hides the padding before it undoes the padding
		whole := y
		n := t.graph("slice", &y, &whole)
		t.back(n, whole)
	}
	return y
}

// fused is one kernel that saves queries, keys, values, its result and the log-sum-exp, and draws dropout again in
// backward.
func (t *tape) fused(what string, h heads, q, k, v value, mask *value, rows dim, backward shape) value {
	y := t.fresh(what, q.shape, q.kind, saveResult)
	sum := t.fresh("log-sum-exp", of(q.shape[0], h.n, rows), float32s, saveResult)
	n := t.graph(what, &y, &q, &k, &v)
	t.save(n, q, k, v, y, sum)
	t.back(n, q)
	t.back(n, k)
	t.back(n, v)
	if mask != nil {
		t.save(n, *mask)
		t.back(n, *mask)
	}
	t.needs(n, what+" sums", backward, float32s)
	t.drop(sum)
	return y
}

// scores is a (batch, heads, queries, keys) shape.
func (h heads) scores(batch dim) shape { return of(batch, h.n, h.queries, h.keys) }

// eagerAttention multiplies, adds the mask, normalizes and multiplies again: eager_attention_forward of the models.
func (t *tape) eagerAttention(h heads, q, k, v value, masks []value) value {
	left, right := t.byHeads(h, "queries by heads", q), t.byHeads(h, "keys by heads", k)
	w := t.matmul("attention scores", left, right, h.scores(q.shape[0]))
	t.drop(left, right)
	w = t.then(w, t.scaled("attention scores, scaled", w, w.shape))
	for _, mask := range masks {
		w = t.then(w, t.sum(w, mask))
	}
	w = t.then(w, t.softmax("attention weights", w))
	w = t.then(w, t.dropout(w, h.dropout))
	right = t.byHeads(h, "values by heads", v)
	y := t.matmul("attention output", w, right, q.shape)
	t.drop(w, right)
	return t.then(y, t.cloned("attention output, contiguous", y))
}

// byHeads is the copy that a batched product makes of operands whose heads do not lie together.
func (t *tape) byHeads(h heads, what string, x value) value {
	if h.contiguous {
		return t.same(x)
	}
	return t.cloned(what, x)
}

// mathAttention is what scaled_dot_product_attention falls back to: scaled queries and keys, then as eager.
func (t *tape) mathAttention(h heads, q, k, v value, mask *value) value {
	left, right := t.scaled("queries, scaled", q, q.shape), t.scaled("keys, scaled", k, k.shape)
	w := t.matmul("attention scores", left, right, h.scores(q.shape[0]))
	t.drop(left, right)
	if mask != nil {
		additive := t.additive(*mask, w.kind)
		w = t.then(w, t.sum(w, additive))
		t.drop(additive)
	}
	w = t.then(w, t.softmaxIn("attention weights", w, w.kind))
	w = t.then(w, t.dropout(w, h.dropout))
	right = t.byHeads(h, "values by heads", v)
	y := t.matmul("attention output", w, right, q.shape)
	t.drop(w, right)
	return t.then(y, t.cloned("attention output, contiguous", y))
}

// matmul multiplies two activations, in 16 bits under autocast.
func (t *tape) matmul(what string, a, b value, s shape) value {
	left, right := t.toLower(a), t.toLower(b)
	y := t.fresh(what, s, left.kind, saveInput)
	n := t.graph(what, &y, &left, &right)
	t.save(n, left, right)
	t.back(n, left)
	t.back(n, right)
	t.drop(left, right)
	return y
}

// softmax runs in float32 under autocast; half is read by the kernel itself, bfloat16 through a copy
// (aten/src/ATen/native/SoftMax.cpp).
func (t *tape) softmax(what string, x value) value { return t.softmaxIn(what, x, float32s) }

func (t *tape) softmaxIn(what string, x value, d dtype) value {
	in := t.same(x)
	if t.bfloat && x.kind != d {
		in = t.then(in, t.cast(in, d))
	}
	y := t.fresh(what, in.shape, d, saveResult)
	n := t.graph(what, &y, &in)
	t.save(n, y)
	t.back(n, in)
	t.drop(in)
	return y
}
