package formula

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

type of = [3]int64

var shape, shapes = tracetest.ShapeOf, tracetest.ShapesOf

// fitting fits sizes that a function gives at shapes, and compares at others.
func fitting(t *testing.T, shapes []trace.Shape, size func(trace.Shape) int64) (Formula, *Fitter) {
	t.Helper()
	vars := Variables(tracetest.New(1).Trace.Lengths)
	f := NewFitter(vars, shapes, nil)
	sizes := make([]int64, len(shapes))
	for i, s := range shapes {
		sizes[i] = size(s)
	}
	return f.Fit(sizes), f
}

func sizeAt(t *testing.T, fitted Formula, f *Fitter, s trace.Shape) uint64 {
	t.Helper()
	v, err := f.vars.At(s)
	require.NoError(t, err)
	return fitted.Size(v)
}

var (
	several  = shapes(of{2, 1231, 11}, of{3, 1943, 17}, of{5, 2792, 7}, of{4, 1666, 23})
	evenly   = shapes(of{2, 1230, 11}, of{3, 1942, 17}, of{5, 2792, 7}, of{4, 1666, 23})
	oneClip  = shapes(of{1, 1231, 13}, of{1, 2792, 19}, of{1, 1943, 5})
	oneLong  = shapes(of{2, 3000, 11}, of{3, 3000, 17}, of{5, 3000, 29})
	elsewise = shapes(of{8, 5002, 60}, of{1, 900, 1}, of{16, 65536, 301})
)

func TestExactFormulas(t *testing.T) {
	for name, c := range map[string]struct {
		shapes []trace.Shape
		size   func(trace.Shape) int64
	}{
		"constant":     {several, func(trace.Shape) int64 { return 4096 }},
		"batch":        {several, func(s trace.Shape) int64 { return 8 * s.Batch }},
		"input":        {several, func(s trace.Shape) int64 { return 4 * s.Batch * s.Length }},
		"frames":       {several, func(s trace.Shape) int64 { return 512 * s.Batch * tracetest.Frames(s.Length) }},
		"length alone": {several, func(s trace.Shape) int64 { return 8 * tracetest.Frames(s.Length) }},
		"scores": {several, func(s trace.Shape) int64 {
			return 32 * s.Batch * tracetest.Frames(s.Length) * tracetest.Frames(s.Length)
		}},
		"labels":          {several, func(s trace.Shape) int64 { return 8 * s.Batch * s.Labels }},
		"cross attention": {several, func(s trace.Shape) int64 { return s.Batch * s.Labels * tracetest.Frames(s.Length) }},
		"CTC":             {several, func(s trace.Shape) int64 { return 4 * s.Batch * tracetest.Frames(s.Length) * (2*s.Labels + 1) }},
		"relative":        {several, func(s trace.Shape) int64 { return 128 * (2*tracetest.Frames(s.Length) - 1) }},
		"class token":     {several, func(s trace.Shape) int64 { return 128 * s.Batch * (tracetest.Frames(s.Length) + 1) }},
		"log-sum-exp":     {several, func(s trace.Shape) int64 { return 64 * s.Batch * tracetest.RoundUp(tracetest.Frames(s.Length), 32) }},
		"aligned mask": {several, func(s trace.Shape) int64 {
			return 2 * s.Batch * tracetest.Frames(s.Length) * tracetest.RoundUp(tracetest.Frames(s.Length), 8)
		}},
		"aligned both ways": {several, func(s trace.Shape) int64 {
			return 2 * s.Batch * tracetest.RoundUp(tracetest.Frames(s.Length), 64) * tracetest.RoundUp(tracetest.Frames(s.Length), 64)
		}},
		"flags in bits":     {evenly, func(s trace.Shape) int64 { return 3 * s.Batch * s.Length / 2 }},
		"padded":            {several, func(s trace.Shape) int64 { return 128 * s.Batch * (s.Length + 30) }},
		"shifted labels":    {several, func(s trace.Shape) int64 { return 8 * s.Batch * (s.Labels - 1) }},
		"two maps at once":  {several, func(s trace.Shape) int64 { return 4*s.Batch*s.Length + 7*s.Batch*s.Labels*s.Labels }},
		"three terms":       {several, func(s trace.Shape) int64 { n := tracetest.Frames(s.Length); return s.Batch * (3*n*n + 40*n + 1000) }},
		"one clip":          {oneClip, func(s trace.Shape) int64 { return 512 * tracetest.Frames(s.Length) }},
		"one clip, affine":  {oneClip, func(s trace.Shape) int64 { return 512*tracetest.Frames(s.Length) + 640 }},
		"fixed length":      {oneLong, func(s trace.Shape) int64 { return 512 * s.Batch * tracetest.Frames(s.Length) }},
		"fixed, and labels": {oneLong, func(s trace.Shape) int64 { return 4 * s.Batch * tracetest.Frames(s.Length) * s.Labels }},
	} {
		t.Run(name, func(t *testing.T) {
			fitted, f := fitting(t, c.shapes, c.size)
			require.False(t, fitted.Inexact)
			require.False(t, fitted.Ambiguous)
			for _, s := range elsewise {
				if c.shapes[0].Length == c.shapes[1].Length {
					s.Length = c.shapes[0].Length
				}
				if c.shapes[0].Batch == 1 {
					s.Batch = 1
				}
				require.Equal(t, uint64(c.size(s)), sizeAt(t, fitted, f, s))
			}
		})
	}
}

func TestInexactFormulas(t *testing.T) {
	noise := []int64{3, -2, 0, 5}
	count := 0
	fitted, f := fitting(t, several, func(s trace.Shape) int64 {
		count++
		return 10 * (tracetest.Frames(s.Length)*s.Batch + noise[count-1])
	})
	require.True(t, fitted.Inexact)
	require.InDelta(t, 0.01, fitted.Residual, 0.01)
	require.InEpsilon(t, 10*tracetest.Frames(5002)*8, sizeAt(t, fitted, f, elsewise[0]), 0.02)
	for i := range several { // traced shapes keep what was traced there
		require.Equal(t, uint64(fitted.traced[i].size), fitted.Size(f.points[i]))
	}

	// A kernel that rounds inside a sum: the sum is found, from above.
	runs := func(s trace.Shape) int64 { n := tracetest.Frames(s.Length); return 64 * (n*n/10 + 73) }
	fitted, f = fitting(t, several, runs)
	require.True(t, fitted.Inexact)
	require.LessOrEqual(t, fitted.Residual, 0.002)
	require.InEpsilon(t, runs(elsewise[0]), sizeAt(t, fitted, f, elsewise[0]), 0.002)
}

// TestAmbiguousFormulas: where shapes do not tell formulas apart, the stated order decides and the
// fit says so.
func TestAmbiguousFormulas(t *testing.T) {
	// In all three shapes the frames round up to the same multiples of 32 and of 64.
	alike := shapes(of{1, 246, 3}, of{1, 630, 5}, of{1, 1019, 8})
	padded := func(multiple int64) func(trace.Shape) int64 {
		return func(s trace.Shape) int64 { return 16 * tracetest.RoundUp(tracetest.Frames(s.Length), multiple) }
	}
	for _, s := range alike {
		require.Equal(t, tracetest.RoundUp(tracetest.Frames(s.Length), 32), tracetest.RoundUp(tracetest.Frames(s.Length), 64))
	}
	fitted, f := fitting(t, alike, padded(64))
	require.True(t, fitted.Ambiguous)
	other := elsewise[1] // whose frames round up to other multiples
	require.Equal(t, uint64(padded(32)(other)), sizeAt(t, fitted, f, other))

	// Another template knows which.
	f.confirmed = Confirmed{}
	f.confirmed.Add(Formula{terms: []term{{monomial: monomial{a: variableBatch, b: int16(f.vars.index(2, 7))}}}})
	sizes := []int64{}
	for _, s := range alike {
		sizes = append(sizes, padded(64)(s))
	}
	fitted = f.Fit(sizes)
	require.False(t, fitted.Ambiguous)
	require.Equal(t, uint64(padded(64)(other)), sizeAt(t, fitted, f, other))

	// Batch and labels in step with each other.
	inStep := shapes(of{2, 1231, 20}, of{3, 1943, 30}, of{5, 2792, 50})
	fitted, f = fitting(t, inStep, func(s trace.Shape) int64 { return 40 * s.Batch })
	require.True(t, fitted.Ambiguous)
	require.Equal(t, uint64(40*8), sizeAt(t, fitted, f, elsewise[0]))

	// One length twice the other at every shape: the later one, and no fuss about half a frame.
	fitted, f = fitting(t, shapes(of{2, 1220, 11}, of{3, 1946, 17}, of{5, 2792, 7}), func(s trace.Shape) int64 { return 128 * s.Batch * tracetest.Frames(s.Length) })
	require.False(t, fitted.Ambiguous)
	require.Equal(t, uint64(128*8*tracetest.Frames(5002)), sizeAt(t, fitted, f, elsewise[0]))
}

func TestSizesDoNotOverflow(t *testing.T) {
	fitted, f := fitting(t, several, func(s trace.Shape) int64 { return 32 * s.Batch * s.Length * s.Length })
	largest := shape(trace.MaxBatch, trace.MaxLength, trace.MaxLabels)
	require.Equal(t, uint64(trace.TooLarge), sizeAt(t, fitted, f, largest))

	negative, f := fitting(t, several, func(s trace.Shape) int64 { return 8 * s.Batch * (s.Labels - 1) })
	require.Zero(t, sizeAt(t, negative, f, shape(4, 1231, 0)))
}

func TestVariables(t *testing.T) {
	vars := Variables(tracetest.New(1).Trace.Lengths)
	v, err := vars.At(shape(3, 1000, 7))
	require.NoError(t, err)
	require.Len(t, v.values, vars.count())
	require.Equal(t, int64(3), v.values[variableBatch])
	labels := vars.bases() - 1
	for _, row := range []struct {
		base     int
		derived  derivation
		expected int64
	}{
		{1, derivation{times: 1}, 332}, // (1000 - 5) / 3 + 1
		{2, derivation{times: 1}, 166}, // (332 + 2 - 3) / 2 + 1
		{2, derivation{times: 1, multiple: 32}, 192},
		{2, derivation{times: 2, plus: -1}, 331},
		{labels, derivation{times: 2, plus: 1}, 15},
	} {
		index := vars.index(row.base, slices.Index(derivations, row.derived))
		require.Equal(t, row.expected, v.values[index], row)
	}
	_, err = vars.At(shape(3, 2, 7))
	require.ErrorContains(t, err, "too short")
}
