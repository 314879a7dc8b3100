package model

// conformerLayer is the block of wav2vec2-conformer and w2v-BERT: half feed-forward, attention, convolution, half
// feed-forward. https://arxiv.org/abs/2005.08100
func (e *speechEncoder) conformerLayer(m module, i int) {
	m.norm("ffn1_layer_norm", e.hidden)
	m.feedForward("ffn1", e.hidden, e.inner)
	m.norm("self_attn_layer_norm", e.hidden)
	e.attention(m.child("self_attn"), i)
	e.convolutionModule(m.child("conv_module"))
	m.norm("ffn2_layer_norm", e.hidden)
	m.feedForward("ffn2", e.hidden, e.inner)
	m.norm("final_layer_norm", e.hidden)
}

func (e *speechEncoder) convolutionModule(m module) {
	taps := e.size("conv_depthwise_kernel_size", 31)
	e.require(taps%2 == 1, "conv_depthwise_kernel_size is %d; it must be odd", taps)
	m.norm("layer_norm", e.hidden)
	m.conv1d("pointwise_conv1", e.hidden, 2*e.hidden, 1, 1, false)
	m.conv1d("depthwise_conv", e.hidden, e.hidden, taps, e.hidden, false)
	m.norm(e.depthwiseNorm, e.hidden)
	m.conv1d("pointwise_conv2", e.hidden, e.hidden, 1, 1, false)
}

// relativeAttention is the attention of both, with the parameters that its kind of positions needs. Rotary and absent
// positions have none.
func (e *speechEncoder) relativeAttention(m module, kind string) {
	m.projections(e.hidden, "linear_q", "linear_k", "linear_v", "linear_out")
	if kind == "relative" {
		m.linear("linear_pos", e.hidden, e.hidden, false)
		m.parameter("pos_bias_u", e.heads, e.hidden/e.heads)
		m.parameter("pos_bias_v", e.heads, e.hidden/e.heads)
	}
}

// wav2vec2Conformer keeps wav2vec2's front end and convolutional positions beside the conformer layers.
func wav2vec2Conformer(f *fields) architecture {
	e := readSpeechEncoder(f)
	e.vocabulary = f.optionalSize("vocab_size", 0) // no default in this class
	e.adapter, e.depthwiseNorm = e.lengthAdapter, "batch_norm"
	kind := e.text("position_embeddings_type", "relative")
	e.attention = func(m module, _ int) { e.relativeAttention(m, kind) }
	e.encoder = func(m module) {
		e.weightNormPositions(m.child("pos_conv_embed"))
		m.norm("layer_norm", e.hidden)
		m.transformer("layers", e.layers, e.conformerLayer)
	}
	h := e.speakerHeads("wav2vec2_conformer", e.commonHeads("wav2vec2_conformer"))
	h["ForPreTraining"] = e.contrastive("wav2vec2_conformer")
	return architecture{e.hidden, h}
}
