package analytic

// Families by model_type, where their code differs.
const (
	wav2vec2 = "wav2vec2"
	hubert   = "hubert"
	wavlm    = "wavlm"
	data2vec = "data2vec-audio"
	bertKind = "wav2vec2-bert"
)

// speechEncoder plays wav2vec2, XLS-R, MMS, HuBERT, UniSpeech(-SAT), data2vec-audio and WavLM with a CTC head.
// transformers 5.23, models/wav2vec2/modeling_wav2vec2.py; the others are copies of it with the differences noted.
type speechEncoder struct {
	speechConfig
	*tracker
	kind   string // model_type
	freeze bool   // the feature encoder does not train
	shape  Shape

	samples                                       int64
	batch, frames, hidden, inner, heads, headSize dim
	extracted                                     value // normed features
	bias                                          value // WavLM's position bias
}

func newSpeechEncoder(m *Model, c speechConfig, t *tracker, s Shape) *speechEncoder {
	return &speechEncoder{speechConfig: c, tracker: t, kind: m.profile.Architecture, freeze: m.freeze, shape: s, bias: nothing,
		batch: dim{"batch", s.Batch}, hidden: dim{"hidden", c.Hidden}, inner: dim{"inner", c.Inner},
		heads: dim{"heads", c.Heads}, headSize: dim{"head size", c.Hidden / c.Heads}}
}

func (e *speechEncoder) sized(frames int64) { e.frames = dim{"frames", frames} }

// rows is a shape with one element for each frame, square one with one for each pair of frames.
func (e *speechEncoder) rows() shape   { return of(e.batch, e.frames) }
func (e *speechEncoder) square() shape { return of(e.batch, e.frames, e.frames) }

// masked tells whether the family's processor gives an attention mask: those whose features are not normalized over
// time do (Wav2Vec2FeatureExtractor, return_attention_mask).
func (e *speechEncoder) masked() bool {
	return e.ConvNorm == "layer" || e.kind == data2vec || e.kind == bertKind
}

// forward is ForCTC.forward.
func (e *speechEncoder) forward() value {
	waves := e.inputs()
	var x, loss value
	e.call("model", func() {
		x = e.frontEnd(waves)
		x = e.then(x, e.projection(x))
		x = e.then(x, e.encoder(x))
		if e.adapts() {
			e = e.clone()
			x = e.then(x, e.lengthAdapter(x))
		}
	})
	if e.kind != hubert {
		e.hold(e.extracted) // given back as extract_features
	}
	e.at("head", func() { loss = e.ctcHead(x) })
	return loss
}

// adapts tells whether the length adapter follows; HuBERT and UniSpeech do not know add_adapter.
func (e *speechEncoder) adapts() bool {
	return e.Adapter && (e.kind == wav2vec2 || e.kind == wavlm || e.kind == data2vec)
}

// clone is a copy whose lengths may change: layers that are played again in backward have those that they had.
func (e *speechEncoder) clone() *speechEncoder {
	c := *e
	return &c
}

// inputs are the batch: waveforms, labels, and the mask where the processor gives one.
func (e *speechEncoder) inputs() value {
	e.module = "inputs"
	s := of(e.batch, dim{"samples", e.samples})
	waves := e.input("waveforms", s, float32s, "data collator")
	e.input("labels", of(e.batch, dim{"labels", e.shape.Labels}), int64s, "data collator")
	if e.masked() {
		e.input("attention mask", s, int32s, "data collator")
	}
	waves.grad = !e.freeze && e.rank == 0 // Wav2Vec2FeatureEncoder asks for it, for the sake of checkpointing
	return waves
}

// frontEnd is the feature encoder: convolutions on the waveform.
func (e *speechEncoder) frontEnd(waves value) value {
	e.frozen = e.freeze
	x, in := e.same(waves), dim{"channel", 1}
	for i, frames := range e.frameCounts(e.samples) {
		out := dim{"channels", e.ConvDim[i]}
		s, weight := of(e.batch, out, dim{"conv frames", frames}), []dim{out, in, {"taps", e.ConvKernel[i]}}
		e.at("feature encoder", func() {
			x = e.then(x, e.checkpointed(x, nil, func(x value) value { return e.convLayer(i, x, s, weight) }))
		})
		in = out
	}
	e.frozen = false
	return x
}

// convLayer has one of three kinds: with a layer norm, with a group norm, without norm.
func (e *speechEncoder) convLayer(i int, x value, s shape, weight []dim) value {
	y := e.convolution("convolution", x, s, e.ConvBias, weight...)
	last := i == len(e.ConvDim)-1
	if e.ConvNorm == "layer" || e.kind == data2vec {
		return e.normedByTime(y, of(s[0], s[2]), s[1], e.ConvBias, last)
	}
	if last {
		e.transposedGradient(y, e.ConvBias)
	}
	if i == 0 {
		y = e.then(y, e.norm("group norm", y, of(s[0], s[1]), s[1]))
	}
	return e.then(y, e.pointwise("gelu", y))
}

// normedByTime is a layer norm of a convolution's result, which it looks at with time first, and a gelu. What follows the
// last one looks at it so too.
func (e *speechEncoder) normedByTime(y value, rows shape, size dim, bias, last bool) value {
	e.transposedGradient(y, bias)
	y = e.then(y, e.norm("layer norm", y.transpose(), rows, size).transpose())
	if !last {
		e.transposedGradient(y, false)
	}
	return e.then(y, e.pointwise("gelu", y))
}

// projection is the norm, the linear layer to the hidden size, and SpecAugment.
func (e *speechEncoder) projection(x value) (y value) {
	e.at("feature projection", func() {
		in := e.same(x)
		if e.kind != hubert || e.FeatNorm {
			in = e.then(in, e.norm("layer norm", x.transpose(), e.rows(), x.shape[1]))
		}
		y = e.linear("projection", in.as(of(e.batch, e.frames, x.shape[1])), e.hidden, true)
		y = e.augmented(e.then(y, e.dropout(y, e.ProjectDropout)))
		e.extracted = in
		if e.kind == hubert { // only its input stays, as a variable
			e.drop(in)
			e.hold(e.same(x))
		}
	})
	return y
}

// augmented writes a learned vector into random frames.
func (e *speechEncoder) augmented(x value) value {
	if !e.Augment || e.MaskTime <= 0 {
		return x
	}
	y := e.written(x)
	if y.node != none {
		n := &e.nodes[y.node]
		e.leaf(n, of(e.hidden))
		e.takesColumnSum(n, e.batch.n*e.frames.n, e.Hidden)
	}
	return y
}

// ctcHead is dropout, the linear layer to the vocabulary, and the loss.
func (e *speechEncoder) ctcHead(x value) value {
	y := e.dropout(x, e.FinalDropout)
	e.unfrozen(func() { e.logits = e.linear("logits", y, dim{"vocabulary", e.Vocabulary}, true) })
	if !e.masked() { // the lengths come from a mask, and the model makes one of ones
		e.hold(e.fresh("mask of ones", of(e.batch, dim{"samples", e.samples}), int64s, "ForCTC.forward"))
	}
	e.hold(x, y)
	return e.ctcLoss(e.logits, e.batch, e.frames, dim{"labels", e.shape.Labels})
}
