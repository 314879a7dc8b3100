package analytic

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Generates tells whether the model's text comes token by token from a decoder.
func (m *Model) Generates() bool { return m.generate != nil }

// MostLabels is the longest text in tokens that the model's positions allow; 0 without end.
func (m *Model) MostLabels() int64 { return m.mostLabels }

// UsualLabels is a usual length of a transcript in tokens, as far as the model's positions allow.
func (m *Model) UsualLabels(seconds float64) int64 { return m.labels(seconds) }

// GenerationStep records what one further token takes for each row of a batch, after so many tokens: keys and values of the tokens before it and of
// the audio are cached. A beam is a row. Errors: those of Work, and Unsupported for a model without a decoder.
func (m *Model) GenerationStep(r Request, rows, tokens int64) ([]kernel.Operation, error) {
	if m.generate == nil {
		return nil, fault.New(fault.Unsupported, "leave generation out", "%s has no decoder that generates", m.profile.Architecture)
	}
	set, err := r.settings()
	if err != nil {
		return nil, err
	}
	t := newTracker(set)
	t.recorded = newOperations()
	m.generate(t, rows, tokens)
	return kernel.Work{Operations: t.recorded.list}.ForwardPass(), nil
}

// generateToken plays Whisper's decoder for one token of each row.
func (c whisperConfig) generateToken(t *tracker, rows, tokens int64) {
	w := &whisper{whisperConfig: c, tracker: t, batch: dim{"rows", rows}, size: dim{"hidden", c.Size},
		frames: dim{"frames", c.Sources}, tokens: dim{"tokens", 1}}
	past := dim{"past tokens", tokens}
	x := w.embedTokens()
	w.repeat(w.DecoderLayers, 0, func(int) { x = w.then(x, w.generatingLayer(x, past)) })
	x = w.then(x, w.norm("layer norm", x, of(w.batch, w.tokens), w.size))
	logits := w.linear("logits", x, dim{"vocabulary", w.Vocabulary}, false)
	w.drop(w.logSoftmax("scores", logits, float32s), logits, x) // processors of the scores and the choice of a token read as much again
}

// generatingLayer is decoderLayer with keys and values that are there.
func (w *whisper) generatingLayer(x value, past dim) value {
	attend := func(normed value, keys dim, further bool) value {
		q := w.linear("queries", normed, w.size, true)
		q = w.then(q, w.scaled("queries, scaled", q, q.shape))
		if further { // the new token's, which are added to the others in a copy
			k, v := w.linear("keys", normed, w.size, false), w.linear("values", normed, w.size, true)
			w.drop(k, v)
		}
		cache := of(w.batch, keys, w.size)
		k, v := w.cached("cached keys", cache, further), w.cached("cached values", cache, further)
		y := w.attend(w.shape(w.DecoderHeads, w.tokens, keys), q, k, v)
		out := w.linear("attention projection", y, w.size, true)
		w.drop(q, k, v, y)
		return out
	}
	y := w.residual("attention layer norm", x, w.tokens, func(normed value) value { return attend(normed, past, true) })
	y = w.then(y, w.residual("cross-attention layer norm", y, w.tokens, func(normed value) value { return attend(normed, w.frames, false) }))
	return w.then(y, w.feedForward(y, w.tokens, w.DecoderInner))
}

// cached is keys or values of earlier tokens; a further one is appended by a copy of all.
func (w *whisper) cached(what string, s shape, further bool) value {
	v := value{at: w.allocate(what, s, w.lower(), inputs, ""), node: none, shape: s, kind: w.lower()}
	if further {
		v = w.then(v, w.cloned(what, v))
	}
	return v
}
