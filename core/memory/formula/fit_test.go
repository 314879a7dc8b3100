package formula

import (
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
	f, err := NewFitter(vars, shapes, nil)
	require.NoError(t, err)
	sizes := make([]int64, len(shapes))
	for i, s := range shapes {
		sizes[i] = size(s)
	}
	return f.Fit(sizes), f
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
		shapes  []trace.Shape
		size    func(trace.Shape) int64
		formula string
	}{
		"constant":     {several, func(trace.Shape) int64 { return 4096 }, "4096"},
		"batch":        {several, func(s trace.Shape) int64 { return 8 * s.Batch }, "8·B"},
		"input":        {several, func(s trace.Shape) int64 { return 4 * s.Batch * s.Length }, "4·B·input"},
		"frames":       {several, func(s trace.Shape) int64 { return 512 * s.Batch * tracetest.Frames(s.Length) }, "512·B·length2"},
		"length alone": {several, func(s trace.Shape) int64 { return 8 * tracetest.Frames(s.Length) }, "8·length2"},
		"scores": {several, func(s trace.Shape) int64 {
			return 32 * s.Batch * tracetest.Frames(s.Length) * tracetest.Frames(s.Length)
		}, "32·B·length2·length2"},
		"labels":          {several, func(s trace.Shape) int64 { return 8 * s.Batch * s.Labels }, "8·B·labels"},
		"cross attention": {several, func(s trace.Shape) int64 { return s.Batch * s.Labels * tracetest.Frames(s.Length) }, "1·B·labels·length2"},
		"CTC":             {several, func(s trace.Shape) int64 { return 4 * s.Batch * tracetest.Frames(s.Length) * (2*s.Labels + 1) }, "4·B·length2·(2labels+1)"},
		"relative":        {several, func(s trace.Shape) int64 { return 128 * (2*tracetest.Frames(s.Length) - 1) }, "128·(2length2-1)"},
		"class token":     {several, func(s trace.Shape) int64 { return 128 * s.Batch * (tracetest.Frames(s.Length) + 1) }, "128·B·(length2+1)"},
		"log-sum-exp":     {several, func(s trace.Shape) int64 { return 64 * s.Batch * tracetest.RoundUp(tracetest.Frames(s.Length), 32) }, "64·B·up32(length2)"},
		"aligned mask": {several, func(s trace.Shape) int64 {
			return 2 * s.Batch * tracetest.Frames(s.Length) * tracetest.RoundUp(tracetest.Frames(s.Length), 8)
		}, "2·B·length2·up8(length2)"},
		"aligned both ways": {several, func(s trace.Shape) int64 {
			return 2 * s.Batch * tracetest.RoundUp(tracetest.Frames(s.Length), 64) * tracetest.RoundUp(tracetest.Frames(s.Length), 64)
		}, "2·B·up64(length2)·up64(length2)"},
		"flags in bits":    {evenly, func(s trace.Shape) int64 { return 3 * s.Batch * s.Length / 2 }, "1.5·B·input"},
		"padded":           {several, func(s trace.Shape) int64 { return 128 * s.Batch * (s.Length + 30) }, "3840·B + 128·B·input"},
		"shifted labels":   {several, func(s trace.Shape) int64 { return 8 * s.Batch * (s.Labels - 1) }, "-8·B + 8·B·labels"},
		"two maps at once": {several, func(s trace.Shape) int64 { return 4*s.Batch*s.Length + 7*s.Batch*s.Labels*s.Labels }, "4·B·input + 7·B·labels·labels"},
		"three terms": {several, func(s trace.Shape) int64 { n := tracetest.Frames(s.Length); return s.Batch * (3*n*n + 40*n + 1000) },
			"1000·B + 40·B·length2 + 3·B·length2·length2"},
		"one clip":          {oneClip, func(s trace.Shape) int64 { return 512 * tracetest.Frames(s.Length) }, "512·length2"},
		"one clip, affine":  {oneClip, func(s trace.Shape) int64 { return 512*tracetest.Frames(s.Length) + 640 }, "640 + 512·length2"},
		"fixed length":      {oneLong, func(s trace.Shape) int64 { return 512 * s.Batch * tracetest.Frames(s.Length) }, "256000·B"},
		"fixed, and labels": {oneLong, func(s trace.Shape) int64 { return 4 * s.Batch * tracetest.Frames(s.Length) * s.Labels }, "2000·B·labels"},
	} {
		t.Run(name, func(t *testing.T) {
			fitted, f := fitting(t, c.shapes, c.size)
			require.Equal(t, c.formula, fitted.Describe(f.vars))
			require.False(t, fitted.Inexact)
			require.False(t, fitted.Ambiguous)
			for _, s := range elsewise {
				if c.shapes[0].Length == c.shapes[1].Length {
					s.Length = c.shapes[0].Length
				}
				if c.shapes[0].Batch == 1 {
					s.Batch = 1
				}
				v, err := f.vars.At(s)
				require.NoError(t, err)
				require.Equal(t, uint64(c.size(s)), fitted.Size(v))
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
	v, err := f.vars.At(elsewise[0])
	require.NoError(t, err)
	require.InEpsilon(t, 10*tracetest.Frames(5002)*8, fitted.Size(v), 0.02)
	for i := range several { // traced shapes keep what was traced there
		require.Equal(t, uint64(fitted.traced[i].size), fitted.Size(f.points[i]))
	}

	// A kernel that rounds inside a sum: the sum is found, from above.
	runs := func(s trace.Shape) int64 { n := tracetest.Frames(s.Length); return 64 * (n*n/10 + 73) }
	fitted, f = fitting(t, several, runs)
	require.True(t, fitted.Inexact)
	require.LessOrEqual(t, fitted.Residual, 0.002)
	v, err = f.vars.At(elsewise[0])
	require.NoError(t, err)
	require.InEpsilon(t, runs(elsewise[0]), fitted.Size(v), 0.002)
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
	require.Equal(t, "16·up32(length2)", fitted.Describe(f.vars))

	// Another template knows which.
	f.confirmed = Confirmed{}
	f.confirmed.Add(Formula{terms: []term{{monomial: monomial{a: variableBatch, b: int16(f.vars.index(2, 7))}}}})
	sizes := []int64{}
	for _, s := range alike {
		sizes = append(sizes, padded(64)(s))
	}
	fitted = f.Fit(sizes)
	require.False(t, fitted.Ambiguous)
	require.Equal(t, "16·up64(length2)", fitted.Describe(f.vars))

	// Batch and labels in step with each other.
	inStep := shapes(of{2, 1231, 20}, of{3, 1943, 30}, of{5, 2792, 50})
	fitted, f = fitting(t, inStep, func(s trace.Shape) int64 { return 40 * s.Batch })
	require.True(t, fitted.Ambiguous)
	require.Equal(t, "40·B", fitted.Describe(f.vars))

	// One length twice the other at every shape: the later one, and no fuss about half a frame.
	fitted, f = fitting(t, shapes(of{2, 1220, 11}, of{3, 1946, 17}, of{5, 2792, 7}), func(s trace.Shape) int64 { return 128 * s.Batch * tracetest.Frames(s.Length) })
	require.False(t, fitted.Ambiguous)
	require.Equal(t, "128·B·length2", fitted.Describe(f.vars))
}

func TestSizesDoNotOverflow(t *testing.T) {
	fitted, f := fitting(t, several, func(s trace.Shape) int64 { return 32 * s.Batch * s.Length * s.Length })
	largestShape := shape(trace.MaxBatch, trace.MaxLength, trace.MaxLabels)
	v, err := f.vars.At(largestShape)
	require.NoError(t, err)
	require.Equal(t, uint64(trace.TooLarge), fitted.Size(v))

	negative, f := fitting(t, several, func(s trace.Shape) int64 { return 8 * s.Batch * (s.Labels - 1) })
	none := shape(4, 1231, 0)
	v, err = f.vars.At(none)
	require.NoError(t, err)
	require.Zero(t, negative.Size(v))
}

func TestVariables(t *testing.T) {
	vars := Variables(tracetest.New(1).Trace.Lengths)
	v, err := vars.At(shape(3, 1000, 7))
	require.NoError(t, err)
	require.Len(t, v.values, vars.count())
	named := map[string]int64{}
	for i := range v.values {
		named[vars.name(i)] = v.values[i]
	}
	require.Equal(t, int64(3), named["B"])
	require.Equal(t, int64(332), named["length1"]) // (1000 - 5) / 3 + 1
	require.Equal(t, int64(166), named["length2"]) // (332 + 2 - 3) / 2 + 1
	require.Equal(t, int64(192), named["up32(length2)"])
	require.Equal(t, int64(331), named["(2length2-1)"])
	require.Equal(t, int64(15), named["(2labels+1)"])
	_, err = vars.At(shape(3, 2, 7))
	require.ErrorContains(t, err, "too short")
}
