package analytic

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// heads is the shape of one attention.
type heads struct {
	n, size       dim // how many, and elements of each
	queries, keys dim // lengths
	dropout       float64
	contiguous    bool // each head's queries, keys and values lie together; so does the result, which is copied back
}

// capability is a GPU's compute capability. It decides which attention kernels run
// (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
type capability struct{ major, minor int }

func (c capability) ampere() bool { return c.major >= 8 }

func (c capability) String() string { return fmt.Sprintf("%d.%d", c.major, c.minor) }

// scores is a (batch, heads, queries, keys) shape.
func (h heads) scores(batch dim) shape { return of(batch, h.n, h.queries, h.keys) }

// scoring is the product of queries and keys, weighting that of the weights and values.
func (h heads) scoring(q value) product {
	return product{kernel.GEMM, q.shape[0].n * h.n.n, h.queries.n, h.keys.n, h.size.n}
}

func (h heads) weighting(q value) product {
	return product{kernel.GEMM, q.shape[0].n * h.n.n, h.queries.n, h.size.n, h.keys.n}
}

// attend is attention over (batch, length, heads × size) views; the result has the shape of the queries. A mask is
// boolean (batch, queries, keys) or numbers to add; only eager attention takes several.
func (t *tracker) attend(h heads, q, k, v value, masks ...value) value {
	switch {
	case t.eager:
		return t.eagerAttention(h, q, k, v, masks)
	case t.gpu.ampere() && q.kind == halves && len(masks) == 0 && h.size.n <= 256:
		return t.flashAttention(h, q, k, v)
	case t.efficient(h, q.kind):
		return t.efficientAttention(h, q, k, v, masks)
	}
	return t.mathAttention(h, q, k, v, masks)
}

// efficient tells whether memory-efficient attention runs: aligned heads, and no bfloat16 before compute capability 8.0.
func (t *tracker) efficient(h heads, d dtype) bool {
	if d == halves {
		return h.size.n%8 == 0 && (!t.bfloat || t.gpu.ampere())
	}
	return h.size.n%4 == 0
}

// flashAttention sums the queries' gradient in float32, in rows of 128 and heads of 32: mha_bwd, flash_api.cpp.
func (t *tracker) flashAttention(h heads, q, k, v value) value {
	sums := of(q.shape[0], h.n, h.queries.padded(128), h.size.padded(32))
	y := t.fused("flash attention", h, q, k, v, h.queries, sums)
	if h.contiguous {
		y = t.then(y, t.cloned("attention output, contiguous", y))
	}
	return y
}

// efficientAttention sums the queries' gradient in float32 too, in tiles of 64: attention_backward.cu. Its log-sum-exp
// comes in rows of 32.
func (t *tracker) efficientAttention(h heads, q, k, v value, masks []value) value {
	sums := of(q.shape[0], h.n, h.queries.padded(64), h.size.padded(64))
	var additive, aligned []value
	for _, mask := range masks {
		additive = append(additive, t.additive(mask, q.kind))
		aligned = append(aligned, t.alignedMask(additive[0]))
	}
	y := t.fused("efficient attention", h, q, k, v, h.queries.padded(32), sums, aligned...)
	t.drop(additive...)
	t.drop(aligned...)
	return y
}

// additive is the mask as numbers of the queries' type, which each layer makes again: convert_boolean_attn_mask of
// aten/src/ATen/native/transformers/attention.cpp.
func (t *tracker) additive(mask value, d dtype) value {
	if mask.kind != bools {
		return t.same(mask)
	}
	y := t.fresh("attention mask in numbers", mask.shape, d, "")
	t.drop(t.fresh("inverted attention mask", mask.shape, bools, ""))
	return y
}

// alignedMask pads the rows to eight elements, in a copy (pad_bias of the same file).
func (t *tracker) alignedMask(mask value) value {
	columns := mask.shape.last()
	if columns.n%8 == 0 {
		return t.same(mask)
	}
	y := t.scaled("attention mask, aligned", mask, mask.shape.withLast(columns.padded(8)))
	if y.grad { // backward undoes the slice that hides the padding, and then the padding
		y = t.sliced(y, y.shape)
	}
	return y
}

// fused is one kernel that saves queries, keys, values, mask, result and log-sum-exp, and draws dropout again in backward.
func (t *tracker) fused(what string, h heads, q, k, v value, rows dim, sums shape, masks ...value) value {
	y := t.fresh(what, q.shape, q.kind, savedResult)
	sum := t.fresh("log-sum-exp", of(q.shape[0], h.n, rows), float32s, savedResult)
	n := t.graph(multiplying, what, &y, false, q, k, v)
	t.save(n, q, k, v, y, sum)
	t.save(n, masks...)
	t.gradientsFor(n, q, k, v)
	t.gradientsFor(n, masks...)
	t.attendFused(n, what, h, float64(sums.elements()*float32s.bytes()), q, k, v, y, masks)
	t.takesScratch(n, what+" sums", sums, "aten/src/ATen/native/transformers/cuda")
	t.drop(sum)
	return y
}

// eagerAttention multiplies, adds masks, normalizes and multiplies again: eager_attention_forward of the models.
func (t *tracker) eagerAttention(h heads, q, k, v value, masks []value) value {
	left, right := t.byHeads(h, "queries by heads", q), t.byHeads(h, "keys by heads", k)
	w := t.matmul("attention scores", left, right, h.scores(q.shape[0]), h.scoring(q))
	t.drop(left, right)
	w = t.then(w, t.scaled("attention scores, scaled", w, w.shape))
	for _, mask := range masks {
		w = t.then(w, t.sum(w, mask))
	}
	w = t.then(w, t.softmax("attention weights", w, float32s))
	w = t.then(w, t.dropout(w, h.dropout))
	right = t.byHeads(h, "values by heads", v)
	y := t.matmul("attention output", w, right, q.shape, h.weighting(q))
	t.drop(w, right)
	return t.then(y, t.cloned("attention output, contiguous", y))
}

// mathAttention is what scaled_dot_product_attention falls back to: separate operations in float32, whatever the type
// (aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math).
func (t *tracker) mathAttention(h heads, q, k, v value, masks []value) value {
	wide := []value{t.cast(q, float32s), t.cast(k, float32s), t.cast(v, float32s)}
	left, right := t.scaled("queries, scaled", wide[0], q.shape), t.scaled("keys, scaled", wide[1], k.shape)
	byHeads := []value{t.byHeads(h, "queries by heads", left), t.byHeads(h, "keys by heads", right)}
	w := t.bmm("attention scores", byHeads[0], byHeads[1], h.scores(q.shape[0]), h.scoring(q))
	t.drop(byHeads...)
	for _, mask := range masks {
		additive := t.additive(mask, q.kind)
		w = t.then(w, t.sum(w, additive))
		t.drop(additive)
	}
	w = t.then(w, t.softmax("attention weights", w, float32s))
	w = t.then(w, t.dropout(w, h.dropout))
	narrow := t.cast(w, q.kind) // given back beside the result, and dropped
	last := t.byHeads(h, "values by heads", wide[2])
	y := t.bmm("attention output", w, last, q.shape, h.weighting(q))
	y = t.then(y, t.cast(y, q.kind))
	t.drop(narrow, w, last, left, right)
	t.drop(wide...)
	return t.then(y, t.cloned("attention output, contiguous", y))
}

// byHeads is the copy that a batched product makes of operands whose heads do not lie together.
func (t *tracker) byHeads(h heads, what string, x value) value {
	if h.contiguous {
		return t.same(x)
	}
	return t.cloned(what, x)
}
