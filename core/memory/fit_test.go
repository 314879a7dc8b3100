package memory

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// fitting fits sizes that a function gives at shapes, and compares at others.
func fitting(t *testing.T, shapes []Shape, size func(Shape, []int64) int64) (form, bool, *fitter) {
	t.Helper()
	vars := variables{newFakeLoop(1).t.Lengths}
	f, err := newFitter(vars, shapes, nil)
	require.NoError(t, err)
	sizes := make([]int64, len(shapes))
	for i, s := range shapes {
		sizes[i] = size(s, f.rows[i])
	}
	found, ambiguous := f.fit(sizes)
	return found, ambiguous, f
}

var (
	several  = []Shape{{2, 1231, 11}, {3, 1943, 17}, {5, 2792, 7}, {4, 1666, 23}}
	evenly   = []Shape{{2, 1230, 11}, {3, 1942, 17}, {5, 2792, 7}, {4, 1666, 23}}
	oneClip  = []Shape{{1, 1231, 13}, {1, 2792, 19}, {1, 1943, 5}}
	oneLong  = []Shape{{2, 3000, 11}, {3, 3000, 17}, {5, 3000, 29}}
	elsewise = []Shape{{8, 5002, 60}, {1, 900, 1}, {16, 65536, 301}}
)

func TestExactForms(t *testing.T) {
	for name, c := range map[string]struct {
		shapes  []Shape
		size    func(Shape, []int64) int64
		formula string
	}{
		"constant":        {several, func(Shape, []int64) int64 { return 4096 }, "4096"},
		"batch":           {several, func(s Shape, _ []int64) int64 { return 8 * s.Batch }, "8·B"},
		"input":           {several, func(s Shape, _ []int64) int64 { return 4 * s.Batch * s.Length }, "4·B·input"},
		"frames":          {several, func(s Shape, _ []int64) int64 { return 512 * s.Batch * frames(s.Length) }, "512·B·length2"},
		"length alone":    {several, func(s Shape, _ []int64) int64 { return 8 * frames(s.Length) }, "8·length2"},
		"scores":          {several, func(s Shape, _ []int64) int64 { return 32 * s.Batch * frames(s.Length) * frames(s.Length) }, "32·B·length2·length2"},
		"labels":          {several, func(s Shape, _ []int64) int64 { return 8 * s.Batch * s.Labels }, "8·B·labels"},
		"cross attention": {several, func(s Shape, _ []int64) int64 { return s.Batch * s.Labels * frames(s.Length) }, "1·B·labels·length2"},
		"CTC":             {several, func(s Shape, _ []int64) int64 { return 4 * s.Batch * frames(s.Length) * (2*s.Labels + 1) }, "4·B·length2·(2labels+1)"},
		"relative":        {several, func(s Shape, _ []int64) int64 { return 128 * (2*frames(s.Length) - 1) }, "128·(2length2-1)"},
		"class token":     {several, func(s Shape, _ []int64) int64 { return 128 * s.Batch * (frames(s.Length) + 1) }, "128·B·(length2+1)"},
		"log-sum-exp":     {several, func(s Shape, _ []int64) int64 { return 64 * s.Batch * up(frames(s.Length), 32) }, "64·B·up32(length2)"},
		"aligned mask":    {several, func(s Shape, _ []int64) int64 { return 2 * s.Batch * frames(s.Length) * up(frames(s.Length), 8) }, "2·B·length2·up8(length2)"},
		"aligned both ways": {several, func(s Shape, _ []int64) int64 {
			return 2 * s.Batch * up(frames(s.Length), 64) * up(frames(s.Length), 64)
		}, "2·B·up64(length2)·up64(length2)"},
		"flags in bits":    {evenly, func(s Shape, _ []int64) int64 { return 3 * s.Batch * s.Length / 2 }, "1.5·B·input"},
		"padded":           {several, func(s Shape, _ []int64) int64 { return 128 * s.Batch * (s.Length + 30) }, "3840·B + 128·B·input"},
		"shifted labels":   {several, func(s Shape, _ []int64) int64 { return 8 * s.Batch * (s.Labels - 1) }, "-8·B + 8·B·labels"},
		"two maps at once": {several, func(s Shape, _ []int64) int64 { return 4*s.Batch*s.Length + 7*s.Batch*s.Labels*s.Labels }, "4·B·input + 7·B·labels·labels"},
		"three terms": {several, func(s Shape, _ []int64) int64 { n := frames(s.Length); return s.Batch * (3*n*n + 40*n + 1000) },
			"1000·B + 40·B·length2 + 3·B·length2·length2"},
		"one clip":          {oneClip, func(s Shape, _ []int64) int64 { return 512 * frames(s.Length) }, "512·length2"},
		"one clip, affine":  {oneClip, func(s Shape, _ []int64) int64 { return 512*frames(s.Length) + 640 }, "640 + 512·length2"},
		"fixed length":      {oneLong, func(s Shape, _ []int64) int64 { return 512 * s.Batch * frames(s.Length) }, "256000·B"},
		"fixed, and labels": {oneLong, func(s Shape, _ []int64) int64 { return 4 * s.Batch * frames(s.Length) * s.Labels }, "2000·B·labels"},
	} {
		t.Run(name, func(t *testing.T) {
			found, ambiguous, f := fitting(t, c.shapes, c.size)
			require.Equal(t, c.formula, found.describe(f.vars))
			require.False(t, found.inexact)
			require.False(t, ambiguous)
			for _, s := range elsewise {
				if c.shapes[0].Length == c.shapes[1].Length {
					s.Length = c.shapes[0].Length
				}
				if c.shapes[0].Batch == 1 {
					s.Batch = 1
				}
				v, err := f.vars.values(s, nil)
				require.NoError(t, err)
				require.Equal(t, uint64(c.size(s, v)), found.size(s, v))
			}
		})
	}
}

func TestInexactForms(t *testing.T) {
	noise := []int64{3, -2, 0, 5}
	count := 0
	found, _, f := fitting(t, several, func(s Shape, _ []int64) int64 {
		count++
		return 10 * (frames(s.Length)*s.Batch + noise[count-1])
	})
	require.True(t, found.inexact)
	require.InDelta(t, 0.01, found.residual, 0.01)
	v, err := f.vars.values(elsewise[0], nil)
	require.NoError(t, err)
	require.InEpsilon(t, 10*frames(5002)*8, found.size(elsewise[0], v), 0.02)
	for i, s := range several { // traced shapes keep what was seen there
		require.Equal(t, uint64(found.seen[i].size), found.size(s, f.rows[i]))
	}

	// A kernel that rounds inside a sum: the sum is found, from above.
	runs := func(s Shape, _ []int64) int64 { n := frames(s.Length); return 64 * (n*n/10 + 73) }
	found, _, f = fitting(t, several, runs)
	require.True(t, found.inexact)
	require.LessOrEqual(t, found.residual, 0.002)
	for _, s := range elsewise[:1] {
		v, err := f.vars.values(s, nil)
		require.NoError(t, err)
		require.InEpsilon(t, runs(s, nil), found.size(s, v), 0.002)
	}
}

// TestAmbiguousForms: where shapes do not tell forms apart, the stated order decides and the fit says so.
func TestAmbiguousForms(t *testing.T) {
	// In all three shapes the frames round up to the same multiples of 32 and of 64.
	alike := []Shape{{1, 246, 3}, {1, 630, 5}, {1, 1019, 8}}
	padded := func(multiple int64) func(Shape, []int64) int64 {
		return func(s Shape, _ []int64) int64 { return 16 * up(frames(s.Length), multiple) }
	}
	for _, s := range alike {
		require.Equal(t, up(frames(s.Length), 32), up(frames(s.Length), 64))
	}
	found, ambiguous, f := fitting(t, alike, padded(64))
	require.True(t, ambiguous)
	require.Equal(t, "16·up32(length2)", found.describe(f.vars))

	// Another class knows which.
	f.known = familiar{}
	f.known.add(form{terms: []term{{monomial: monomial{a: variableBatch, b: int16(f.vars.at(2, 7))}}}})
	sizes := []int64{}
	for _, s := range alike {
		sizes = append(sizes, padded(64)(s, nil))
	}
	found, ambiguous = f.fit(sizes)
	require.False(t, ambiguous)
	require.Equal(t, "16·up64(length2)", found.describe(f.vars))

	// Batch and labels in step with each other.
	inStep := []Shape{{2, 1231, 20}, {3, 1943, 30}, {5, 2792, 50}}
	found, ambiguous, f = fitting(t, inStep, func(s Shape, _ []int64) int64 { return 40 * s.Batch })
	require.True(t, ambiguous)
	require.Equal(t, "40·B", found.describe(f.vars))

	// One rung twice the other at every shape: the later one, and no fuss about half a frame.
	found, ambiguous, f = fitting(t, []Shape{{2, 1220, 11}, {3, 1946, 17}, {5, 2792, 7}}, func(s Shape, _ []int64) int64 { return 128 * s.Batch * frames(s.Length) })
	require.False(t, ambiguous)
	require.Equal(t, "128·B·length2", found.describe(f.vars))
}

func TestSizesDoNotOverflow(t *testing.T) {
	found, _, f := fitting(t, several, func(s Shape, _ []int64) int64 { return 32 * s.Batch * s.Length * s.Length })
	most := Shape{maxBatch, maxLength, maxLabels}
	v, err := f.vars.values(most, nil)
	require.NoError(t, err)
	require.Equal(t, uint64(tooLarge), found.size(most, v))

	negative, _, f := fitting(t, several, func(s Shape, _ []int64) int64 { return 8 * s.Batch * (s.Labels - 1) })
	none := Shape{4, 1231, 0}
	v, err = f.vars.values(none, nil)
	require.NoError(t, err)
	require.Zero(t, negative.size(none, v))
}

func TestVariables(t *testing.T) {
	vars := variables{newFakeLoop(1).t.Lengths}
	v, err := vars.values(Shape{3, 1000, 7}, nil)
	require.NoError(t, err)
	require.Len(t, v, vars.count())
	named := map[string]int64{}
	for i := range v {
		named[vars.name(i)] = v[i]
	}
	require.Equal(t, int64(3), named["B"])
	require.Equal(t, int64(332), named["length1"]) // (1000 - 5) / 3 + 1
	require.Equal(t, int64(166), named["length2"]) // (332 + 2 - 3) / 2 + 1
	require.Equal(t, int64(192), named["up32(length2)"])
	require.Equal(t, int64(331), named["(2length2-1)"])
	require.Equal(t, int64(15), named["(2labels+1)"])
	_, err = vars.values(Shape{3, 2, 7}, nil)
	require.ErrorContains(t, err, "too short")
}
