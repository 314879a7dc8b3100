package model

// speechEncoder is what wav2vec2 and its descendants share: a convolutional front end on the waveform, a projection,
// convolutional positions, transformer layers, and heads for fine-tuning. Families differ in the parts that are functions.
type speechEncoder struct {
	*fields
	hidden, layers, heads, inner int
	vocabulary                   int // 0 when the config does not set it
	classifier                   int // width of the projection before a classifier

	frontEnd   func(module)          // nil when the input is log-mel features
	projection func(module)          // feature_projection
	maskVector bool                  // the learned vector of SpecAugment
	encoder    func(module)          // all below "encoder"
	attention  func(m module, i int) // of transformer layer i
	adapter    func(module)          // beside the encoder; nil where the family has none

	depthwiseNorm string // conformers only: the norm after the depthwise convolution
}

// readSpeechEncoder reads the fields that all of them have, with the class defaults of Wav2Vec2Config (transformers
// 5.23; 4.46 agrees), and puts in wav2vec2's parts.
func readSpeechEncoder(f *fields) *speechEncoder {
	e := &speechEncoder{fields: f, hidden: f.size("hidden_size", 768), layers: f.layers("num_hidden_layers", 12),
		heads: f.size("num_attention_heads", 12), inner: f.size("intermediate_size", 3072)}
	e.vocabulary, e.classifier, e.maskVector = f.optionalSize("vocab_size", 32), f.size("classifier_proj_size", 256), f.masks()
	e.wavParts()
	return e
}

// wavParts puts in wav2vec2's own parts; a family then replaces those that it has otherwise.
func (e *speechEncoder) wavParts() {
	e.require(e.hidden%e.heads == 0, "hidden_size %d is not a multiple of num_attention_heads %d", e.hidden, e.heads)
	e.frontEnd, e.projection, e.attention = e.waveform, e.normedProjection, e.plainAttention
	e.encoder = func(m module) {
		e.weightNormPositions(m.child("pos_conv_embed"))
		m.norm("layer_norm", e.hidden)
		m.transformer("layers", e.layers, e.transformerLayer)
	}
}

// masks tells whether the model learns a vector for masked frames: it does when either masking probability is positive.
func (f *fields) masks() bool {
	time, feature := f.number("mask_time_prob", 0.05), f.number("mask_feature_prob", 0)
	return time > 0 || feature > 0
}

var defaultConvDim = []int{512, 512, 512, 512, 512, 512, 512}

// waveform is the feature encoder. With "group" only its first convolution is normalised, with "layer" every one is.
func (e *speechEncoder) waveform(m module) {
	norm := e.text("feat_extract_norm", "group")
	e.require(norm == "group" || norm == "layer", "feat_extract_norm is %q; it must be group or layer", norm)
	e.convolutions(m, norm == "layer")
}

func (e *speechEncoder) convolutions(m module, normEvery bool) {
	dim, kernel := e.sizes("conv_dim", defaultConvDim), e.sizes("conv_kernel", []int{10, 3, 3, 3, 3, 2, 2})
	stride := e.sizes("conv_stride", []int{5, 2, 2, 2, 2, 2, 2})
	if len(dim) != len(kernel) || len(dim) != len(stride) {
		e.require(false, "conv_dim, conv_kernel and conv_stride have %d, %d and %d entries; they must be equally long", len(dim), len(kernel), len(stride))
		return
	}
	in, bias := 1, e.flag("conv_bias", false) // one channel: the waveform
	for i, out := range dim {
		layer := m.child("conv_layers").at(i)
		layer.conv1d("conv", in, out, kernel[i], 1, bias)
		if normEvery || i == 0 {
			layer.norm("layer_norm", out)
		}
		in = out
	}
}

func (e *speechEncoder) lastConv() int {
	dim := e.sizes("conv_dim", defaultConvDim)
	return dim[len(dim)-1]
}

func (e *speechEncoder) normedProjection(m module) {
	m.norm("layer_norm", e.lastConv())
	m.linear("projection", e.lastConv(), e.hidden, true)
}

// positionGroups reads the groups of the positional convolution, which must divide hidden_size.
func (e *speechEncoder) positionGroups() int {
	groups := e.size("num_conv_pos_embedding_groups", 16)
	e.require(e.hidden%groups == 0, "hidden_size %d is not a multiple of num_conv_pos_embedding_groups %d", e.hidden, groups)
	return groups
}

// weightNormPositions is the positional convolution under weight_norm(dim=2): a magnitude per tap, a direction, a bias.
func (e *speechEncoder) weightNormPositions(m module) {
	groups, taps := e.positionGroups(), e.size("num_conv_pos_embeddings", 128)
	conv := m.child("conv")
	conv.parameter("bias", e.hidden)
	conv.parameter("parametrizations.weight.original0", 1, 1, taps)
	conv.parameter("parametrizations.weight.original1", e.hidden, e.hidden/groups, taps)
}

func (e *speechEncoder) plainAttention(m module, _ int) {
	m.projections(e.hidden, "k_proj", "v_proj", "q_proj", "out_proj")
}

func (e *speechEncoder) transformerLayer(m module, i int) {
	e.attention(m.child("attention"), i)
	m.norm("layer_norm", e.hidden)
	m.feedForward("feed_forward", e.hidden, e.inner)
	m.norm("final_layer_norm", e.hidden)
}

// languageAdapters adds to every layer the small network that MMS trains per language (adapter_attn_dim); transformers
// has it only in the layer with do_stable_layer_norm.
func (e *speechEncoder) languageAdapters() {
	if !e.given("adapter_attn_dim") || !e.flag("do_stable_layer_norm", false) {
		return
	}
	narrow, encoder := e.size("adapter_attn_dim", 16), e.encoder
	e.encoder = func(m module) {
		encoder(m)
		for i := range e.layers {
			adapter := m.child("layers").at(i).child("adapter_layer")
			adapter.norm("norm", e.hidden)
			adapter.linear("linear_1", e.hidden, narrow, true)
			adapter.linear("linear_2", narrow, e.hidden, true)
		}
	}
}

// lengthAdapter is the strided convolution stack after the encoder (add_adapter).
func (e *speechEncoder) lengthAdapter(m module) {
	out := e.adapterSize()
	e.adapterProjection(m.child("adapter"))
	for i := range e.fields.layers("num_adapter_layers", 3) {
		m.child("adapter.layers").at(i).conv1d("conv", out, 2*out, e.size("adapter_kernel_size", 3), 1, true)
	}
}

func (e *speechEncoder) adapterProjection(m module) {
	if out := e.adapterSize(); out != e.hidden {
		m.linear("proj", e.hidden, out, true)
		m.norm("proj_layer_norm", out)
	}
}

// adapterSize is output_hidden_size, which null, zero or absence sets to hidden_size.
func (e *speechEncoder) adapterSize() int {
	if !e.given("output_hidden_size") || e.whole("output_hidden_size", 0, 0, maxSize) == 0 {
		return e.hidden
	}
	return e.size("output_hidden_size", e.hidden)
}

func (e *speechEncoder) hasAdapter() bool { return e.flag("add_adapter", false) }

// base declares the bare model.
func (e *speechEncoder) base(m module) {
	if e.maskVector {
		m.parameter("masked_spec_embed", e.hidden)
	}
	if e.frontEnd != nil {
		e.frontEnd(m.frontEnd("feature_extractor"))
	}
	e.projection(m.child("feature_projection"))
	e.encoder(m.child("encoder"))
	if e.adapter != nil && e.hasAdapter() {
		e.adapter(m)
	}
}
