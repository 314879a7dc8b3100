package analytic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/device"
)

// peaksOf plays an operation on a tensor whose gradient is asked for: the highest moments of forward and backward.
func peaksOf(t *tracker, x value, play func(value) value) (there, back int64) {
	y := play(x)
	there = t.highest.peak.total
	loss := t.summed("loss", y, of(dim{"loss", 1}), float32s)
	t.drop(x, y)
	t.endForward()
	t.highest = &highWater{}
	t.runBackward(loss)
	return there, t.highest.peak.total
}

// TestTransposedTensorsAreCopied counts two copies of 102 400 B more: of the input, forward and backward, and of the gradient.
func TestTransposedTensorsAreCopied(t *testing.T) {
	const copied = 4 * 100 * 64 * 4
	plays := map[string]func(*tracker, value) value{
		"norm": func(t *tracker, x value) value { return t.norm("y", x, of(testBatch, testFrames), narrow) },
		"convolution": func(t *tracker, x value) value {
			return t.convolution("y", x, of(testBatch, narrow, testFrames), false, narrow, narrow, dim{"taps", 3})
		},
	}
	for name, play := range plays {
		p, x := testTracker(false)
		there, back := peaksOf(p, x, func(x value) value { return play(p, x) })
		p, x = testTracker(false)
		turnedThere, turnedBack := peaksOf(p, x, func(x value) value {
			y := play(p, x.transpose())
			require.False(t, y.transposed, "the result is in order")
			p.transposedGradient(y, false)
			return y
		})
		require.Equal(t, int64(copied), turnedThere-there, name)
		require.Equal(t, int64(2*copied), turnedBack-back, name)
	}
}

func TestOrderOfElementwiseResults(t *testing.T) {
	p, x := testTracker(true)
	plain, x := x, x.transpose()
	require.True(t, p.cast(x, halves).transposed)
	require.True(t, p.pointwise("gelu", x).transposed)
	require.True(t, p.fromResult("relu", x).transposed)
	require.True(t, p.dropout(x, 0.1).transposed)
	require.True(t, p.sum(x, plain).transposed, "as the first operand")
	require.False(t, p.sum(plain, x).transposed)
	require.False(t, p.cloned("y", x).transposed)
	require.False(t, p.linear("y", x, broad, true).transposed)
	require.False(t, x.transpose().transposed)
}

// TestWorkspacesOfProducts compares PyTorch versions: two workspaces that stay, or one for each call, 1 MiB with a bias.
func TestWorkspacesOfProducts(t *testing.T) {
	const pool, lt = 8.125 * (1 << 20), 1 << 20
	linear := func(torch string, bias bool) (there, back int64) {
		p, x := testTracker(false)
		var err error
		p.libraries, err = device.WorkspacesOf("8.0", torch)
		require.NoError(t, err)
		p.workspaces()
		return peaksOf(p, x, func(x value) value { return p.linear("y", x, broad, bias) })
	}
	noneThere, noneBack := linear("1.12", true)
	there, back := linear("2.14", true)
	require.Equal(t, [2]int64{2 * pool, 2 * pool}, [2]int64{there - noneThere, back - noneBack})
	there, back = linear("2.15", true)
	require.Equal(t, [2]int64{lt, pool}, [2]int64{there - noneThere, back - noneBack})
	noneThere, _ = linear("1.12", false)
	there, _ = linear("2.15", false)
	require.Equal(t, int64(pool), there-noneThere)
}

// TestSumsOfColumns is the buffer for a bias of 1024 over 3000 rows on 108 multiprocessors: 47 blocks, as the rule of
// core/memory says; a few rows need none.
func TestSumsOfColumns(t *testing.T) {
	sums := func(rows int64, gpu ...int) int64 {
		p := newTracker(settings{})
		if len(gpu) > 0 {
			p.sums.Multiprocessors = &gpu[0]
		}
		n := &node{}
		p.takesColumnSum(n, rows, 1024)
		if n.scratchCount == 0 {
			return 0
		}
		return p.rows[n.scratch[0].row].bytes()
	}
	require.Equal(t, int64(4*1024*47*128), sums(3000))
	require.Equal(t, int64(4*1024*6*128), sums(3000, 3))
	require.Zero(t, sums(200))
}
