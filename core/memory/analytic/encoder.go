package analytic

// speechConfig is what memory depends on in the config of wav2vec2 and its descendants, with the class defaults of
// transformers. core/model has checked the sizes before.
type speechConfig struct {
	Hidden      int64   `json:"hidden_size"`
	Layers      int     `json:"num_hidden_layers"`
	Heads       int64   `json:"num_attention_heads"`
	Inner       int64   `json:"intermediate_size"`
	Vocabulary  int64   `json:"vocab_size"`
	ConvDim     []int64 `json:"conv_dim"`
	ConvKernel  []int64 `json:"conv_kernel"`
	ConvStride  []int64 `json:"conv_stride"`
	ConvBias    bool    `json:"conv_bias"`
	ConvNorm    string  `json:"feat_extract_norm"`
	Positions   int64   `json:"num_conv_pos_embeddings"`
	PositionTap int64   `json:"conv_pos_kernel_size"` // data2vec: taps of each of its positional convolutions
	Groups      int64   `json:"num_conv_pos_embedding_groups"`
	PositionBN  bool    `json:"conv_pos_batch_norm"`
	Stable      bool    `json:"do_stable_layer_norm"`
	ProjectNorm bool    `json:"feat_proj_layer_norm"`
	Language    int64   `json:"adapter_attn_dim"`
	Adapter     bool    `json:"add_adapter"`
	AdapterTaps int64   `json:"adapter_kernel_size"`
	AdapterStep int64   `json:"adapter_stride"`
	AdapterN    int     `json:"num_adapter_layers"`
	AdapterSize int64   `json:"output_hidden_size"`
	Buckets     int64   `json:"num_buckets"` // WavLM: rows of the table of relative positions
	MaskTime    float64 `json:"mask_time_prob"`
	SpecAugment bool    `json:"apply_spec_augment"`

	HiddenDropout     float64 `json:"hidden_dropout"`
	ActivationDropout float64 `json:"activation_dropout"`
	AttentionDropout  float64 `json:"attention_dropout"`
	ProjectDropout    float64 `json:"feat_proj_dropout"`
	FinalDropout      float64 `json:"final_dropout"`
}

func speechDefaults() speechConfig {
	return speechConfig{Hidden: 768, Layers: 12, Heads: 12, Inner: 3072, Vocabulary: 32,
		ConvDim: []int64{512, 512, 512, 512, 512, 512, 512}, ConvKernel: []int64{10, 3, 3, 3, 3, 2, 2}, ConvStride: []int64{5, 2, 2, 2, 2, 2, 2},
		ConvNorm: "group", Positions: 128, Groups: 16, ProjectNorm: true, AdapterTaps: 3, AdapterStep: 2, AdapterN: 3, Buckets: 320,
		MaskTime: 0.05, SpecAugment: true,
		HiddenDropout: 0.1, ActivationDropout: 0.1, AttentionDropout: 0.1, FinalDropout: 0.1}
}

// speechEncoder plays wav2vec2, HuBERT, UniSpeech(-SAT), data2vec-audio and WavLM.
// transformers 5.23, models/wav2vec2/modeling_wav2vec2.py; the others are copies of it with the differences noted.
type speechEncoder struct {
	speechConfig
	*tape
	kind   string // model_type
	shape  Shape
	freeze bool

	samples                                       int64
	extracted                                     value // normed features
	bias                                          value // WavLM's position bias
	batch, frames, hidden, inner, heads, headSize dim
}

func (e *speechEncoder) sized(frames int64) {
	e.batch, e.frames = dim{"batch", e.shape.Batch}, dim{"frames", frames}
	e.hidden, e.inner = dim{"hidden", e.Hidden}, dim{"inner", e.Inner}
	e.heads, e.headSize = dim{"heads", e.Heads}, dim{"head size", e.Hidden / e.Heads}
}

// frameCounts gives the length after each convolution: floor((n - kernel) / stride) + 1.
func (c *speechConfig) frameCounts(samples int64) []int64 {
	out := make([]int64, len(c.ConvDim))
	for i := range out {
		samples = max(0, (samples-c.ConvKernel[i])/c.ConvStride[i]+1)
		if samples == 0 {
			break
		}
		out[i] = samples
	}
	return out
}

// masked tells whether the family's processor gives an attention mask: those whose features are not normalized over
// time do (Wav2Vec2FeatureExtractor, return_attention_mask).
func (e *speechEncoder) masked() bool {
	return e.ConvNorm == "layer" || e.kind == "data2vec-audio" || e.kind == "wav2vec2-bert"
}

// forward is ForCTC.forward.
func (e *speechEncoder) forward() value {
	input := e.inputs()
	var x value
	e.call("model", func() {
		x = e.frontEnd(input)
		x = e.then(x, e.projection(x))
		x = e.then(x, e.encoder(x))
		if e.Adapter && e.kind != "hubert" {
			x = e.then(x, e.lengthAdapter(x))
		}
	})
	if e.kind != "hubert" {
		e.hold(e.extracted) // given back as extract_features
	}
	var loss value
	e.at("head", func() { loss = e.ctcHead(x) })
	return loss
}

// inputs are the batch: waveforms, labels, and the mask where the processor gives one.
func (e *speechEncoder) inputs() value {
	e.place = "inputs"
	n := dim{"samples", e.samples}
	waves := value{at: e.birth("waveforms", of(e.batch, n), float32s, inputs, "data collator"), node: none, shape: of(e.batch, n)}
	e.birth("labels", of(e.batch, dim{"labels", e.shape.Labels}), int64s, inputs, "data collator")
	if e.masked() {
		e.birth("attention mask", of(e.batch, n), int32s, inputs, "data collator")
	}
	waves.grad = !e.freeze // Wav2Vec2FeatureEncoder asks for it, for the sake of checkpointing
	return waves
}

func (e *speechEncoder) frontEnd(waves value) value {
	e.frozen = e.freeze
	x := e.same(waves)
	in := dim{"channel", 1}
	for i, frames := range e.frameCounts(waves.shape[1].n) {
		out := dim{"channels", e.ConvDim[i]}
		s, weight := of(e.batch, out, dim{"conv frames", frames}), of(out, in, dim{"taps", e.ConvKernel[i]})
		e.at("feature encoder", func() {
			x = e.then(x, e.checkpointed(x, func(x value) value { return e.convLayer(i, x, s, weight) }))
		})
		in = out
	}
	e.frozen = false
	return x
}

// convLayer is one of the three kinds of convolutional layers: with a layer norm, with a group norm, without norm.
func (e *speechEncoder) convLayer(i int, x value, s, weight shape) value {
	y := e.convolution("convolution", x, s, weight, e.ConvBias)
	switch {
	case e.ConvNorm == "layer" || e.kind == "data2vec-audio":
		y = e.then(y, e.norm("layer norm", y, of(s[0], s[2]), s[1]))
	case i == 0:
		y = e.then(y, e.norm("group norm", y, of(s[0], s[1]), s[1]))
	}
	return e.then(y, e.pointwise("gelu", y))
}

// projection is the norm, the linear layer to the hidden size, and SpecAugment.
func (e *speechEncoder) projection(x value) (y value) {
	e.at("feature projection", func() {
		in := e.same(x)
		if e.kind != "hubert" || e.ProjectNorm {
			in = e.then(in, e.norm("layer norm", x, of(e.batch, e.frames), x.shape[1]))
		}
		in.shape = of(e.batch, e.frames, x.shape[1])
		y = e.linear("projection", in, e.hidden, true)
		y = e.then(y, e.dropout(y, e.ProjectDropout))
		e.extracted = in
		if e.kind == "hubert" { // only its input stays, as a variable
			e.drop(in)
			e.hold(e.same(x))
		}
		if e.SpecAugment && e.MaskTime > 0 {
			y = e.maskedInPlace(y, nil)
			e.maskVector(y)
		}
	})
	return y
}

// maskVector is the gradient of the learned vector that SpecAugment writes.
func (e *speechEncoder) maskVector(x value) {
	if x.node != none {
		e.leaf(&e.nodes[x.node], of(e.hidden))
	}
}

// maskedInPlace writes into a value where a mask says so; backward needs the mask, and a gradient of its own.
func (t *tape) maskedInPlace(x value, mask *value) value {
	y := x
	n := t.graph("masking", &y, &x)
	if mask != nil {
		t.save(n, *mask)
	}
	t.back(n, x)
	return y
}

func (e *speechEncoder) encoder(x value) value {
	x = e.same(x)
	e.call("encoder", func() {
		var mask *value
		if e.masked() {
			x = e.zeroPadding(x)
			mask = e.attentionMask()
		}
		x = e.positioned(x)
		e.at("encoder layers", func() {
			e.repeat(e.Layers, func(i int) {
				layer := func(x value) value { return e.layer(i, x, mask) }
				x = e.then(x, e.checkpointed(x, layer, e.shared(i, mask)...))
			})
		})
		e.drop(e.bias)
		if e.Stable {
			x = e.then(x, e.norm("layer norm", x, of(e.batch, e.frames), e.hidden))
		}
	})
	return x
}

// shared is what layer i is given beside the hidden states.
func (e *speechEncoder) shared(i int, mask *value) (out []value) {
	if mask != nil {
		out = append(out, *mask)
	}
	if e.kind == "wavlm" && i > 0 {
		out = append(out, e.bias)
	}
	return out
}

// positioned adds the positional convolution.
func (e *speechEncoder) positioned(x value) value {
	positions := e.positions(x)
	x = e.then(x, e.sum(x, positions))
	e.hold(positions)
	if !e.Stable {
		x = e.then(x, e.norm("layer norm", x, of(e.batch, e.frames), e.hidden))
	}
	return e.then(x, e.dropout(x, e.HiddenDropout))
}

// zeroPadding sets padded frames to zero: a mask as wide as the hidden states, and its inverse, which backward needs.
func (e *speechEncoder) zeroPadding(x value) value {
	s := of(e.batch, e.frames, e.hidden)
	wide := e.fresh("padding mask", s, bools, "expand_attention_mask")
	inverse := e.fresh("inverted padding mask", s, bools, saveInput)
	x = e.maskedInPlace(x, &inverse)
	e.drop(inverse)
	e.hold(wide)
	return x
}

// attentionMask is (batch, 1, frames, frames), which all layers share; nil when nothing is padded.
// transformers/masking_utils.py, create_bidirectional_mask.
func (e *speechEncoder) attentionMask() *value {
	if !e.padded || e.kind == "wavlm" {
		return nil
	}
	d := bools
	if e.eager {
		d = e.lower()
	}
	mask := e.fresh("attention mask", of(e.batch, e.frames, dim{"frames", e.frames.n}), d, "create_bidirectional_mask")
	e.hold(mask)
	return &mask
}

// positions is the positional convolution: one with many taps under weight norm, or data2vec's stack.
func (e *speechEncoder) positions(x value) value {
	if e.kind == "data2vec-audio" {
		return e.positionStack(x)
	}
	s := of(e.batch, e.hidden, dim{"frames + 1", e.frames.n + 1 - e.Positions%2})
	weight := of(e.hidden, dim{"group", e.Hidden / e.Groups}, dim{"taps", e.Positions})
	w := e.normedWeight(weight)
	b := e.parameter(of(e.hidden), e.lower(), true)
	narrow := e.toLower(w)
	e.drop(w)
	y := e.convolve("positional convolution", x, narrow, b, true, s)
	if e.Positions%2 == 0 {
		y = e.trimmed(y)
	}
	return e.then(y, e.pointwise("gelu", y))
}

// normedWeight is the weight of a weight-normed convolution, made anew in each forward pass.
func (e *speechEncoder) normedWeight(s shape) value {
	w := e.fresh("weight norm", s, float32s, "torch._weight_norm_interface")
	n := e.graph("weight norm", &w, e.weights())
	e.leaf(n, s)
	e.leaf(n, of(s[2]))
	return w
}

// trimmed cuts the last frame off, a view; backward pads the gradient.
func (e *speechEncoder) trimmed(x value) value {
	y := e.same(x)
	y.shape = of(e.batch, e.hidden, e.frames)
	n := e.graph("trim", &y, &x)
	e.back(n, x)
	e.drop(x)
	return y
}

func (e *speechEncoder) positionStack(x value) value {
	s, x := of(e.batch, e.hidden, dim{"frames", e.frames.n}), e.same(x)
	weight := of(e.hidden, dim{"group", e.Hidden / e.Groups}, dim{"taps", e.PositionTap})
	for range e.Positions {
		y := e.convolution("positional convolution", x, s, weight, true)
		e.frozen = true // a norm without weights
		y = e.then(y, e.norm("layer norm", y, of(e.batch, e.frames), e.hidden))
		e.frozen = false
		x = e.then(x, e.then(y, e.pointwise("gelu", y)))
	}
	return x
}

// layer is one transformer layer; with do_stable_layer_norm the norms stand before attention and feed-forward.
func (e *speechEncoder) layer(i int, x value, mask *value) (y value) {
	e.call(e.place, func() {
		if e.Stable {
			y = e.stableLayer(i, x, mask)
		} else {
			y = e.plainLayer(i, x, mask)
		}
	})
	return y
}

func (e *speechEncoder) plainLayer(i int, x value, mask *value) value {
	rows := of(e.batch, e.frames)
	y := e.attention(i, x, mask)
	y = e.then(y, e.dropout(y, e.HiddenDropout))
	y = e.then(y, e.sum(x, y))
	y = e.then(y, e.norm("layer norm", y, rows, e.hidden))
	f := e.feedForward(y)
	y = e.then(y, e.sum(y, f))
	e.drop(f)
	return e.then(y, e.norm("final layer norm", y, rows, e.hidden))
}

func (e *speechEncoder) stableLayer(i int, x value, mask *value) value {
	rows := of(e.batch, e.frames)
	normed := e.norm("layer norm", x, rows, e.hidden)
	y := e.then(normed, e.attention(i, normed, mask))
	y = e.then(y, e.dropout(y, e.HiddenDropout))
	y = e.then(y, e.sum(x, y))
	normed = e.norm("final layer norm", y, rows, e.hidden)
	f := e.then(normed, e.feedForward(normed))
	y = e.then(y, e.sum(y, f))
	e.drop(f)
	if e.Language > 0 {
		a := e.languageAdapter(y)
		y = e.then(y, e.sum(y, a))
		e.drop(a)
	}
	return y
}

// languageAdapter is the small network of MMS: Wav2Vec2AttnAdapterLayer.
func (e *speechEncoder) languageAdapter(x value) value {
	y := e.norm("adapter norm", x, of(e.batch, e.frames), e.hidden)
	y = e.then(y, e.linear("adapter linear", y, dim{"adapter", e.Language}, true))
	y = e.then(y, e.fromResult("relu", y))
	return e.then(y, e.linear("adapter linear", y, e.hidden, true))
}

func (e *speechEncoder) attention(i int, x value, mask *value) value {
	if e.kind == "wavlm" {
		return e.wavlmAttention(i, x)
	}
	q := e.linear("queries", x, e.hidden, true)
	k := e.linear("keys", x, e.hidden, true)
	v := e.linear("values", x, e.hidden, true)
	h := heads{n: e.heads, size: e.headSize, queries: e.frames, keys: dim{"frames", e.frames.n}, dropout: e.AttentionDropout}
	var masks []value
	if mask != nil {
		masks = append(masks, *mask)
	}
	y := e.attend(h, q, k, v, masks...)
	out := e.linear("attention projection", y, e.hidden, true)
	e.drop(q, k, v, y)
	return out
}

func (e *speechEncoder) feedForward(x value) value {
	y := e.linear("feed-forward inner", x, e.inner, true)
	y = e.then(y, e.pointwise("gelu", y))
	y = e.then(y, e.dropout(y, e.ActivationDropout))
	y = e.then(y, e.linear("feed-forward output", y, e.hidden, true))
	return e.then(y, e.dropout(y, e.HiddenDropout))
}

// lengthAdapter is the strided convolutions with gates after the encoder (add_adapter).
func (e *speechEncoder) lengthAdapter(x value) value {
	x = e.same(x)
	e.at("length adapter", func() {
		size := e.hidden
		if e.AdapterSize > 0 && e.AdapterSize != e.Hidden {
			size = dim{"adapter", e.AdapterSize}
			x = e.then(x, e.linear("projection", x, size, true))
			x = e.then(x, e.norm("layer norm", x, of(e.batch, e.frames), size))
		}
		for range e.AdapterN {
			e.frames.n = (e.frames.n+2-e.AdapterTaps)/e.AdapterStep + 1
			double := size.times("2 "+size.name, 2)
			y := e.convolution("convolution", x, of(e.batch, double, e.frames), of(double, size, dim{"taps", e.AdapterTaps}), true)
			x = e.then(x, e.then(y, e.gated(y, of(e.batch, size, e.frames))))
		}
		x.shape = of(e.batch, e.frames, size)
	})
	return x
}

// gated is a gated linear unit over half the channels: it saves its input.
func (t *tape) gated(x value, s shape) value {
	y := t.fresh("gate", s, x.kind, saveInput)
	n := t.graph("gate", &y, &x)
	t.save(n, x)
	t.back(n, x)
	return y
}

// ctcHead is dropout, the linear layer to the vocabulary, and the loss.
func (e *speechEncoder) ctcHead(x value) value {
	y := e.dropout(x, e.FinalDropout)
	logits := e.linear("logits", y, dim{"vocabulary", e.Vocabulary}, true)
	if !e.masked() { // the model asks a mask for the lengths, and makes one
		e.hold(e.fresh("mask of ones", of(e.batch, dim{"samples", e.samples}), int64s, "ForCTC.forward"))
	}
	loss := e.ctcLoss(logits, e.batch, e.frames, dim{"labels", e.shape.Labels})
	e.drop(y)
	e.hold(x)
	e.logits = logits
	return loss
}
