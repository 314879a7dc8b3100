package analytic

import (
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Generates tells whether the model's text comes token by token from a decoder.
func (m *Model) Generates() bool { return m.generate != nil }

// MostLabels is the longest text in tokens that the model's positions allow; 0 without end.
func (m *Model) MostLabels() int64 { return m.mostLabels }

// UsualLabels is a usual length of a transcript in tokens, as far as the model's positions allow.
func (m *Model) UsualLabels(seconds float64) int64 { return m.labels(seconds) }

// GenerationStep records what one further token takes for each beam of a batch, after so many tokens: keys and values of the tokens before it and of
// the audio are cached. Errors: those of Work, and Unsupported for a model without a decoder.
func (m *Model) GenerationStep(r Request, beams, tokens int64) ([]kernel.Operation, error) {
	m, t, err := m.generating(r)
	if err != nil {
		return nil, err
	}
	t.recorded = newOperations()
	m.generate(t, r.Batch, beams, tokens)
	return kernel.Work{Operations: t.recorded.list}.ForwardPass(), nil
}

// GenerationStart records what comes before the second token of a batch: the encoder for each clip and the first token of each beam. Errors: those of
// GenerationStep.
func (m *Model) GenerationStart(r Request, beams int64) ([]kernel.Operation, error) {
	m, t, err := m.generating(r)
	if err != nil {
		return nil, err
	}
	t.recorded = newOperations()
	m.startTexts(t, r.Batch, beams)
	return kernel.Work{Operations: t.recorded.list}.ForwardPass(), nil
}

// GenerationMemory is what an evaluation takes while it generates.
type GenerationMemory struct {
	PeakAllocated uint64
	PeakReserved  uint64 // by the rule
	CacheBytes    uint64 // keys and values of the audio and of the longest text, of all beams
}

// GenerationPeak is the memory of generating texts of so many tokens for a batch, beside the weights and the optimizer's state of a training. Errors: those
// of GenerationStep.
func (m *Model) GenerationPeak(r Request, beams, tokens int64) (g GenerationMemory, err error) {
	m, t, err := m.generating(r)
	if err != nil {
		return g, err
	}
	m.resident(t)
	m.generateTexts(t, r.Batch, beams, tokens)
	t.highest.copyPending(&t.live)
	for i, row := range t.rows {
		if strings.HasPrefix(row.key.what, cachedKey) {
			g.CacheBytes += uint64(t.live.rows[i])
		}
	}
	peak := t.highest.peak.total
	g.PeakAllocated, g.PeakReserved = uint64(peak), t.reserved(peak)
	return g, nil
}

// cachedKey begins the names of what a generation keeps of earlier tokens and of the audio.
const cachedKey = "cached "

// generating is a new tracker of an evaluation, in which nothing is saved for a backward pass.
func (m *Model) generating(r Request) (*Model, *tracker, error) {
	if m.generate == nil {
		return nil, nil, fault.New(fault.Unsupported, "leave generation out", "%s has no decoder that generates", m.profile.Architecture)
	}
	set, err := r.settings()
	if err != nil {
		return nil, nil, err
	}
	if m, err = m.WithLoRA(set.rank); err != nil {
		return nil, nil, err
	}
	set.evaluating, set.checkpointing, set.accumulation, set.accumulating = true, false, 1, false
	t := newTracker(set)
	t.checkpointDepth++
	return m, t, nil
}

// startTexts plays the encoder, which transformers' generate calls outside of the forward that accelerate wraps in autocast, and the first token, whose pass
// fills the cross-attention's cache.
func (c whisperConfig) startTexts(t *tracker, clips, beams int64) *whisper {
	c.Cache = true // generation_config.use_cache, whatever the config says
	w := c.over(t, dim{"clips", clips}, 1)
	w.at("generation", func() {
		w.hold(w.fresh("features of the segment", of(w.batch, dim{"mel bins", w.Bins}, w.mel), float32s, "WhisperGenerationMixin._get_input_segment"))
	})
	low := w.low
	w.low = false
	w.encode()
	w.low = low
	w.batch = dim{"rows", clips * beams}
	w.at("generation", func() {
		if beams > 1 {
			w.encoded = w.then(w.encoded, w.cloned("encoder states of each beam", w.encoded.as(of(w.batch, w.frames, w.size))))
		}
		x := w.embedTokens()
		w.repeat(w.DecoderLayers, 0, func(int) { x = w.then(x, w.decoderLayer(x)) })
		w.score(x)
		w.endAutocast(0)
	})
	return w
}

// generateTexts plays generate's highest moments: the start, the last token, when all caches are longest, and the beams' change of places behind it.
func (c whisperConfig) generateTexts(t *tracker, clips, beams, tokens int64) {
	w := c.startTexts(t, clips, beams)
	w.at("generation", func() {
		for range passedScores {
			w.hold(w.fresh("scores", of(w.batch, dim{"vocabulary", w.Vocabulary}), float32s, "GenerationMixin._sample, _beam_search"))
		}
		for range 2 * w.DecoderLayers {
			w.allocate(cachedKey+"keys and values", of(w.batch, dim{"past tokens", tokens - 1}, w.size), w.lower(), inputs, "transformers.DynamicCache")
		}
		c.generateToken(t, clips, beams, tokens)
	})
}

// passedScores is how many tensors like a token's logits are there when the next one's forward pass begins: the logits in float32, and what became of them.
const passedScores = 3

// generateToken plays Whisper's decoder for one token of each beam. Several beams change places, and all their keys and values with them.
func (c whisperConfig) generateToken(t *tracker, clips, beams, tokens int64) {
	w, past := c.over(t, dim{"rows", clips * beams}, 1), dim{"past tokens", tokens}
	x := w.embedTokens()
	w.repeat(w.DecoderLayers, 0, func(int) { x = w.then(x, w.generatingLayer(x, past)) })
	w.score(x)
	w.endAutocast(0)
	if beams == 1 {
		return
	}
	for range 2 * w.DecoderLayers { // transformers.CacheLayerMixin.reorder_cache
		for _, length := range [...]dim{past, w.frames} {
			v := w.earlier(of(w.batch, length, w.size))
			w.drop(w.cloned("keys or values in the beams' order", v))
		}
	}
}

// score makes the scores of a token.
func (w *whisper) score(x value) {
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
		k, v := w.earlier(cache), w.earlier(cache)
		if further {
			k, v = w.cloned("keys with the new token's", k), w.cloned("values with the new token's", v)
		}
		y := w.attend(w.shape(w.DecoderHeads, w.tokens, keys), q, k, v)
		out := w.linear("attention projection", y, w.size, true)
		w.drop(q, k, v, y)
		return out
	}
	y := w.residual("attention layer norm", x, w.tokens, func(normed value) value { return attend(normed, past, true) })
	y = w.then(y, w.residual("cross-attention layer norm", y, w.tokens, func(normed value) value { return attend(normed, w.frames, false) }))
	return w.then(y, w.feedForward(y, w.tokens, w.DecoderInner))
}

// earlier is keys or values of earlier tokens or of the audio, which are there.
func (w *whisper) earlier(s shape) value {
	return value{at: none, node: none, shape: s, kind: w.lower()}
}
