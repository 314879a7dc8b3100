package analytic

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// bertConfig is what w2v-BERT has beside the fields of wav2vec2.
type bertConfig struct {
	Features         int64   `json:"feature_projection_input_dim"`
	Taps             int64   `json:"conv_depthwise_kernel_size"`
	ConvDropout      float64 `json:"conformer_conv_dropout"`
	Relative         *string `json:"position_embeddings_type"`
	Left             int64   `json:"left_max_position_embeddings"`
	Right            int64   `json:"right_max_position_embeddings"`
	IntermediateFeed bool    `json:"use_intermediate_ffn_before_adapter"`
}

func readBert(m *Model) error {
	m.speech = speechDefaults()
	c := &m.speech
	c.Hidden, c.Layers, c.Heads, c.Inner, c.AdapterN = 1024, 24, 16, 4096, 1
	c.HiddenDropout, c.ActivationDropout, c.AttentionDropout = 0, 0, 0
	relative := "relative_key"
	m.bert = bertConfig{Features: 160, Taps: 31, ConvDropout: 0.1, Relative: &relative, Left: 64, Right: 8}
	if err := m.decode(c); err != nil {
		return err
	}
	if err := m.decode(&m.bert); err != nil {
		return err
	}
	if kind := profile.Or(m.bert.Relative, ""); kind != "relative_key" && kind != "" {
		return fault.New(fault.Unsupported, "trace it: estimator trace works for any torch module",
			"the memory of position_embeddings_type %q cannot be estimated from the config", kind)
	}
	return nil
}

// bert plays Wav2Vec2BertForCTC: conformer layers on log-mel features.
// transformers 5.23, models/wav2vec2_bert/modeling_wav2vec2_bert.py.
type bert struct {
	*speechEncoder
	bertConfig
	mask *value // of the attention
}

const bertFramesPerSecond = 50

func playBert(m *Model, t *tape, s Shape) (value, error) {
	e := &speechEncoder{speechConfig: m.speech, tape: t, kind: m.profile.Architecture, shape: s, bias: nothing}
	e.sized(int64(math.Ceil(s.Seconds*bertFramesPerSecond - 1e-6)))
	b := &bert{speechEncoder: e, bertConfig: m.bert}
	x := b.project(b.features())
	b.call("encoder", func() { x = b.then(x, b.encode(x)) })
	if b.Adapter {
		b.call("adapter", func() { x = b.then(x, b.adapt(x)) })
	}
	var loss value
	b.at("head", func() { loss = b.ctcHead(x) })
	return loss, nil
}

// features are the batch: log-mel features, two frames in one, with their mask, and labels.
func (b *bert) features() value {
	b.place = "inputs"
	s := of(b.batch, b.frames, dim{"features", b.Features})
	x := value{at: b.birth("log-mel features", s, float32s, inputs, "SeamlessM4TFeatureExtractor"), node: none, shape: s}
	b.birth("labels", of(b.batch, dim{"labels", b.shape.Labels}), int64s, inputs, "data collator")
	b.birth("attention mask", of(b.batch, b.frames), int32s, inputs, "data collator")
	return x
}

func (b *bert) project(x value) (y value) {
	b.at("feature projection", func() {
		normed := b.norm("layer norm", x, b.rows(), x.shape[2])
		y = b.linear("projection", normed, b.hidden, true)
		y = b.then(y, b.dropout(y, b.ProjectDropout))
		b.hold(normed)
		if b.SpecAugment && b.MaskTime > 0 {
			y = b.maskedInPlace(y, nil)
			b.maskVector(y)
		}
	})
	return y
}

func (b *bert) rows() shape { return of(b.batch, b.frames) }

// filled sets padded frames to zero, in a copy.
func (b *bert) filled(x value) value { return b.scaled("padding filled", x, x.shape) }

func (b *bert) encode(x value) value {
	x = b.filled(x)
	b.mask = b.attentionMask()
	x = b.then(x, b.dropout(x, b.HiddenDropout))
	b.at("encoder layers", func() {
		b.repeat(b.Layers, func(i int) { x = b.then(x, b.checkpointed(x, b.layer, b.shared(i, b.mask)...)) })
	})
	return x
}

// layer is a conformer block: half a feed-forward, attention, convolution, the other half.
func (b *bert) layer(x value) value {
	y := b.halfStep("first", x)
	normed := b.norm("attention layer norm", y, b.rows(), b.hidden)
	a := b.then(normed, b.relativeAttention(normed))
	a = b.then(a, b.dropout(a, b.AttentionDropout))
	y = b.then(y, b.then(a, b.sum(a, y)))
	c := b.convolutionModule(y)
	y = b.then(y, b.then(c, b.sum(y, c)))
	y = b.then(y, b.halfStep("second", y))
	return b.then(y, b.norm("final layer norm", y, b.rows(), b.hidden))
}

// halfStep is x + feed-forward(norm(x)) / 2.
func (b *bert) halfStep(which string, x value) value {
	normed := b.norm(which+" layer norm", x, b.rows(), b.hidden)
	y := b.then(normed, b.swish(normed))
	half := b.scaled(which+" feed-forward, halved", y, y.shape)
	sum := b.then(half, b.sum(half, x))
	return b.then(y, sum)
}

// swish is the feed-forward network with a silu inside.
func (b *bert) swish(x value) value {
	y := b.linear("feed-forward inner", x, b.inner, true)
	y = b.then(y, b.pointwise("silu", y))
	y = b.then(y, b.dropout(y, b.ActivationDropout))
	y = b.then(y, b.linear("feed-forward output", y, x.shape.lastDim(), true))
	return b.then(y, b.dropout(y, b.HiddenDropout))
}

func (b *bert) relativeAttention(x value) value {
	q, k, v := b.linear("queries", x, b.hidden, true), b.linear("keys", x, b.hidden, true), b.linear("values", x, b.hidden, true)
	h := heads{n: b.heads, size: b.headSize, queries: b.frames, keys: dim{"frames", b.frames.n}, dropout: b.AttentionDropout}
	var masks []value
	bias := nothing
	if b.Relative != nil && *b.Relative != "" {
		bias = b.positionBias(h, q)
		masks = append(masks, b.combined(bias))
	} else if b.mask != nil {
		masks = append(masks, b.same(*b.mask))
	}
	if b.eager && b.mask != nil && bias.at != none {
		masks = append(masks, b.same(*b.mask))
	}
	y := b.attend(h, q, k, v, masks...)
	b.drop(masks...)
	out := b.linear("attention projection", y, b.hidden, true)
	b.drop(q, k, v, y, bias)
	return out
}

// combined is the position bias with the padding, contiguous, as scaled_dot_product_attention takes it:
// integrations/sdpa_attention.py, create_position_bias_mask. Eager attention adds the two itself.
func (b *bert) combined(bias value) value {
	if b.eager {
		return b.same(bias)
	}
	y := b.same(bias)
	if b.mask != nil {
		y = b.then(y, b.scaled("position bias and padding", y, y.shape))
	}
	return b.then(y, b.cloned("position bias, contiguous", y))
}

// positionBias is queries times the embedding of each distance, per head.
func (b *bert) positionBias(h heads, q value) value {
	square := of(b.frames, dim{"frames", b.frames.n})
	distance, index := b.fresh("distances", square, int64s, ""), b.fresh("distance indices", square, int64s, saveInput)
	table := b.fresh("distance embedding", of(b.frames, dim{"frames", b.frames.n}, b.headSize), float32s, "distance_embedding")
	n := b.graph("distance embedding", &table, b.weights())
	b.save(n, index)
	b.leaf(n, of(dim{"distances", b.Left + b.Right + 1}, b.headSize))
	b.drop(index)
	table = b.then(table, b.toLower(table))
	by := b.cloned("queries by position", q)
	y := b.matmul("position scores", by, table, h.scores(b.batch))
	b.drop(by)
	bias := b.then(y, b.scaled("position bias", y, y.shape))
	b.drop(table, distance)
	return bias
}

// convolutionModule is norm, a gated pointwise convolution, a depthwise one, norm, silu and a pointwise one.
func (b *bert) convolutionModule(x value) value {
	double, one, frames := b.hidden.times("2 hidden", 2), dim{"taps", 1}, b.frames
	y := b.norm("convolution layer norm", x, b.rows(), b.hidden)
	y = b.then(y, b.filled(y))
	y.shape = of(b.batch, b.hidden, frames)
	y = b.then(y, b.convolution("pointwise convolution", y, of(b.batch, double, frames), of(double, b.hidden, one), false))
	y = b.then(y, b.gated(y, of(b.batch, b.hidden, frames)))
	y = b.then(y, b.scaled("padded on the left", y, of(b.batch, b.hidden, dim{"frames + taps - 1", frames.n + b.Taps - 1})))
	y = b.then(y, b.convolution("depthwise convolution", y, of(b.batch, b.hidden, frames), of(b.hidden, dim{"taps", b.Taps}), false))
	y = b.then(y, b.norm("depthwise layer norm", y, b.rows(), b.hidden))
	y = b.then(y, b.pointwise("silu", y))
	y = b.then(y, b.convolution("pointwise convolution", y, of(b.batch, b.hidden, frames), of(b.hidden, b.hidden, one), false))
	y = b.then(y, b.dropout(y, b.ConvDropout))
	y.shape = of(b.batch, frames, b.hidden)
	return y
}

// adapt shortens the sequence: attention on strided convolutions (add_adapter).
func (b *bert) adapt(x value) value {
	x = b.same(x)
	if b.IntermediateFeed {
		y := b.swish(x)
		half := b.scaled("intermediate feed-forward, halved", y, y.shape)
		x = b.then(x, b.then(half, b.sum(x, half)))
		b.drop(y)
	}
	size := b.hidden
	if b.AdapterSize > 0 && b.AdapterSize != b.Hidden {
		size = dim{"adapter", b.AdapterSize}
		x = b.then(x, b.linear("projection", x, size, true))
		x = b.then(x, b.norm("layer norm", x, b.rows(), size))
	}
	for range b.AdapterN {
		x = b.then(x, b.adapterLayer(x, size))
	}
	return x
}

func (b *bert) adapterLayer(x value, size dim) value {
	residual := b.norm("residual layer norm", x, b.rows(), size)
	short := dim{"frames", (b.frames.n+2*(b.AdapterStep/2)-b.AdapterTaps)/b.AdapterStep + 1}
	residual = b.then(residual, b.shortened("residual convolution", residual, size, short))
	y := b.norm("attention layer norm", x, b.rows(), size)
	y = b.then(y, b.shortened("attention convolution", y, size, short))
	b.frames = short
	if b.mask != nil {
		b.mask = b.attentionMask()
	}
	y = b.then(y, b.plainAttention(y, size))
	y = b.then(y, b.dropout(y, b.ConvDropout))
	y = b.then(y, b.sum(y, residual))
	b.drop(residual)
	normed := b.norm("feed-forward layer norm", y, b.rows(), size)
	f := b.then(normed, b.rectified(normed))
	return b.then(y, b.then(f, b.sum(f, y)))
}

// shortened is a strided convolution with a gate.
func (b *bert) shortened(what string, x value, size, short dim) value {
	double := size.times("2 "+size.name, 2)
	y := b.convolution(what, x, of(b.batch, double, short), of(double, size, dim{"taps", b.AdapterTaps}), true)
	y = b.then(y, b.gated(y, of(b.batch, size, short)))
	y.shape = of(b.batch, short, size)
	return y
}

func (b *bert) plainAttention(x value, size dim) value {
	q, k, v := b.linear("queries", x, size, true), b.linear("keys", x, size, true), b.linear("values", x, size, true)
	h := heads{n: b.heads, size: dim{"head size", size.n / b.Heads}, queries: b.frames, keys: dim{"frames", b.frames.n}, dropout: b.AttentionDropout}
	var masks []value
	if b.mask != nil {
		masks = append(masks, *b.mask)
	}
	y := b.attend(h, q, k, v, masks...)
	out := b.linear("attention projection", y, size, true)
	b.drop(q, k, v, y)
	return out
}

// rectified is the adapter's feed-forward network.
func (b *bert) rectified(x value) value {
	y := b.linear("feed-forward inner", x, b.inner, true)
	y = b.then(y, b.fromResult("relu", y))
	y = b.then(y, b.dropout(y, b.ActivationDropout))
	y = b.then(y, b.linear("feed-forward output", y, x.shape.lastDim(), true))
	return b.then(y, b.dropout(y, b.HiddenDropout))
}
