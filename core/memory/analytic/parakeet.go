package analytic

import (
	"math"
	"math/bits"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// parakeetConfig is what memory depends on in ParakeetCTCConfig, with its defaults (transformers 5.23).
type parakeetConfig struct {
	Vocabulary int64           `json:"vocab_size"`
	Encoder    parakeetEncoder `json:"encoder_config"`
}

type parakeetEncoder struct {
	Hidden        int64   `json:"hidden_size"`
	Layers        int     `json:"num_hidden_layers"`
	Heads         int64   `json:"num_attention_heads"`
	Inner         int64   `json:"intermediate_size"`
	Bins          int64   `json:"num_mel_bins"`
	Taps          int64   `json:"conv_kernel_size"`
	Factor        uint    `json:"subsampling_factor"`
	Channels      int64   `json:"subsampling_conv_channels"`
	SubTaps       int64   `json:"subsampling_conv_kernel_size"`
	SubStep       int64   `json:"subsampling_conv_stride"`
	AttentionBias bool    `json:"attention_bias"`
	ConvBias      bool    `json:"convolution_bias"`
	Dropout       float64 `json:"dropout"`
	Activation    float64 `json:"activation_dropout"`
	Attention     float64 `json:"attention_dropout"`
}

func readParakeet(m *Model) error {
	m.parakeet = parakeetConfig{Vocabulary: 1025, Encoder: parakeetEncoder{Hidden: 1024, Layers: 24, Heads: 8, Inner: 4096, Bins: 80,
		Taps: 9, Factor: 8, Channels: 256, SubTaps: 3, SubStep: 2, AttentionBias: true, ConvBias: true,
		Dropout: 0.1, Activation: 0.1, Attention: 0.1}}
	return m.decode(&m.parakeet)
}

// parakeet plays ParakeetForCTC. transformers 5.23, models/parakeet/modeling_parakeet.py.
type parakeet struct {
	parakeetEncoder
	*tape
	batch, frames, hidden, heads, size dim
	mask                               *value
	positions                          value
}

func playParakeet(m *Model, t *tape, s Shape) (value, error) {
	p := &parakeet{parakeetEncoder: m.parakeet.Encoder, tape: t, batch: dim{"batch", s.Batch}}
	p.hidden, p.heads, p.size = dim{"hidden", p.Hidden}, dim{"heads", p.Heads}, dim{"head size", p.Hidden / p.Heads}
	mel := int64(math.Ceil(s.Seconds*melFramesPerSecond - 1e-6))
	if mel < 2*int64(p.Factor) {
		return value{}, fault.New(fault.InvalidArgument, "give a longer duration", "%v s of audio are too short for the model's convolutions", s.Seconds)
	}
	var x, loss value
	p.place = "inputs"
	features := of(p.batch, dim{"mel frames", mel}, dim{"mel bins", p.Bins})
	in := value{at: p.birth("log-mel features", features, float32s, inputs, "ParakeetFeatureExtractor"), node: none, shape: features}
	p.birth("labels", of(p.batch, dim{"labels", s.Labels}), int64s, inputs, "data collator")
	p.birth("attention mask", of(p.batch, dim{"mel frames", mel}), int32s, inputs, "data collator")
	p.call("encoder", func() { x = p.encode(in, mel) })
	p.at("head", func() {
		vocabulary := dim{"vocabulary", m.parakeet.Vocabulary}
		x.shape = of(p.batch, p.hidden, p.frames)
		logits := p.convolution("logits", x, of(p.batch, vocabulary, p.frames), of(vocabulary, p.hidden, dim{"taps", 1}), true)
		loss = p.ctcLoss(logits, p.batch, p.frames, dim{"labels", s.Labels})
		p.hold(x)
		p.logits = logits
	})
	return loss, nil
}

func (p *parakeet) encode(features value, mel int64) value {
	x := p.subsample(features, mel)
	x = p.then(x, p.scaled("scaled input", x, x.shape))
	twice := of(p.batch, dim{"2 frames - 1", 2*p.frames.n - 1}, p.hidden)
	p.positions = p.fresh("relative positions", twice, x.kind, "ParakeetEncoderRelPositionalEncoding")
	x = p.then(x, p.dropout(x, p.Dropout))
	mask := p.fresh("attention mask", of(p.batch, p.frames, dim{"frames", p.frames.n}), bools, "")
	p.hold(p.positions, mask)
	p.mask = &mask
	p.at("encoder layers", func() {
		p.repeat(p.Layers, func(int) {
			x = p.then(x, p.checkpointed(x, func(x value) (y value) {
				p.call(p.place, func() { y = p.layer(x) })
				return y
			}, mask, p.positions))
		})
	})
	return x
}

// subsample is a convolution over time and frequency, then depthwise and pointwise pairs, each of which halves both.
func (p *parakeet) subsample(x value, mel int64) value {
	time, bins, channels, taps := mel, p.Bins, dim{"channels", p.Channels}, dim{"taps", p.SubTaps * p.SubTaps}
	x = p.same(x)
	for i := range bits.Len(p.Factor) - 1 {
		time, bins = p.halved(time), p.halved(bins)
		s := of(p.batch, channels, dim{"time", time}, dim{"bins", bins})
		x = p.then(x, p.maskedInPlace(p.convolution("subsampling convolution", x, s, of(channels, taps), true), nil))
		if i > 0 {
			x = p.then(x, p.maskedInPlace(p.convolution("pointwise convolution", x, s, of(channels, dim{"in", p.Channels}), true), nil))
		}
		x = p.then(x, p.fromResult("relu", x))
	}
	p.frames = dim{"frames", time}
	x.shape = of(p.batch, p.frames, dim{"channels × bins", p.Channels * bins})
	x = p.then(x, p.cloned("subsampled, contiguous", x))
	return p.then(x, p.linear("subsampling projection", x, p.hidden, true))
}

// halved is the length after one strided convolution.
func (p *parakeet) halved(n int64) int64 { return (n+2*((p.SubTaps-1)/2)-p.SubTaps)/p.SubStep + 1 }

// layer is a conformer block; the results of its parts stay variables until it returns.
func (p *parakeet) layer(x value) value {
	rows := of(p.batch, p.frames)
	y := p.halfStep("first", x, false)
	normed := p.norm("attention layer norm", y, rows, p.hidden)
	a := p.attention(normed)
	y = p.then(y, p.sum(y, a))
	n := p.norm("convolution layer norm", y, rows, p.hidden)
	c := p.then(n, p.convolutionModule(n))
	y = p.then(y, p.sum(y, c))
	p.hold(normed, a, c)
	y = p.then(y, p.halfStep("second", y, true))
	return p.then(y, p.norm("final layer norm", y, rows, p.hidden))
}

// halfStep is x + feed-forward(norm(x)) / 2.
func (p *parakeet) halfStep(which string, x value, keep bool) value {
	normed := p.norm(which+" layer norm", x, of(p.batch, p.frames), p.hidden)
	y := p.then(normed, p.feedForward(normed))
	half := p.scaled(which+" feed-forward, halved", y, y.shape)
	sum := p.then(half, p.sum(x, half))
	if keep {
		p.hold(y)
	} else {
		p.drop(y)
	}
	return sum
}

func (p *parakeet) feedForward(x value) value {
	y := p.linear("feed-forward inner", x, dim{"inner", p.Inner}, p.AttentionBias)
	y = p.then(y, p.pointwise("silu", y))
	y = p.then(y, p.dropout(y, p.Activation))
	return p.then(y, p.linear("feed-forward output", y, p.hidden, p.AttentionBias))
}

// attention adds learned vectors to the queries, in float32, and multiplies one sum with the relative positions.
func (p *parakeet) attention(x value) value {
	q, k, v := p.linear("queries", x, p.hidden, p.AttentionBias), p.linear("keys", x, p.hidden, p.AttentionBias), p.linear("values", x, p.hidden, p.AttentionBias)
	content, position := p.biased(q), p.biased(q)
	relative := p.linear("relative keys", p.positions, p.hidden, false)
	bias := p.positionBias(position, relative)
	h := heads{n: p.heads, size: p.size, queries: p.frames, keys: dim{"frames", p.frames.n}, dropout: p.Attention}
	narrow := p.toLower(content)
	y := p.attend(h, narrow, k, v, bias)
	out := p.linear("attention projection", y, p.hidden, p.AttentionBias)
	p.drop(narrow, y, q, k, v, content, position, relative, bias)
	return out
}

// biased adds a learned vector per head.
func (p *parakeet) biased(q value) value {
	y := p.fresh("biased queries", q.shape, float32s, "")
	n := p.graph("biased queries", &y, &q)
	p.pass(n, q, float32s)
	p.leaf(n, of(p.heads, p.size))
	return y
}

// positionBias multiplies, shifts rows against each other by padding, and scales.
func (p *parakeet) positionBias(q, relative value) value {
	twice := relative.shape[1]
	left := p.toLower(q)
	left = p.then(left, p.cloned("queries by heads", left))
	right := p.cloned("relative keys by heads", relative)
	y := p.matmul("relative scores", left, right, of(p.batch, p.heads, p.frames, twice))
	p.drop(left, right)
	y = p.then(y, p.scaled("shifted scores", y, of(p.batch, p.heads, p.frames, dim{"2 frames", twice.n + 1})))
	y = p.then(y, p.scaled("position bias", y, of(p.batch, p.heads, p.frames, dim{"frames", p.frames.n})))
	return p.maskedInPlace(y, nil)
}

func (p *parakeet) convolutionModule(x value) value {
	s, double, one := of(p.batch, p.hidden, p.frames), p.hidden.times("2 hidden", 2), dim{"taps", 1}
	x.shape = s
	y := p.convolution("pointwise convolution", x, of(p.batch, double, p.frames), of(double, p.hidden, one), p.ConvBias)
	y = p.then(y, p.gated(y, s))
	y = p.then(y, p.scaled("padding filled", y, s))
	y = p.then(y, p.convolution("depthwise convolution", y, s, of(p.hidden, dim{"taps", p.Taps}), p.ConvBias))
	y = p.then(y, p.batchNorm("batch norm", y, p.hidden))
	y = p.then(y, p.pointwise("silu", y))
	y = p.then(y, p.convolution("pointwise convolution", y, s, of(p.hidden, p.hidden, one), p.ConvBias))
	y.shape = of(p.batch, p.frames, p.hidden)
	return y
}
