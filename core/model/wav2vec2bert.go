package model

import "slices"

// wav2vec2Bert is w2v-BERT 2.0: conformer layers on log-mel features, no convolutional front end and no positional
// convolution. https://arxiv.org/abs/2312.05187
func wav2vec2Bert(f *fields) architecture {
	e := &speechEncoder{fields: f, hidden: f.size("hidden_size", 1024), layers: f.layers("num_hidden_layers", 24),
		heads: f.size("num_attention_heads", 16), inner: f.size("intermediate_size", 4096)}
	e.require(e.hidden%e.heads == 0, "hidden_size %d is not a multiple of num_attention_heads %d", e.hidden, e.heads)
	e.vocabulary, e.classifier, e.maskVector = f.optionalSize("vocab_size", 0), f.size("classifier_proj_size", 768), f.masks()
	e.depthwiseNorm, e.adapter = "depthwise_layer_norm", e.conformerAdapter
	e.projection = func(m module) {
		in := e.size("feature_projection_input_dim", 160)
		m.norm("layer_norm", in)
		m.linear("projection", in, e.hidden, true)
	}
	kind := e.text("position_embeddings_type", "relative_key")
	e.require(slices.Contains([]string{"relative_key", "relative", "rotary", ""}, kind), "position_embeddings_type is %q; it must be relative_key, relative, rotary or null", kind)
	e.require(e.hasAdapter() || !e.flag("use_intermediate_ffn_before_adapter", false), "use_intermediate_ffn_before_adapter is true but add_adapter is not")
	e.attention = func(m module, _ int) {
		e.relativeAttention(m, kind)
		if kind == "relative_key" {
			left, right := e.whole("left_max_position_embeddings", 64, 0, maxSize), e.whole("right_max_position_embeddings", 8, 0, maxSize)
			m.embedding("distance_embedding", left+right+1, e.hidden/e.heads)
		}
	}
	e.encoder = func(m module) { m.transformer("layers", e.layers, e.conformerLayer) }
	return architecture{e.hidden, e.speakerHeads("wav2vec2_bert", e.commonHeads("wav2vec2_bert"))}
}

// conformerAdapter shortens the sequence with attention on a strided convolution.
func (e *speechEncoder) conformerAdapter(m module) {
	out, taps := e.adapterSize(), e.size("adapter_kernel_size", 3)
	if e.flag("use_intermediate_ffn_before_adapter", false) {
		m.feedForward("intermediate_ffn", e.hidden, e.inner)
	}
	e.adapterProjection(m.child("adapter"))
	for i := range e.fields.layers("num_adapter_layers", 1) {
		layer := m.child("adapter.layers").at(i)
		layer.norm("residual_layer_norm", out)
		layer.conv1d("residual_conv", out, 2*out, taps, 1, true)
		layer.norm("self_attn_layer_norm", out)
		layer.conv1d("self_attn_conv", out, 2*out, taps, 1, true)
		layer.child("self_attn").projections(out, "linear_q", "linear_k", "linear_v", "linear_out")
		layer.norm("ffn_layer_norm", out)
		layer.feedForward("ffn", out, e.inner)
	}
}
