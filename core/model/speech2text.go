package model

// speech2Text is the encoder-decoder of fairseq S2T; its sinusoidal positions are buffers. https://arxiv.org/abs/2010.05171
func speech2Text(f *fields) architecture {
	s := &seq2seq{fields: f, size: f.size(f.aliased("d_model", "hidden_size"), 256), keyBias: true,
		encoderLayers: f.layers(f.aliased("encoder_layers", "num_hidden_layers"), 12), decoderLayers: f.layers("decoder_layers", 6),
		encoderInner: f.size("encoder_ffn_dim", 2048), decoderInner: f.size("decoder_ffn_dim", 2048), vocabulary: f.size("vocab_size", 10000)}
	s.headsDivide(4)
	base := func(m module) {
		s.subsampler(m.child("encoder.conv"))
		s.encoderStack(m.child("encoder"))
		s.decoderStack(m.child("decoder"))
	}
	return architecture{s.size, heads{
		"Model":                    base,
		"ForConditionalGeneration": func(m module) { base(m.child("model")); s.output(m, "lm_head") },
	}}
}

// subsampler is strided convolutions with gated linear units, which halve the channels.
func (s *seq2seq) subsampler(m module) {
	kernels, middle := s.sizes("conv_kernel_sizes", []int{5, 5}), s.fields.size("conv_channels", 1024)
	n := s.fields.layers("num_conv_layers", 2)
	s.require(n == len(kernels), "conv_kernel_sizes has %d entries, num_conv_layers is %d", len(kernels), n)
	in := s.fields.size("input_feat_per_channel", 80) * s.fields.size("input_channels", 1)
	for i, kernel := range kernels {
		out := middle
		if i == len(kernels)-1 {
			out = 2 * s.size
		}
		m.child("conv_layers").at(i).conv1d("", in, out, kernel, 1, true)
		in = middle / 2
	}
}
