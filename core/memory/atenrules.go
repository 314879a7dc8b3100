package memory

import (
	"strings"

	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// The rules by ATen's names without overload and without the underscore of writing in place.
var rules = withSame(map[string]kernel.Activity{
	"convolution":                                      kernel.Once(kernel.Convolution),
	"convolution_backward":                             kernel.Once(kernel.Convolution),
	"_scaled_dot_product_flash_attention":              kernel.Once(kernel.Attention),
	"_scaled_dot_product_efficient_attention":          kernel.Once(kernel.Attention),
	"_scaled_dot_product_flash_attention_backward":     kernel.FusedAttentionGradient,
	"_scaled_dot_product_efficient_attention_backward": kernel.FusedAttentionGradient,
	"_softmax_backward_data":                           kernel.SoftmaxGradient,
	"embedding_dense_backward":                         kernel.EmbeddingGradient,
})

// withSame adds the operations that share a rule.
func withSame(rules map[string]kernel.Activity) map[string]kernel.Activity {
	for _, same := range []struct {
		kernel.Activity
		names string
	}{
		{kernel.Once(kernel.GEMM), "mm bmm addmm baddbmm"},
		{kernel.Once(kernel.Softmax),
			"_softmax _safe_softmax _log_softmax _log_softmax_backward_data"},
		{kernel.Once(kernel.Normalization),
			"native_layer_norm native_group_norm native_batch_norm cudnn_batch_norm " +
				"_native_batch_norm_legit _fused_rms_norm _batch_norm_with_update"},
		{kernel.NormGradient, "native_layer_norm_backward native_group_norm_backward " +
			"native_batch_norm_backward cudnn_batch_norm_backward _fused_rms_norm_backward " +
			"batch_norm_backward"},
		{kernel.Once(kernel.Reduction), `
			sum mean prod any all max min amax amin argmax argmin norm linalg_vector_norm var std
			var_mean std_mean cumsum cumprod logsumexp logcumsumexp topk sort nll_loss_forward
			nll_loss_backward nll_loss2d_forward _ctc_loss _ctc_loss_backward _weight_norm_interface
			_weight_norm_interface_backward adaptive_avg_pool2d _adaptive_avg_pool2d avg_pool1d
			avg_pool2d max_pool2d_with_indices`},
		{kernel.Once(kernel.Gather),
			"embedding index_select index index_put gather scatter scatter_add masked_select " +
				"masked_scatter index_add index_copy take_along_dim nonzero slice_scatter"},
		{kernel.Once(kernel.Copy),
			"clone copy _to_copy contiguous cat stack constant_pad_nd slice_backward " +
				"select_backward roll flip repeat unfold_backward im2col col2im reflection_pad1d"},
		{kernel.Once(kernel.Elementwise), `
			add sub rsub mul div neg abs pow sqrt rsqrt reciprocal exp exp2 expm1 log log1p log2 sin
			cos tanh sigmoid relu gelu silu elu mish hardtanh hardswish hardsigmoid leaky_relu
			softplus log_sigmoid_forward glu erf floor ceil round trunc sign clamp clamp_min
			clamp_max maximum minimum where masked_fill fill zero zeros zeros_like ones ones_like
			new_zeros new_ones full full_like new_full scalar_tensor arange eq ne lt le gt ge
			logical_not logical_and logical_or logical_xor bitwise_not bitwise_and bitwise_or
			bitwise_xor __and__ __or__ isnan isinf isfinite native_dropout native_dropout_backward
			bernoulli rand rand_like randn randn_like uniform normal addcmul addcdiv lerp remainder
			fmod floor_divide tril triu gelu_backward silu_backward tanh_backward sigmoid_backward
			threshold_backward elu_backward hardtanh_backward hardswish_backward leaky_relu_backward
			log_sigmoid_backward softplus_backward glu_backward smooth_l1_loss mse_loss
			mse_loss_backward _amp_foreach_non_finite_check_and_unscale _foreach_add _foreach_mul
			threshold one_hot`},
		{kernel.Activity{}, "empty empty_like empty_strided new_empty new_empty_strided detach " +
			"lift_fresh alias resize set record_stream"},
	} {
		for _, name := range strings.Fields(same.names) {
			rules[name] = same.Activity
		}
	}
	return rules
}

// ruleOf is the rule of an operation by its full name; false where it has none, which counts by its
// bytes.
func ruleOf(op string) (kernel.Activity, bool) {
	name, isATen := strings.CutPrefix(op, "aten.")
	name, _, _ = strings.Cut(name, ".")
	rule, ok := rules[name]
	if !ok {
		rule, ok = rules[strings.TrimSuffix(name, "_")]
	}
	if !ok || !isATen {
		return kernel.Once(kernel.Elementwise), false
	}
	return rule, true
}
