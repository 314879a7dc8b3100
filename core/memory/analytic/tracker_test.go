package analytic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
)

// A (4, 100, 64) input has 102 400 B in float32: sizes are multiples of 512, so that nothing is rounded.
var (
	testBatch, testFrames = dim{"batch", 4}, dim{"frames", 100}
	narrow, broad         = dim{"narrow", 64}, dim{"broad", 128}
)

func testTracker(low bool) (*tracker, value) {
	t := newTracker(settings{low: low, gpu: capability{8, 0}})
	x := t.fresh("x", of(testBatch, testFrames, narrow), float32s, "")
	x.grad = true
	return t, x
}

// TestOperationsByHand counts what each operation leaves once its input and its result are forgotten, and the gradients
// that its backward makes.
func TestOperationsByHand(t *testing.T) {
	const (
		x32, x16, x8 = 4 * 100 * 64 * 4, 4 * 100 * 64 * 2, 4 * 100 * 64
		w32, w16     = 64 * 128 * 4, 64 * 128 * 2
		rows         = 2048 // mean or deviation of 400 rows, 1600 B, in blocks of 512
	)
	tests := []struct {
		name      string
		low       bool
		play      func(*tracker, value) value
		saved     int64
		gradients int64
	}{
		{"linear saves its input; the weight is a parameter", false, func(t *tracker, x value) value { return t.linear("y", x, broad, true) }, x32, w32 + 512},
		{"linear under autocast saves casts of input and weight", true, func(t *tracker, x value) value { return t.linear("y", x, broad, true) }, x16 + w16, w32 + 512},
		{"a frozen linear saves nothing of its input", false, func(t *tracker, x value) value {
			t.frozen = true
			return t.linear("y", x, broad, true)
		}, 0, 0},
		{"norm saves input, mean and deviation", false, func(t *tracker, x value) value { return t.norm("y", x, of(testBatch, testFrames), narrow) }, x32 + 2*rows, 2 * 512},
		{"gelu saves its input", false, func(t *tracker, x value) value { return t.pointwise("gelu", x) }, x32, 0},
		{"relu saves its result", false, func(t *tracker, x value) value { return t.fromResult("relu", x) }, x32, 0},
		{"dropout saves a byte an element", false, func(t *tracker, x value) value { return t.dropout(x, 0.1) }, x8, 0},
		{"dropout of nothing is nothing", false, func(t *tracker, x value) value { return t.dropout(x, 0) }, 0, 0},
		{"a sum saves nothing", false, func(t *tracker, x value) value { return t.sum(x, x) }, 0, 0},
		{"softmax saves its result", false, func(t *tracker, x value) value { return t.softmax("y", x, float32s) }, x32, 0},
		{"an embedding's gradient is its table", false, func(t *tracker, x value) value {
			y, _ := t.embedding("y", x.shape, of(dim{"rows", 1000}, narrow), false)
			return y
		}, 0, 1000 * 64 * 4},
		{"flash attention saves q, k, v, result and a sum per row", true, func(t *tracker, x value) value {
			q := t.cast(x, halves)
			y := t.attend(heads{n: dim{"heads", 2}, size: dim{"size", 32}, queries: testFrames, keys: testFrames}, q, q, q)
			t.drop(q)
			return y
		}, x16 + x16 + 3584, 0}, // 4 × 2 × 100 sums of 4 B, in blocks
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, x := testTracker(test.low)
			y := test.play(p, x)
			loss := p.summed("loss", y, of(dim{"loss", 1}), float32s)
			p.drop(x, y)
			p.endForward()
			require.Equal(t, test.saved+512, p.live.total, "what is saved, and the loss")
			if loss.node != none {
				p.runBackward(loss)
				require.Equal(t, test.gradients, p.live.total, "what backward leaves")
				require.Equal(t, test.gradients, p.live.parts[gradients])
			}
		})
	}
}

// TestPeakOfBackward walks through a linear layer by hand: at the highest moment the saved input, the gradients of result,
// input, weight and bias live.
func TestPeakOfBackward(t *testing.T) {
	p, x := testTracker(false)
	y := p.linear("y", x, broad, true)
	loss := p.summed("loss", y, of(dim{"loss", 1}), float32s)
	p.drop(x, y)
	p.endForward()
	p.highest = &highWater{}
	p.runBackward(loss)
	require.Equal(t, int64(102400+204800+102400+32768+512), p.highest.peak.total)
	require.Equal(t, "y backward", p.highest.op)
	require.Equal(t, int64(102400), p.highest.peak.parts[activations])
}

// TestGradientsMeet adds two gradients of one value in place, so that there is never a third tensor.
func TestGradientsMeet(t *testing.T) {
	p, x := testTracker(false)
	shared := p.pointwise("gelu", x)
	a, b := p.scaled("a", shared, x.shape), p.scaled("b", shared, x.shape)
	y := p.sum(a, b)
	loss := p.summed("loss", y, of(dim{"loss", 1}), float32s)
	p.drop(x, shared, a, b, y)
	p.endForward()
	p.highest = &highWater{}
	p.runBackward(loss)
	require.Zero(t, p.live.total)
	require.Equal(t, int64(4*102400), p.highest.peak.total, "gelu's input, the gradient of the sum, and those of gelu's result by a and by b")
}

// TestRepeatCountsWhatItDoesNotPlay compares a stack of which three layers are played with one whose every layer is.
func TestRepeatCountsWhatItDoesNotPlay(t *testing.T) {
	for _, layers := range []int{1, 2, 3, 4, 7, 100} {
		for _, checkpointing := range []bool{false, true} {
			require.Equal(t, stackPeaks(layers, checkpointing, true), stackPeaks(layers, checkpointing, false), "%d layers", layers)
		}
	}
}

// stackPeaks are the highest moments of forward and backward, and what is left.
func stackPeaks(layers int, checkpointing, all bool) [3]int64 {
	p := newTracker(settings{low: true, checkpointing: checkpointing})
	if all {
		p.device = &simulator{alloc: allocator.New(allocator.Settings{})}
	}
	x := p.fresh("x", of(testBatch, testFrames, narrow), float32s, "")
	x.grad = true
	layer := func(x value) value {
		y := p.linear("in", x, broad, true)
		y = p.then(y, p.pointwise("gelu", y))
		y = p.then(y, p.linear("out", y, narrow, true))
		return p.then(y, p.sum(x, y))
	}
	p.repeat(layers, 0, func(int) { x = p.then(x, p.checkpointed(x, nil, layer)) })
	loss := p.summed("loss", x, of(dim{"loss", 1}), float32s)
	p.drop(x)
	p.endForward()
	peaks := [3]int64{p.highest.peak.total}
	p.highest = &highWater{}
	p.runBackward(loss)
	peaks[1], peaks[2] = p.highest.peak.total, p.live.total
	return peaks
}
