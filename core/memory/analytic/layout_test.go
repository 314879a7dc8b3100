package analytic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/device"
)

// peaksOf plays an operation on a tensor whose gradient is asked for: the highest moments of forward and backward.
func peaksOf(t *tape, x value, play func(value) value) (there, back int64) {
	y := play(x)
	there = t.window.peak.total
	loss := t.summed("loss", y, of(dim{"loss", 1}), float32s)
	t.drop(x, y)
	t.endForward()
	t.window = &window{}
	t.runBackward(loss)
	return there, t.window.peak.total
}

// TestTransposedTensorsAreCopied counts two copies of 102 400 B more: of the input, forward and backward, and of the gradient.
func TestTransposedTensorsAreCopied(t *testing.T) {
	const copied = 4 * 100 * 64 * 4
	plays := map[string]func(*tape, value) value{
		"norm": func(t *tape, x value) value { return t.norm("y", x, of(testBatch, testFrames), narrow) },
		"convolution": func(t *tape, x value) value {
			return t.convolution("y", x, of(testBatch, narrow, testFrames), false, narrow, narrow, dim{"taps", 3})
		},
	}
	for name, play := range plays {
		p, x := testTape(false)
		there, back := peaksOf(p, x, func(x value) value { return play(p, x) })
		p, x = testTape(false)
		turnedThere, turnedBack := peaksOf(p, x, func(x value) value {
			y := play(p, x.turn())
			require.False(t, y.turned, "the result is in order")
			p.turnedGradient(y, false)
			return y
		})
		require.Equal(t, int64(copied), turnedThere-there, name)
		require.Equal(t, int64(2*copied), turnedBack-back, name)
	}
}

func TestOrderOfElementwiseResults(t *testing.T) {
	p, x := testTape(true)
	plain, x := x, x.turn()
	require.True(t, p.cast(x, halves).turned)
	require.True(t, p.pointwise("gelu", x).turned)
	require.True(t, p.fromResult("relu", x).turned)
	require.True(t, p.dropout(x, 0.1).turned)
	require.True(t, p.sum(x, plain).turned, "as the first operand")
	require.False(t, p.sum(plain, x).turned)
	require.False(t, p.cloned("y", x).turned)
	require.False(t, p.linear("y", x, broad, true).turned)
	require.False(t, x.turn().turned)
}

// TestWorkspacesOfProducts compares PyTorch versions: two workspaces that stay, or one for each call, 1 MiB with a bias.
func TestWorkspacesOfProducts(t *testing.T) {
	const pool, lt = 8.125 * (1 << 20), 1 << 20
	linear := func(torch string, bias bool) (there, back int64) {
		p, x := testTape(false)
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
		p := newTape(settings{})
		if len(gpu) > 0 {
			p.sums.Multiprocessors = &gpu[0]
		}
		n := &node{}
		p.sumsColumns(n, rows, 1024)
		if n.passes == 0 {
			return 0
		}
		return p.rows[n.passing[0].row].bytes()
	}
	require.Equal(t, int64(4*1024*47*128), sums(3000))
	require.Equal(t, int64(4*1024*6*128), sums(3000, 3))
	require.Zero(t, sums(200))
}
