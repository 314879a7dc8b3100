package memory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// withCalls is a usual trace whose micro-batches run a product, a copy and an operation of the
// user's own, with numbers that follow the shape.
func withCalls(t *testing.T) *Model {
	t.Helper()
	f := tracetest.Usual(1)
	file := &f.Trace
	file.About["trained_parameters"], file.About["trained_tensors"], file.About["compute_capability"] = 1000.0, 4.0, "8.0"
	file.Calls = []trace.Call{
		{Op: "aten.mm.default", DType: "float32", Phase: "forward", Numbers: trace.Product}, {Op: "aten._to_copy.default", DType: "float16", Phase: "forward", Numbers: trace.Moved},
		{Op: "own.fancy.default", DType: "float32", Phase: "backward", Numbers: trace.Moved}, {Op: "aten.empty.memory_format", Phase: "forward", Numbers: trace.Moved},
	}
	for i := range file.Segments {
		if s := &file.Segments[i]; s.Kind == trace.KindMicro {
			b, l := *s.Batch, *s.Length
			s.Calls, s.Numbers = []int32{0, 1, 1, 2, 3}, []int64{1, b * l, 64, 32, 4 * (b*l*32 + 32*64), 4 * b * l * 64, 8 * b, 4 * b, 8 * b, 4 * b, 10 * b * l, 2 * b * l, 0, 100}
		}
	}
	return opened(t, f)
}

func TestWorkAtAnotherShape(t *testing.T) {
	w, err := withCalls(t).Work(trace.Shape{Batch: 7, Length: 5000, Labels: 3})
	require.NoError(t, err)
	const rows = 7 * 5000
	assert.Equal(t, []kernel.Operation{
		{Name: "aten.mm.default", Kind: kernel.GEMM, Phase: kernel.Forward, DType: kernel.TF32, Batch: 1, M: rows, N: 64, K: 32, Read: 4 * (rows*32 + 32*64), Written: 4 * rows * 64, Kernels: 1, Times: 1},
		{Name: "aten._to_copy.default", Kind: kernel.Elementwise, Phase: kernel.Forward, DType: kernel.Float16, Read: 56, Written: 28, Kernels: 1, Times: 2},
		{Name: "own.fancy.default", Kind: kernel.Elementwise, Phase: kernel.Backward, DType: kernel.Float32, Read: 10 * rows, Written: 2 * rows, Kernels: 1, Times: 1},
	}, w.Operations, "equal ones together, and nothing for memory that is only reserved")
	assert.Equal(t, []string{"own.fancy.default"}, w.Unknown, "counted by its bytes, and named")
	assert.Equal(t, [2]int64{1000, 4}, [2]int64{w.TrainedParameters, w.TrainedTensors})
}

// TestPinnedMemory: a copy to the host takes a power of two of it, at any shape.
func TestPinnedMemory(t *testing.T) {
	m := withCalls(t)
	batch, length := int64(7), int64(5000)
	r := Request{Batch: &batch, Length: &length}
	assert.Zero(t, *m.pinned(r))
	m.trace.Calls[2].Layout = trace.ToPinned
	assert.EqualValues(t, 1<<17, *m.pinned(r), "70 000 bytes")
	w, err := m.Work(trace.Shape{Batch: 7, Length: 5000})
	require.NoError(t, err)
	assert.Equal(t, kernel.Transfer, w.Operations[2].Kind)
	assert.Nil(t, m.pinned(Request{}), "not known without a shape")
}

func TestWorkIsRefusedWhereNothingWasTraced(t *testing.T) {
	_, err := opened(t, tracetest.Usual(1)).Work(trace.Shape{Batch: 2, Length: 5000})
	assert.Equal(t, fault.Unsupported, fault.From(err).Code)
	_, err = withCalls(t).Work(trace.Shape{Batch: 0, Length: 5000})
	assert.Equal(t, fault.InvalidArgument, fault.From(err).Code)
}

func TestRulesByName(t *testing.T) {
	for op, kind := range map[string]kernel.Kind{
		"aten.addmm.default": kernel.GEMM, "aten.add_.Tensor": kernel.Elementwise, "aten._softmax.default": kernel.Softmax, "aten._safe_softmax.default": kernel.Softmax, "aten.clone.default": kernel.Copy,
		"aten._softmax_backward_data.default": kernel.Elementwise, "aten.native_layer_norm_backward.default": kernel.NormBackward, "aten.sum.dim_IntList": kernel.Reduction,
		"aten.embedding.default": kernel.Gather, "aten.__and__.Tensor": kernel.Elementwise,
	} {
		rule, ok := ruleOf(op)
		assert.True(t, ok, op)
		assert.Equal(t, kind, rule.Kind, op)
	}
	for _, op := range []string{"own.add.default", "aten.never_heard_of.default", "", "aten"} {
		_, ok := ruleOf(op)
		assert.False(t, ok, op)
	}
}
