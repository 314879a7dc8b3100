package analytic

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// bertConfig is what w2v-BERT has beside the fields of wav2vec2.
type bertConfig struct {
	Features    int64   `json:"feature_projection_input_dim"`
	Taps        int64   `json:"conv_depthwise_kernel_size"`
	ConvDropout float64 `json:"conformer_conv_dropout"`
	Relative    *string `json:"position_embeddings_type"`
	Left        int64   `json:"left_max_position_embeddings"`
	Right       int64   `json:"right_max_position_embeddings"`
	FeedFirst   bool    `json:"use_intermediate_ffn_before_adapter"`
}

const relativeKey = "relative_key"

func readBert(m *Model) error {
	c, relative := speechDefaults(), relativeKey
	c.Hidden, c.Layers, c.Heads, c.Inner, c.AdapterN = 1024, 24, 16, 4096, 1
	c.HiddenDropout, c.ActivationDropout, c.AttentionDropout = 0, 0, 0
	own := bertConfig{Features: 160, Taps: 31, ConvDropout: 0.1, Relative: &relative, Left: 64, Right: 8}
	for _, into := range []any{&c, &own} {
		if err := m.decode(into); err != nil {
			return err
		}
	}
	if kind := profile.Or(own.Relative, ""); kind != relativeKey && kind != "" {
		return fault.New(fault.Unsupported, traceIt, "the memory of position_embeddings_type %q cannot be estimated from the config", kind)
	}
	m.play = func(t *tracker, s Shape) (value, error) {
		b := &bert{newSpeechEncoder(m, c, t, s), own, nil}
		b.sized(ceil(s.Seconds * bertFrameRate))
		return b.forward(), nil
	}
	return c.checkAdapter()
}

const bertFrameRate = 50 // SeamlessM4TFeatureExtractor joins two frames of 10 ms

// bert plays Wav2Vec2BertForCTC: conformer layers on log-mel features.
// transformers 5.23, models/wav2vec2_bert/modeling_wav2vec2_bert.py.
type bert struct {
	*speechEncoder
	bertConfig
	masks []value // of the attention
}

func (b *bert) forward() value {
	features := b.features()
	var x, loss value
	b.call("model", func() {
		x = b.project(features)
		b.call("encoder", func() { x = b.then(x, b.encode(x)) })
		if b.Adapter {
			b = &bert{b.clone(), b.bertConfig, b.masks}
			b.call("length adapter", func() { x = b.then(x, b.adapt(x)) })
		}
	})
	b.hold(b.extracted)
	b.at("head", func() { loss = b.ctcHead(x) })
	return loss
}

// features are the batch: log-mel features with their mask, and labels.
func (b *bert) features() value {
	b.module = "inputs"
	x := b.input("log-mel features", of(b.batch, b.frames, dim{"features", b.Features}), float32s, "SeamlessM4TFeatureExtractor")
	b.input("labels", of(b.batch, dim{"labels", b.shape.Labels}), int64s, "data collator")
	b.input("attention mask", b.rows(), int32s, "data collator")
	return x
}

func (b *bert) project(x value) (y value) {
	b.at("feature projection", func() {
		b.extracted = b.norm("layer norm", x, b.rows(), x.shape.last())
		y = b.linear("projection", b.extracted, b.hidden, true)
		y = b.augmented(b.then(y, b.dropout(y, b.ProjectDropout)))
	})
	return y
}

// filled sets padded frames to zero, in a copy.
func (b *bert) filled(x value) value { return b.scaled("padding filled", x, x.shape) }

func (b *bert) encode(x value) value {
	x = b.filled(x)
	b.masks = b.attentionMask()
	x = b.then(x, b.dropout(x, b.HiddenDropout))
	b.at("encoder layers", func() {
		b.repeat(b.Layers, b.LayerDrop, func(int) { x = b.then(x, b.checkpointed(x, nil, b.layer, b.masks...)) })
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
	b.drop(y)
	return sum
}

// swish is the feed-forward network with a silu inside.
func (b *bert) swish(x value) value {
	y := b.linear("feed-forward inner", x, b.inner, true)
	y = b.then(y, b.pointwise("silu", y))
	return b.feedForwardOutput(y, b.hidden)
}

// convolutionModule is norm, a gated pointwise convolution, a depthwise one, norm, silu and a pointwise one.
func (b *bert) convolutionModule(x value) value {
	s, one := of(b.batch, b.hidden, b.frames), dim{"taps", 1}
	y := b.norm("convolution layer norm", x, b.rows(), b.hidden)
	y = b.then(y, b.filled(y)).as(s).transpose()
	y = b.then(y, b.convolution("pointwise convolution", y, of(b.batch, b.hidden.doubled(), b.frames), false, b.hidden.doubled(), b.hidden, one))
	y = b.then(y, b.gated(y, s))
	y = b.then(y, b.scaled("padded on the left", y, of(b.batch, b.hidden, dim{"frames + taps - 1", b.frames.n + b.Taps - 1})))
	y = b.then(y, b.grouped("depthwise convolution", y, s, b.hidden.n, false, b.hidden, dim{"taps", b.Taps}))
	b.transposedGradient(y, false)
	y = b.then(y, b.norm("depthwise layer norm", y.transpose(), b.rows(), b.hidden)).transpose()
	b.transposedGradient(y, false)
	y = b.then(y, b.pointwise("silu", y))
	y = b.then(y, b.convolution("pointwise convolution", y, s, false, b.hidden, b.hidden, one))
	b.transposedGradient(y, false)
	return b.then(y, b.dropout(y.transpose(), b.ConvDropout)).as(x.shape)
}
