package analytic

// whisper plays WhisperForConditionalGeneration. transformers 5.23, models/whisper/modeling_whisper.py.
type whisper struct {
	whisperConfig
	*tracker
	batch, size, mel, frames, tokens dim
	encoded                          value
}

func (w *whisper) encode() {
	w.module = "inputs"
	x := w.input("log-mel features", of(w.batch, dim{"mel bins", w.Bins}, w.mel), float32s, "WhisperFeatureExtractor pads to 30 s")
	w.input("labels", of(w.batch, w.tokens), int64s, "data collator")
	w.call("encoder", func() {
		x = w.embed(x)
		w.at("encoder layers", func() {
			w.repeat(w.EncoderLayers, w.EncoderLayerDrop, func(int) { x = w.then(x, w.checkpointed(x, nil, w.encoderLayer)) })
		})
		x = w.then(x, w.norm("layer norm", x, of(w.batch, w.frames), w.size))
	})
	w.encoded = x
}

// embed is two convolutions and the sinusoidal positions, which do not train.
func (w *whisper) embed(x value) value {
	taps := dim{"taps", 3}
	y := w.convolution("convolution", x, of(w.batch, w.size, w.mel), true, w.size, dim{"mel bins", w.Bins}, taps)
	y = w.then(y, w.pointwise("gelu", y))
	y = w.then(y, w.convolution("convolution", y, of(w.batch, w.size, w.frames), true, w.size, w.size, taps))
	w.transposedGradient(y, true)
	y = w.then(y, w.pointwise("gelu", y)).as(of(w.batch, w.frames, w.size)).transpose()
	positions := w.fresh("positions", of(w.frames, w.size), float32s, "")
	sum := w.sum(y, positions)
	w.drop(positions)
	w.hold(y)
	return w.then(sum, w.dropout(sum, w.Dropout))
}

func (w *whisper) decode() (loss value) {
	var x value
	w.call("decoder", func() {
		x = w.embedTokens()
		w.at("decoder layers", func() {
			w.repeat(w.DecoderLayers, w.DecoderLayerDrop, func(int) { x = w.then(x, w.checkpointed(x, &w.encoded, w.decoderLayer)) })
		})
		x = w.then(x, w.norm("layer norm", x, of(w.batch, w.tokens), w.size))
	})
	w.drop(w.encoded)
	w.at("head", func() {
		w.logits = w.linear("logits", x, dim{"vocabulary", w.Vocabulary}, false)
		loss = w.crossEntropy(w.logits)
		w.hold(x)
	})
	return loss
}

func (w *whisper) embedTokens() value {
	s := of(w.batch, w.tokens, w.size)
	tokens, _ := w.embedding("token embeddings", s, of(dim{"vocabulary", w.Vocabulary}, w.size), w.Tied)
	positions, _ := w.embedding("position embeddings", s, of(dim{"target positions", w.Targets}, w.size), false)
	x := w.sum(tokens, positions)
	w.hold(tokens, positions)
	return w.then(x, w.dropout(x, w.Dropout))
}

func (w *whisper) encoderLayer(x value) value {
	y := w.residual("attention layer norm", x, w.frames, func(normed value) value {
		return w.attention(normed, normed, w.shape(w.EncoderHeads, w.frames, w.frames), false)
	})
	return w.then(y, w.feedForward(y, w.frames, w.EncoderInner))
}

func (w *whisper) decoderLayer(x value) value {
	y := w.residual("attention layer norm", x, w.tokens, func(normed value) value {
		return w.attention(normed, normed, w.shape(w.DecoderHeads, w.tokens, w.tokens), true)
	})
	y = w.then(y, w.residual("cross-attention layer norm", y, w.tokens, func(normed value) value {
		return w.attention(normed, w.encoded, w.shape(w.DecoderHeads, w.tokens, w.frames), true)
	}))
	return w.then(y, w.feedForward(y, w.tokens, w.DecoderInner))
}

// residual is x + dropout(f(norm(x))).
func (w *whisper) residual(norm string, x value, length dim, f func(value) value) value {
	normed := w.norm(norm, x, of(w.batch, length), w.size)
	y := w.then(normed, f(normed))
	y = w.then(y, w.dropout(y, w.Dropout))
	return w.then(y, w.sum(x, y))
}

func (w *whisper) feedForward(x value, length dim, inner int64) value {
	return w.residual("final layer norm", x, length, func(normed value) value {
		y := w.linear("feed-forward inner", normed, dim{"inner", inner}, true)
		y = w.then(y, w.pointwise("gelu", y))
		y = w.then(y, w.dropout(y, w.ActivationDropout))
		return w.then(y, w.linear("feed-forward output", y, w.size, true))
	})
}

func (w *whisper) shape(n int64, queries, keys dim) heads {
	return heads{n: dim{"heads", n}, size: dim{"head size", w.Size / n}, queries: queries, keys: keys, dropout: w.AttentionDropout, contiguous: true}
}

// attention projects, scales the queries and lays all three out by heads, in copies. The decoder's cache, which
// training does not need but use_cache makes, holds further copies of keys and values; checkpointing turns it off.
func (w *whisper) attention(x, source value, h heads, decoder bool) value {
	q := w.linear("queries", x, w.size, true)
	q = w.then(q, w.scaled("queries, scaled", q, q.shape))
	q = w.then(q, w.cloned("queries by heads", q))
	k := w.linear("keys", source, w.size, false)
	k = w.then(k, w.cloned("keys by heads", k))
	v := w.linear("values", source, w.size, true)
	v = w.then(v, w.cloned("values by heads", v))
	if decoder && w.Cache && !w.checkpointing {
		keys, values := w.cloned(cachedKey+"keys", k), w.cloned(cachedKey+"values", v)
		w.drop(k, v)
		k, v = keys, values
		w.give(w.same(k), w.same(v))
	}
	y := w.attend(h, q, k, v)
	out := w.linear("attention projection", y, w.size, true)
	w.drop(q, k, v, y)
	return out
}
