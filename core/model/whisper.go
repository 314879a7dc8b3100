package model

// seq2seq is the shape of the encoder-decoder families.
type seq2seq struct {
	*fields
	size                         int // d_model
	encoderLayers, decoderLayers int
	encoderInner, decoderInner   int
	vocabulary                   int
	keyBias                      bool // whether k_proj has a bias
}

// attention is the four projections; Whisper's keys have no bias.
func (s *seq2seq) attention(m module) {
	m.linear("k_proj", s.size, s.size, s.keyBias)
	m.projections(s.size, "v_proj", "q_proj", "out_proj")
}

func (s *seq2seq) block(m module, inner int, cross bool) {
	s.attention(m.child("self_attn"))
	m.norm("self_attn_layer_norm", s.size)
	if cross {
		s.attention(m.child("encoder_attn"))
		m.norm("encoder_attn_layer_norm", s.size)
	}
	m.linear("fc1", s.size, inner, true)
	m.linear("fc2", inner, s.size, true)
	m.norm("final_layer_norm", s.size)
}

func (s *seq2seq) encoderStack(m module) {
	m.transformer("layers", s.encoderLayers, func(m module, _ int) { s.block(m, s.encoderInner, false) })
	m.norm("layer_norm", s.size)
}

func (s *seq2seq) decoderStack(m module) {
	m.embedding("embed_tokens", s.vocabulary, s.size)
	m.transformer("layers", s.decoderLayers, func(m module, _ int) { s.block(m, s.decoderInner, true) })
	m.norm("layer_norm", s.size)
}

// output is the projection onto the vocabulary; tied to embed_tokens, the default, it has no parameters of its own.
func (s *seq2seq) output(m module, name string) {
	if !s.flag("tie_word_embeddings", true) {
		m.linear(name, s.size, s.vocabulary, false)
	}
}

func (s *seq2seq) headsDivide(fallback int) {
	for _, key := range []string{s.aliased("encoder_attention_heads", "num_attention_heads"), "decoder_attention_heads"} {
		n := s.fields.size(key, fallback)
		s.require(s.size%n == 0, "d_model %d is not a multiple of %s %d", s.size, key, n)
	}
}

// whisper also covers distil-whisper. The encoder's sinusoidal positions are parameters without gradient.
// https://arxiv.org/abs/2212.04356
func whisper(f *fields) architecture {
	s := &seq2seq{fields: f, size: f.size(f.aliased("d_model", "hidden_size"), 384),
		encoderLayers: f.layers(f.aliased("encoder_layers", "num_hidden_layers"), 4), decoderLayers: f.layers("decoder_layers", 4),
		encoderInner: f.size("encoder_ffn_dim", 1536), decoderInner: f.size("decoder_ffn_dim", 1536), vocabulary: f.size("vocab_size", 51865)}
	s.headsDivide(6)
	encoder := func(m module) {
		m.conv1d("conv1", f.size("num_mel_bins", 80), s.size, 3, 1, true)
		m.conv1d("conv2", s.size, s.size, 3, 1, true)
		m.withoutGradient().embedding("embed_positions", f.size("max_source_positions", 1500), s.size)
		s.encoderStack(m)
	}
	base := func(m module) {
		encoder(m.child("encoder"))
		s.decoderStack(m.child("decoder"))
		m.child("decoder").embedding("embed_positions", f.size("max_target_positions", 448), s.size)
	}
	return architecture{s.size, heads{
		"Model":                    base,
		"ForConditionalGeneration": func(m module) { base(m.child("model")); s.output(m, "proj_out") },
		"ForAudioClassification": func(m module) {
			encoder(m.child("encoder"))
			if f.flag("use_weighted_layer_sum", false) {
				m.parameter("layer_weights", s.encoderLayers+1)
			}
			projected := f.size("classifier_proj_size", 256)
			m.linear("projector", s.size, projected, true)
			m.linear("classifier", projected, f.labels(), true)
		},
	}}
}
