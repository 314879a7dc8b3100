package analytic

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// TestALayerByHand writes down what a linear layer with a gelu and a residual runs under autocast: 400 rows of 64, and 128 inside.
func TestALayerByHand(t *testing.T) {
	p, x := testTracker(true)
	p.recorded, p.made = newOperations(), 0
	y := p.linear("up", x, broad, true)
	y = p.then(y, p.pointwise("gelu", y))
	y = p.then(y, p.linear("down", y, narrow, true))
	y = p.then(y, p.sum(x, y))
	loss := p.summed("loss", y, of(dim{"loss", 1}), float32s)
	p.drop(x, y)
	p.endForward()
	p.runBackward(loss)
	const x32, x16, h16, w32, w16 = 400 * 64 * 4, 400 * 64 * 2, 400 * 128 * 2, 64 * 128 * 4, 64 * 128 * 2
	move := func(name string, kind kernel.Kind, phase kernel.Phase, d kernel.DType, read, written, times float64) kernel.Operation {
		return kernel.Operation{Name: name, Kind: kind, Phase: phase, DType: d, Read: read, Written: written, Kernels: 1, Times: times}
	}
	gemm := func(name string, phase kernel.Phase, m, n, k int64) kernel.Operation {
		return kernel.Operation{Name: name, Kind: kernel.GEMM, Phase: phase, DType: kernel.Float16, Batch: 1, M: m, N: n, K: k,
			Read: float64(2 * (m*k + k*n)), Written: float64(2 * m * n), Kernels: 1, Times: 1}
	}
	const f, b = kernel.Forward, kernel.Backward
	e, half, single := kernel.Elementwise, kernel.Float16, kernel.Float32
	want := []kernel.Operation{
		move("weight cast", e, f, half, w32, w16, 2), move("weight cast", e, f, half, 128*4, 512, 1), move("weight cast", e, f, half, 64*4, 512, 1),
		move("cast", e, f, half, x32, x16, 1), gemm("up", f, 400, 128, 64), move("gelu", e, f, half, h16, h16, 1), gemm("down", f, 400, 64, 128),
		move("sum", e, f, single, x32+x16, x32, 1), move("loss", e, f, single, x32, 512, 1), move("loss", e, b, single, 512, x32, 1),
		move("sum", e, b, single, x32, x16, 1), // the gradient of the narrower operand; the other is handed on
		gemm("down", b, 400, 128, 64), gemm("down", b, 128, 64, 400), move("down bias", kernel.Reduction, b, half, x16, 64*2, 1),
		move("gelu", e, b, half, 2*h16, h16, 1), gemm("up", b, 400, 64, 128), gemm("up", b, 64, 128, 400),
		move("up bias", kernel.Reduction, b, half, h16, 128*2, 1), move("cast", e, b, half, x16, x32, 1),
		move("weight cast", e, b, half, w16, w32, 2), move("weight cast", e, b, half, 512, 512, 2),
	}
	assert.ElementsMatch(t, want, p.recorded.list)
}

// TestAttentionByHand holds the three ways of attention to their shapes: 4 clips, 2 heads of 32, 100 queries and 60 keys.
func TestAttentionByHand(t *testing.T) {
	play := func(set settings) map[kernel.Phase][]kernel.Operation {
		p := newTracker(set)
		p.recorded = newOperations()
		input := func(length dim) value {
			x := p.fresh("x", of(testBatch, length, narrow), p.lower(), "")
			x.grad = true
			return x
		}
		keys := dim{"keys", 60}
		q, k, v := input(testFrames), input(keys), input(keys)
		y := p.attend(heads{n: dim{"heads", 2}, size: dim{"size", 32}, queries: testFrames, keys: keys}, q, k, v)
		p.runBackward(p.summed("loss", y, of(dim{"loss", 1}), float32s))
		out := map[kernel.Phase][]kernel.Operation{}
		for _, o := range p.recorded.list {
			if o.Kind == kernel.GEMM || o.Kind == kernel.Attention || o.Kind == kernel.Softmax {
				out[o.Phase] = append(out[o.Phase], kernel.Operation{Kind: o.Kind, DType: o.DType, Batch: o.Batch, M: o.M, N: o.N, K: o.K, Row: o.Row, Times: o.Times})
			}
		}
		return out
	}
	of := func(kind kernel.Kind, d kernel.DType, m, n, k int64) kernel.Operation {
		return kernel.Operation{Kind: kind, DType: d, Batch: 8, M: m, N: n, K: k, Times: 1}
	}
	flash := play(settings{low: true, bfloat: true, gpu: capability{8, 0}})
	fused := []kernel.Operation{of(kernel.Attention, kernel.BFloat16, 100, 60, 32)}
	assert.Equal(t, fused, flash[kernel.Forward])
	assert.Equal(t, fused, flash[kernel.Backward])

	eager := play(settings{eager: true, gpu: capability{7, 5}})
	softmax := kernel.Operation{Kind: kernel.Softmax, DType: kernel.Float32, Row: 60, Times: 1}
	assert.ElementsMatch(t, []kernel.Operation{of(kernel.GEMM, kernel.Float32, 100, 60, 32), softmax, of(kernel.GEMM, kernel.Float32, 100, 32, 60)}, eager[kernel.Forward])
	assert.ElementsMatch(t, []kernel.Operation{of(kernel.GEMM, kernel.Float32, 100, 32, 60), of(kernel.GEMM, kernel.Float32, 32, 60, 100),
		of(kernel.GEMM, kernel.Float32, 100, 60, 32), of(kernel.GEMM, kernel.Float32, 60, 32, 100)}, eager[kernel.Backward])
	tf32 := play(settings{eager: true, gpu: capability{8, 0}})
	assert.Equal(t, kernel.TF32, tf32[kernel.Forward][0].DType, "which a plan turns on")
}

// TestConvolutionsByHand: 512 channels of a third of the length from one channel with ten taps, and 64 channels in 16 groups with five taps.
func TestConvolutionsByHand(t *testing.T) {
	p, x := testTracker(false)
	p.recorded = newOperations()
	wave := p.fresh("wave", of(testBatch, dim{"samples", 1005}), float32s, "")
	p.convolution("first", wave, of(testBatch, dim{"channels", 512}, dim{"frames", 200}), false, dim{"channels", 512}, dim{"in", 1}, dim{"taps", 10})
	p.grouped("positions", x, of(testBatch, narrow, testFrames), 16, false, narrow, dim{"group", 4}, dim{"taps", 5})
	shapes := [][4]int64{}
	for _, o := range p.recorded.list {
		require.Equal(t, kernel.Convolution, o.Kind)
		shapes = append(shapes, [4]int64{o.Batch, o.M, o.N, o.K})
	}
	assert.Equal(t, [][4]int64{{1, 800, 512, 10}, {1, 10, 512, 800}, {16, 400, 4, 20}, {16, 400, 20, 4}, {16, 20, 4, 400}}, shapes,
		"a wave has no gradient")
}

// TestEveryOperationCanBe holds every model, in every way of playing it, to what an operation must be: products read and write their matrices, all of it is
// within what the time model takes, and there are some hundreds at most.
func TestEveryOperationCanBe(t *testing.T) {
	everyModel(t, func(t *testing.T, m *Model) {
		for _, set := range everySetting() {
			p := newTracker(set)
			p.recorded = newOperations()
			loss, err := m.play(p, Shape{Batch: 3, Seconds: 2.3, Labels: 7})
			require.NoError(t, err)
			p.endForward()
			p.runBackward(loss)
			require.Less(t, len(p.recorded.list), 500)
			for _, o := range p.recorded.list {
				require.NoError(t, o.Check())
				require.Positive(t, o.Times)
				require.Positive(t, o.Kernels)
				require.Positive(t, o.Read, o)
				require.Positive(t, o.Written, o)
				if o.Kind == kernel.GEMM {
					size := map[kernel.DType]int64{kernel.Float16: 2, kernel.BFloat16: 2, kernel.TF32: 4, kernel.Float32: 4}[o.DType]
					require.EqualValues(t, size*o.Batch*(o.M*o.K+o.K*o.N), o.Read, "%+v", o)
					require.EqualValues(t, size*o.Batch*o.M*o.N, o.Written, "%+v", o)
				}
			}
		}
	})
}

// TestEqualOperationsAreOne: whether every layer is played or three stand for all, the list is the same.
func TestEqualOperationsAreOne(t *testing.T) {
	three, all := stackOperations(7, false), stackOperations(7, true)
	assert.Equal(t, three, all)
	assert.Len(t, three, len(stackOperations(100, false)))
}

func stackOperations(layers int, all bool) []kernel.Operation {
	p, x := testTracker(true)
	p.checkpointing, p.recorded = true, newOperations()
	layer := func(x value) value {
		y := p.linear("in", x, broad, true)
		y = p.then(y, p.linear("out", y, narrow, true))
		return p.then(y, p.sum(x, y))
	}
	play := func(int) { x = p.then(x, p.checkpointed(x, nil, layer)) }
	if all {
		for i := range layers {
			play(i)
		}
	} else {
		p.repeat(layers, 0, play)
	}
	p.runBackward(p.summed("loss", x, of(dim{"loss", 1}), float32s))
	slices.SortFunc(p.recorded.list, func(a, b kernel.Operation) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Read, b.Read), cmp.Compare(a.Written, b.Written), cmp.Compare(a.M, b.M))
	})
	return p.recorded.list
}

// TestSkippedLayers: of layers that a quarter of the steps skips, three quarters of each operation remain, and all of the memory.
func TestSkippedLayers(t *testing.T) {
	play := func(layerdrop float64) (layers, rest float64, peak uint64) {
		m, err := Read(model.Request{Config: []byte(fmt.Sprintf(`{"model_type": "wav2vec2", "layerdrop": %v}`, layerdrop))})
		require.NoError(t, err)
		r := Request{Batch: 2, Seconds: 5, Precision: "fp16", Checkpointing: true, Accumulation: 1, Optimizer: "adamw_torch", ComputeCapability: "8.0"}
		w, err := m.Work(r)
		require.NoError(t, err)
		for _, o := range w.Operations {
			if o.Kind == kernel.Attention { // layers alone have it
				layers += o.Times
			} else if o.Kind == kernel.Convolution {
				rest += o.Times
			}
		}
		e, err := m.Estimate(r)
		require.NoError(t, err)
		return layers, rest, e.PeakAllocated
	}
	layers, rest, peak := play(0.25)
	all, sameRest, samePeak := play(0)
	assert.InDelta(t, 12*3, all, 1e-9, "forward, recomputed, backward")
	assert.InDelta(t, 0.75*all, layers, 1e-9)
	assert.InDelta(t, sameRest, rest, 1e-9)
	assert.Equal(t, samePeak, peak)
}

// TestUpdatesByHand counts bytes for each parameter that the optimizers of the Trainer read and write, with clipping and without unscaling.
func TestUpdatesByHand(t *testing.T) {
	const parameters, tensors, clipping = 1_000_000, 16, 12
	for name, bytes := range map[string]float64{
		"adamw_torch_fused": 28, "adamw_torch": 80, "adamw_bnb_8bit": 16, "sgd": 12, "adagrad": 52, "rmsprop": 52, "adafactor": 80,
	} {
		update := func(precision string) (bytes float64) {
			operations, err := Update(name, precision, parameters, tensors)
			require.NoError(t, err)
			for _, o := range operations {
				require.NoError(t, o.Check())
				require.Equal(t, kernel.OptimizerUpdate, o.Phase)
				bytes += o.Bytes() * o.Times
			}
			return bytes / parameters
		}
		assert.InDelta(t, bytes+clipping, update("bf16"), 1e-9, name)
		assert.InDelta(t, bytes+clipping+8, update("fp16"), 1e-9, "unscaling reads and writes gradients")
	}
	_, err := Update("lion", "fp16", parameters, tensors)
	require.ErrorContains(t, err, "lion")
	fused, err := Update("adamw_torch_fused", "bf16", 315_000_000, 422)
	require.NoError(t, err)
	assert.EqualValues(t, 16, fused[len(fused)-1].Kernels, "chunks of 65 536 elements, 320 a launch")
}
