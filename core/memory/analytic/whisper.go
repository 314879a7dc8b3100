package analytic

import (
	"cmp"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// whisperConfig is what memory depends on in Whisper's config, with the class defaults of transformers.
type whisperConfig struct {
	Size          int64 `json:"d_model"`
	Hidden        int64 `json:"hidden_size"` // another name for d_model, and the one that counts when both are given
	EncoderLayers int   `json:"encoder_layers"`
	AnyLayers     int   `json:"num_hidden_layers"` // the same for encoder_layers
	DecoderLayers int   `json:"decoder_layers"`
	EncoderHeads  int64 `json:"encoder_attention_heads"`
	AnyHeads      int64 `json:"num_attention_heads"`
	DecoderHeads  int64 `json:"decoder_attention_heads"`
	EncoderInner  int64 `json:"encoder_ffn_dim"`
	DecoderInner  int64 `json:"decoder_ffn_dim"`
	Vocabulary    int64 `json:"vocab_size"`
	Bins          int64 `json:"num_mel_bins"`
	Sources       int64 `json:"max_source_positions"`
	Targets       int64 `json:"max_target_positions"`
	Tied          bool  `json:"tie_word_embeddings"`
	Cache         bool  `json:"use_cache"`

	Dropout           float64 `json:"dropout"`
	AttentionDropout  float64 `json:"attention_dropout"`
	ActivationDropout float64 `json:"activation_dropout"`
}

func readWhisper(m *Model) error {
	c := whisperConfig{Size: 384, EncoderLayers: 4, DecoderLayers: 4, EncoderHeads: 6, DecoderHeads: 6, EncoderInner: 1536,
		DecoderInner: 1536, Vocabulary: 51865, Bins: 80, Sources: 1500, Targets: 448, Tied: true, Cache: true}
	err := m.decode(&c)
	c.Size, c.EncoderLayers, c.EncoderHeads = cmp.Or(c.Hidden, c.Size), cmp.Or(c.AnyLayers, c.EncoderLayers), cmp.Or(c.AnyHeads, c.EncoderHeads)
	m.whisper = c
	return err
}

// whisper plays WhisperForConditionalGeneration. transformers 5.23, models/whisper/modeling_whisper.py.
type whisper struct {
	whisperConfig
	*tape
	batch, size, frames, tokens dim
	encoded                     value
}

const melFramesPerSecond = 100

func playWhisper(m *Model, t *tape, s Shape) (value, error) {
	w := &whisper{whisperConfig: m.whisper, tape: t}
	longest := float64(2*w.Sources) / melFramesPerSecond
	switch {
	case s.Seconds > longest:
		return value{}, fault.New(fault.InvalidArgument, "cut the clips into pieces of that length",
			"%v s of audio are longer than the %v s that the model's positions allow", s.Seconds, longest)
	case s.Labels > w.Targets:
		return value{}, fault.New(fault.InvalidArgument, "cut the clips, or leave long transcripts out",
			"%d labels are more than the %d that the model's positions allow", s.Labels, w.Targets)
	}
	w.batch, w.size = dim{"batch", s.Batch}, dim{"hidden", w.Size}
	w.frames, w.tokens = dim{"frames", w.Sources}, dim{"tokens", max(1, s.Labels)}
	w.encode()
	return w.decode(), nil
}

func (w *whisper) encode() {
	w.place = "inputs"
	mel := dim{"mel frames", 2 * w.Sources}
	features := of(w.batch, dim{"mel bins", w.Bins}, mel)
	x := value{at: w.birth("log-mel features", features, float32s, inputs, "WhisperFeatureExtractor pads to 30 s"), node: none, shape: features}
	w.birth("labels", of(w.batch, w.tokens), int64s, inputs, "data collator")
	w.call("encoder", func() {
		x = w.embed(x, mel)
		w.at("encoder layers", func() {
			w.repeat(w.EncoderLayers, func(int) { x = w.then(x, w.checkpointed(x, w.encoderLayer)) })
		})
		x = w.then(x, w.norm("layer norm", x, of(w.batch, w.frames), w.size))
	})
	w.encoded = x
	w.result(w.same(x))
}

// embed is the two convolutions and the sinusoidal positions, which do not train.
func (w *whisper) embed(x value, mel dim) value {
	taps := dim{"taps", 3}
	y := w.convolution("convolution", x, of(w.batch, w.size, mel), of(w.size, dim{"mel bins", w.Bins}, taps), true)
	y = w.then(y, w.pointwise("gelu", y))
	z := w.convolution("convolution", y, of(w.batch, w.size, w.frames), of(w.size, dim{"in", w.Size}, taps), true)
	w.drop(y)
	z = w.then(z, w.pointwise("gelu", z))
	positions := w.fresh("positions", of(w.frames, w.size), float32s, "")
	z.shape = of(w.batch, w.frames, w.size)
	sum := w.sum(z, positions)
	w.drop(positions)
	w.hold(z)
	return w.then(sum, w.dropout(sum, w.Dropout))
}

func (w *whisper) encoderLayer(x value) value {
	y := w.residual("attention layer norm", x, w.frames, func(normed value) value {
		return w.attention(normed, normed, w.heads(w.EncoderHeads, w.frames, w.frames), false)
	})
	return w.then(y, w.feedForward(y, w.frames, w.EncoderInner))
}

// residual is x + dropout(f(norm(x))).
func (w *whisper) residual(norm string, x value, length dim, f func(value) value) value {
	normed := w.norm(norm, x, of(w.batch, length), w.size)
	y := w.then(normed, f(normed))
	y = w.then(y, w.dropout(y, w.Dropout))
	return w.then(y, w.sum(x, y))
}

func (w *whisper) heads(n int64, queries, keys dim) heads {
	return heads{n: dim{"heads", n}, size: dim{"head size", w.Size / n}, queries: queries, keys: keys, dropout: w.AttentionDropout, contiguous: true}
}

// attention projects, scales the queries and lays all three out by heads, in copies; the cache of the decoder makes
// further copies of keys and values, unless layers are checkpointed.
func (w *whisper) attention(x, source value, h heads, cache bool) value {
	q := w.linear("queries", x, w.size, true)
	q = w.then(q, w.scaled("queries, scaled", q, q.shape))
	q = w.then(q, w.cloned("queries by heads", q))
	k := w.linear("keys", source, w.size, false)
	k = w.then(k, w.cloned("keys by heads", k))
	v := w.linear("values", source, w.size, true)
	v = w.then(v, w.cloned("values by heads", v))
	if cache && w.Cache && !w.checkpointing {
		keys, values := w.scaled("cached keys", k, k.shape), w.scaled("cached values", v, v.shape)
		w.drop(k, v)
		k, v = keys, values
		w.result(w.same(k), w.same(v))
	}
	y := w.attend(h, q, k, v)
	out := w.linear("attention projection", y, w.size, true)
	w.drop(q, k, v, y)
	return out
}

func (w *whisper) feedForward(x value, length dim, inner int64) value {
	return w.residual("final layer norm", x, length, func(normed value) value {
		y := w.linear("feed-forward inner", normed, dim{"inner", inner}, true)
		y = w.then(y, w.pointwise("gelu", y))
		y = w.then(y, w.dropout(y, w.ActivationDropout))
		return w.then(y, w.linear("feed-forward output", y, w.size, true))
	})
}

func (w *whisper) decode() value {
	var x, loss value
	w.call("decoder", func() {
		x = w.embedTokens()
		w.at("decoder layers", func() {
			w.repeat(w.DecoderLayers, func(int) { x = w.then(x, w.checkpointed(x, w.decoderLayer, w.encoded)) })
		})
		x = w.then(x, w.norm("layer norm", x, of(w.batch, w.tokens), w.size))
	})
	w.drop(w.encoded)
	w.at("head", func() { loss = w.head(x) })
	return loss
}

func (w *whisper) embedTokens() value {
	s := of(w.batch, w.tokens, w.size)
	tokens := w.embedding("token embeddings", s, of(dim{"vocabulary", w.Vocabulary}, w.size), w.Tied)
	positions := w.embedding("position embeddings", s, of(dim{"target positions", w.Targets}, w.size), false)
	x := w.sum(tokens, positions)
	w.hold(tokens, positions)
	return w.then(x, w.dropout(x, w.Dropout))
}

// embedding looks rows up; its gradient is as large as the table. That of a tied one joins the head's.
func (t *tape) embedding(what string, s, table shape, tied bool) value {
	y := t.fresh(what, s, float32s, "")
	n := t.graph(what, &y, t.weights())
	if tied {
		t.leafAgain(n, table)
	} else {
		t.leaf(n, table)
	}
	return y
}

func (w *whisper) decoderLayer(x value) value {
	y := w.residual("attention layer norm", x, w.tokens, func(normed value) value {
		return w.attention(normed, normed, w.heads(w.DecoderHeads, w.tokens, w.tokens), true)
	})
	y = w.then(y, w.residual("cross-attention layer norm", y, w.tokens, func(normed value) value {
		return w.attention(normed, w.encoded, w.heads(w.DecoderHeads, w.tokens, w.frames), true)
	}))
	return w.then(y, w.feedForward(y, w.tokens, w.DecoderInner))
}

func (w *whisper) head(x value) value {
	logits := w.linear("logits", x, dim{"vocabulary", w.Vocabulary}, false)
	loss := w.crossEntropy(logits)
	w.hold(x)
	w.logits = logits
	return loss
}
