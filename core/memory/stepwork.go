package memory

import (
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// StepWork is what the kernels of one micro-batch do, by a trace.
type StepWork struct {
	kernel.Work
	// operations without a rule, which count by their bytes; sorted
	Unknown []string `json:"unknown"`
}

// Work returns the operations of a micro-batch of a shape. Errors: InvalidArgument for a shape out
// of range, Unsupported where the traced shapes do not determine them.
func (m *Model) Work(shape trace.Shape) (StepWork, error) {
	capability, _ := m.trace.About["compute_capability"].(string)
	w := collector{tf32: gpus.NativeBF16(capability), unknown: map[string]bool{}}
	ok, err := m.eachCall(shape, w.add)
	if err != nil {
		return StepWork{}, err
	}
	if !ok {
		return StepWork{}, fault.New(fault.Unsupported,
			"trace it again with the shapes of its batches",
			"the trace does not hold what operations of a batch of this shape compute")
	}
	unknown := slices.AppendSeq([]string{}, maps.Keys(w.unknown))
	slices.Sort(unknown)
	return StepWork{kernel.Work{Operations: w.operations.values,
		TrainedParameters: m.count("trained_parameters"),
		TrainedTensors:    m.count("trained_tensors")}, unknown}, nil
}

// eachCall calls visit with the calls of a micro-batch and their numbers; false where no calls with
// shapes were traced.
func (m *Model) eachCall(
	shape trace.Shape, visit func(call trace.Call, numbers []int64),
) (bool, error) {
	if err := shape.Check(); err != nil {
		return false, outOfRange("%v", err)
	}
	position := template.Position{Window: 1, Role: template.Micro}
	if m.templates.Loop == trace.KindIteration {
		position.Role = template.Iteration
	}
	t, err := m.templates.For(position, shape)
	if err != nil {
		return false, err
	}
	point, err := m.templates.Variables.At(shape)
	if err != nil {
		return false, err
	}
	return t.Calls(point, visit), nil
}

// pinned is the host memory of copies that a micro-batch keeps there for its backward pass: torch's
// CachingHostAllocator rounds each up to a power of two
// (aten/src/ATen/core/CachingHostAllocator.h). Nil where it is not known: of loops of the user's
// own, and where calls were not traced.
func (m *Model) pinned(r Request) *uint64 {
	sum := uint64(0)
	if !slices.ContainsFunc(m.trace.Calls, func(c trace.Call) bool {
		return c.Layout == trace.ToPinned
	}) {
		return &sum
	}
	if r.Batch == nil || m.templates.Loop == trace.KindIteration {
		return nil
	}
	ok, err := m.eachCall(r.shape(), func(call trace.Call, numbers []int64) {
		if bytes := numbers[len(numbers)-1]; call.Layout == trace.ToPinned && bytes > 0 {
			sum += 1 << bits.Len64(uint64(bytes)-1)
		}
	})
	if err != nil || !ok {
		return nil
	}
	return &sum
}

func (m *Model) count(name string) int64 {
	number, _ := m.trace.About[name].(float64)
	return int64(max(0, min(number, 1<<50)))
}

// collector makes operations of calls.
type collector struct {
	tf32       bool                       // which a plan turns on where the card has it
	operations numbered[kernel.Operation] // known without how often
	unknown    map[string]bool
}

var phases = map[string]kernel.Phase{"forward": kernel.Forward, "backward": kernel.Backward}

func (w *collector) add(call trace.Call, numbers []int64) {
	does, ruled := ruleOf(call.Op)
	if product := len(numbers) == trace.Product; product != does.Kind.Product() {
		does, ruled = kernel.Once(kernel.Elementwise), false
	}
	if !ruled {
		w.unknown[call.Op] = true
	}
	phase, ok := phases[call.Phase]
	if does.Kernels == 0 || !ok {
		return
	}
	o := kernel.Operation{Name: call.Op, Kind: does.Kind, Phase: phase,
		DType: w.unit(call.DType, does.Kind), Kernels: does.Kernels,
		Read:    float64(does.Reads * numbers[len(numbers)-2]),
		Written: float64(does.Writes * numbers[len(numbers)-1])}
	empty := o.Bytes() == 0
	switch len(numbers) {
	case trace.Product:
		o.Batch, o.M, o.N, o.K = numbers[0], numbers[1], numbers[2], numbers[3]
		empty = slices.Min(numbers[:4]) == 0
	case trace.Row:
		o.Row = numbers[0]
	}
	o.Kind = kindIn(call, does.Kind)
	if o.Kind == kernel.Attention && o.Phase == kernel.Backward &&
		!strings.Contains(call.Op, "backward") {
		o.Phase = kernel.Recomputation
	}
	if empty {
		return // its kernel has nothing to do
	}
	number := w.operations.of(o) // which may append to the values
	w.operations.values[number].Times++
}

// kindIn is the kind with the layout of the operands: a copy that keeps the order of elements is as
// fast as any other kernel.
func kindIn(call trace.Call, kind kernel.Kind) kernel.Kind {
	switch {
	case call.Layout == trace.ToPinned || call.Layout == trace.OfHost:
		return kernel.Transfer
	case kind == kernel.Copy && call.Layout == "" && strings.Contains(call.Op, "copy"):
		return kernel.Elementwise
	case kind == kernel.Elementwise && call.Layout == "repeated":
		return kernel.Broadcast
	case kind == kernel.Elementwise && call.Layout == "strided":
		return kernel.Copy
	}
	return kind
}

// unit is the type of a kernel. Whole numbers and masks count as the type of about their size.
func (w *collector) unit(dtype string, kind kernel.Kind) kernel.DType {
	switch dtype {
	case "float16", "bool", "uint8", "int8":
		return kernel.Float16
	case "bfloat16":
		return kernel.BFloat16
	case "float32":
		if kind.Product() && w.tf32 {
			return kernel.TF32
		}
	}
	return kernel.Float32
}

// rules by ATen's names without overload and without the underscore of writing in place.
var rules = func() map[string]kernel.Activity {
	byName := map[string]kernel.Activity{}
	for _, same := range []struct {
		kernel.Activity
		names string
	}{
		{kernel.Once(kernel.GEMM), "mm bmm addmm baddbmm"},
		{kernel.Once(kernel.Convolution), "convolution convolution_backward"},
		{kernel.Once(kernel.Attention),
			"_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention"},
		{kernel.FusedAttentionGradient, "_scaled_dot_product_flash_attention_backward " +
			"_scaled_dot_product_efficient_attention_backward"},
		{kernel.SoftmaxGradient, "_softmax_backward_data"},
		{kernel.EmbeddingGradient, "embedding_dense_backward"},
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
			byName[name] = same.Activity
		}
	}
	return byName
}()

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
