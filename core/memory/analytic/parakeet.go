package analytic

import "math/bits"

// parakeetConfig is what memory depends on in ParakeetCTCConfig, with its defaults (transformers 5.23).
type parakeetConfig struct {
	Vocabulary int64           `json:"vocab_size"`
	Encoder    parakeetEncoder `json:"encoder_config"`
}

type parakeetEncoder struct {
	Hidden        int64     `json:"hidden_size"`
	Layers        int       `json:"num_hidden_layers"`
	Heads         int64     `json:"num_attention_heads"`
	Inner         int64     `json:"intermediate_size"`
	Bins          int64     `json:"num_mel_bins"`
	Taps          int64     `json:"conv_kernel_size"`
	Factor        uint      `json:"subsampling_factor"`
	Channels      int64     `json:"subsampling_conv_channels"`
	SubTaps       int64     `json:"subsampling_conv_kernel_size"`
	SubStep       int64     `json:"subsampling_conv_stride"`
	AttentionBias bool      `json:"attention_bias"`
	ConvBias      bool      `json:"convolution_bias"`
	Dropout       float64   `json:"dropout"`
	Activation    float64   `json:"activation_dropout"`
	Attention     float64   `json:"attention_dropout"`
	LayerDrop     layerDrop `json:"layerdrop"`
}

func readParakeet(m *Model) error {
	c := parakeetConfig{Vocabulary: 1025, Encoder: parakeetEncoder{Hidden: 1024, Layers: 24, Heads: 8, Inner: 4096, Bins: 80,
		Taps: 9, Factor: 8, Channels: 256, SubTaps: 3, SubStep: 2, AttentionBias: true, ConvBias: true,
		Dropout: 0.1, Activation: 0.1, Attention: 0.1, LayerDrop: 0.1}}
	m.play = func(t *tracker, s Shape) (value, error) {
		p := &parakeet{parakeetConfig: c, parakeetEncoder: c.Encoder, tracker: t, shape: s, batch: dim{"batch", s.Batch}}
		p.hidden, p.heads, p.size = dim{"hidden", p.Hidden}, dim{"heads", p.Heads}, dim{"head size", p.Hidden / p.Heads}
		p.mel = ceil(s.Seconds * melFrameRate)
		p.frames = dim{"frames", p.shortened(p.mel)}
		if p.frames.n < 1 {
			return value{}, tooShort(s)
		}
		return p.forward(), nil
	}
	return m.decode(&c)
}

// parakeet plays ParakeetForCTC. transformers 5.23, models/parakeet/modeling_parakeet.py.
type parakeet struct {
	parakeetConfig
	parakeetEncoder
	*tracker
	shape                              Shape
	mel                                int64 // frames of the features
	batch, frames, hidden, heads, size dim
	positions                          value
}

func (p *parakeet) rows() shape { return of(p.batch, p.frames) }

func (p *parakeet) forward() value {
	p.module = "inputs"
	mel, labels := dim{"mel frames", p.mel}, dim{"labels", p.shape.Labels}
	features := p.input("log-mel features", of(p.batch, mel, dim{"mel bins", p.Bins}), float32s, "ParakeetFeatureExtractor")
	p.input("labels", of(p.batch, labels), int64s, "data collator")
	p.input("attention mask", of(p.batch, mel), int32s, "data collator")
	var x, loss value
	p.call("encoder", func() { x = p.encode(features) })
	p.at("head", func() {
		vocabulary := dim{"vocabulary", p.Vocabulary}
		p.unfrozen(func() {
			p.logits = p.convolution("logits", x.as(of(p.batch, p.hidden, p.frames)).transpose(), of(p.batch, vocabulary, p.frames), true, vocabulary, p.hidden, dim{"taps", 1})
		})
		p.transposedGradient(p.logits, true)
		p.hold(x)
		loss = p.ctcLoss(p.logits, p.batch, p.frames, labels)
	})
	return loss
}

func (p *parakeet) encode(features value) value {
	x := p.subsample(features)
	x = p.then(x, p.scaled("scaled input", x, x.shape))
	p.positions = p.fresh("relative positions", of(p.batch, dim{"2 frames - 1", 2*p.frames.n - 1}, p.hidden), x.kind, "ParakeetEncoderRelPositionalEncoding")
	x = p.then(x, p.dropout(x, p.Dropout))
	mask := p.fresh("attention mask", of(p.batch, p.frames, p.frames), bools, "")
	p.hold(p.positions, mask)
	layer := func(x value) (y value) {
		p.call(p.module, func() { y = p.layer(x) })
		return y
	}
	p.at("encoder layers", func() {
		p.repeat(p.Layers, p.LayerDrop, func(int) { x = p.then(x, p.checkpointed(x, nil, layer, mask, p.positions)) })
	})
	p.transposedGradient(x, false) // the head is a convolution
	return x
}

// stages is how often subsampling halves time and frequency.
func (c *parakeetEncoder) stages() int { return bits.Len(c.Factor) - 1 }

// shortened is a length after all strided convolutions.
func (c *parakeetEncoder) shortened(n int64) int64 {
	for range c.stages() {
		n = c.halved(n)
	}
	return n
}

// halved is the length after one of them; zero where nothing is left.
func (c *parakeetEncoder) halved(n int64) int64 {
	padded := n + 2*((c.SubTaps-1)/2)
	if padded < c.SubTaps {
		return 0
	}
	return (padded-c.SubTaps)/c.SubStep + 1
}

// subsample is a convolution over time and frequency, then depthwise and pointwise pairs, with rectifiers.
func (p *parakeet) subsample(x value) value {
	time, bins, channels, taps := p.mel, p.Bins, dim{"channels", p.Channels}, dim{"taps", p.SubTaps * p.SubTaps}
	x = p.same(x)
	groups := int64(1) // the first has one channel
	for i := range p.stages() {
		time, bins = p.halved(time), p.halved(bins)
		s := of(p.batch, channels, dim{"time", time}, dim{"bins", bins})
		x = p.then(x, p.written(p.grouped("subsampling convolution", x, s, groups, true, channels, taps)))
		groups = p.Channels
		if i > 0 {
			x = p.then(x, p.written(p.convolution("pointwise convolution", x, s, true, channels, dim{"in", p.Channels})))
		}
		x = p.then(x, p.fromResult("relu", x))
	}
	x = x.as(of(p.batch, p.frames, dim{"channels × bins", p.Channels * bins}))
	x = p.then(x, p.cloned("subsampled, contiguous", x))
	return p.then(x, p.linear("subsampling projection", x, p.hidden, true))
}
