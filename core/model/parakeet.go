package model

import "math/bits"

// parakeetEncoder is NVIDIA's FastConformer. https://arxiv.org/abs/2305.05084
type parakeetEncoder struct {
	*fields
	hidden, heads, inner int
	bias                 bool // attention and feed-forward
}

// parakeetCTC reads the encoder from encoder_config (defaults of ParakeetEncoderConfig, transformers 5.23).
func parakeetCTC(f *fields) architecture {
	inner := f.nested("encoder_config")
	e := &parakeetEncoder{fields: inner, hidden: inner.size("hidden_size", 1024), heads: inner.size("num_attention_heads", 8),
		inner: inner.size("intermediate_size", 4096), bias: inner.flag("attention_bias", true)}
	return architecture{e.hidden, heads{"ForCTC": func(m module) {
		e.subsampling(m.child("encoder.subsampling"))
		m.child("encoder").transformer("layers", inner.layers("num_hidden_layers", 24), e.layer)
		m.conv1d("ctc_head", e.hidden, f.size("vocab_size", 1025), 1, 1, true)
	}}}
}

// subsampling halves time and frequency once per factor of two: a plain convolution, then depthwise and pointwise pairs.
func (e *parakeetEncoder) subsampling(m module) {
	channels, taps, stride := e.size("subsampling_conv_channels", 256), e.size("subsampling_conv_kernel_size", 3), e.size("subsampling_conv_stride", 2)
	stages := bits.Len(uint(e.size("subsampling_factor", 8))) - 1
	m.child("layers").conv2d("0", 1, channels, taps, 1)
	for i := 1; i < stages; i++ { // a rectifier stands between the stages
		m.child("layers").at(3*i-1).conv2d("", channels, channels, taps, channels)
		m.child("layers").at(3*i).conv2d("", channels, channels, 1, 1)
	}
	bins := e.size("num_mel_bins", 80)
	for range stages {
		bins /= stride
	}
	e.require(bins > 0, "num_mel_bins is too small for subsampling_factor")
	m.linear("linear", channels*bins, e.hidden, true)
}

func (e *parakeetEncoder) layer(m module, _ int) {
	for _, name := range []string{"feed_forward1", "feed_forward2"} {
		m.child(name).linear("linear1", e.hidden, e.inner, e.bias)
		m.child(name).linear("linear2", e.inner, e.hidden, e.bias)
	}
	e.attention(m.child("self_attn"))
	e.convolution(m.child("conv"))
	for _, name := range []string{"norm_feed_forward1", "norm_self_att", "norm_conv", "norm_feed_forward2", "norm_out"} {
		m.norm(name, e.hidden)
	}
}

func (e *parakeetEncoder) attention(m module) {
	size := e.hidden / e.heads
	if e.given("head_dim") {
		size = e.size("head_dim", size)
	}
	all := e.heads * size
	for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
		m.linear(name, e.hidden, all, e.bias)
	}
	m.linear("o_proj", all, e.hidden, e.bias)
	m.linear("relative_k_proj", e.hidden, all, false)
	m.parameter("bias_u", e.heads, size)
	m.parameter("bias_v", e.heads, size)
}

func (e *parakeetEncoder) convolution(m module) {
	bias, taps := e.flag("convolution_bias", true), e.size("conv_kernel_size", 9)
	m.conv1d("pointwise_conv1", e.hidden, 2*e.hidden, 1, 1, bias)
	m.conv1d("depthwise_conv", e.hidden, e.hidden, taps, e.hidden, bias)
	m.norm("norm", e.hidden)
	m.conv1d("pointwise_conv2", e.hidden, e.hidden, 1, 1, bias)
}
