package memory

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// traceOf records windows at these shapes, the first twice.
func traceOf(shapes ...Shape) *fakeLoop {
	f := newFakeLoop(2)
	f.run(append([]Shape{shapes[0]}, shapes...), 1)
	return f
}

func ask(m *Model, s Shape) error {
	_, err := m.Simulate(Request{Batch: &s.Batch, Length: &s.Length, Labels: &s.Labels})
	return err
}

func TestWhatATraceAnswers(t *testing.T) {
	three := []Shape{{2, 1231, 11}, {3, 1943, 17}, {5, 2792, 7}}
	for name, c := range map[string]struct {
		traced   []Shape
		yes, not []Shape
	}{
		"larger batches only": {three, []Shape{{2, 9000, 50}, {64, 500, 0}}, []Shape{{1, 1231, 11}}},
		"with batches of one": {append(three, Shape{1, 1231, 13}, Shape{1, 2792, 19}, Shape{1, 1943, 5}), []Shape{{1, 7777, 3}, {7, 7777, 3}}, nil},
		"one of one":          {append(three, Shape{1, 1231, 13}), []Shape{{1, 1231, 13}, {6, 4000, 9}}, []Shape{{1, 1232, 13}}},
		"two shapes":          {three[:2], three[:2], []Shape{{4, 1500, 12}}},
		"one batch size":      {[]Shape{{4, 1231, 11}, {4, 1943, 17}, {4, 2792, 7}}, []Shape{{4, 5000, 60}}, []Shape{{3, 1231, 11}, {1, 1231, 11}}},
		"one length":          {[]Shape{{2, 3000, 11}, {3, 3000, 17}, {5, 3000, 29}}, []Shape{{9, 3000, 400}}, []Shape{{2, 3001, 11}}},
		"one label length":    {[]Shape{{2, 1231, 20}, {3, 1943, 20}, {5, 2792, 20}}, []Shape{{9, 4000, 20}}, []Shape{{2, 1231, 21}}},
		"no labels":           {[]Shape{{2, 1231, 0}, {3, 1943, 0}, {5, 2792, 0}}, []Shape{{9, 4000, 20}, {9, 4000, 0}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := traceOf(c.traced...).opened(t)
			for _, s := range c.yes {
				require.NoError(t, ask(m, s), "%+v", s)
			}
			for _, s := range c.not {
				err := ask(m, s)
				require.ErrorContains(t, err, "the trace does not tell", "%+v", s)
				require.Equal(t, fault.Unsupported, fault.From(err).Code)
				require.Contains(t, fault.From(err).Hint, "trace the shape (")
			}
		})
	}
}

func TestAccumulationThatWasNotTraced(t *testing.T) {
	m := usualTrace(1).opened(t)
	two := 2
	_, err := m.Simulate(Request{Batch: &usual[0].Batch, Length: &usual[0].Length, Accumulation: &two})
	require.Equal(t, fault.Unsupported, fault.From(err).Code)
	require.Contains(t, fault.From(err).Hint, "accumulation")
}

// TestForeignFirstWindow: a first window that is not a later one with additions is not played at other shapes.
func TestForeignFirstWindow(t *testing.T) {
	f := newFakeLoop(3)
	f.layers = 1
	f.window(usual[0], 1)
	f.layers = 3
	f.run(usual[1:], 1)
	m := f.opened(t)
	first, err := m.class(place{window: 0, role: roleMicro}, Shape{7, 5000, 9})
	require.NoError(t, err)
	later, err := m.class(place{window: 1, role: roleMicro}, Shape{7, 5000, 9})
	require.NoError(t, err)
	require.Same(t, later, first.named())
	require.Len(t, first.op, len(later.op)+1, "the workspace that stays")
	traced, err := m.class(place{window: 0, role: roleMicro}, usual[0])
	require.NoError(t, err)
	require.Same(t, m.of[1], traced)
}

// TestStructureThatDependsOnTheLength: the shape that was traced itself decides, else what holds for more shapes.
func TestStructureThatDependsOnTheLength(t *testing.T) {
	f := newFakeLoop(2)
	odd := Shape{4, 2000, 9}
	for _, s := range append(slices.Clone(usual[:5]), odd) {
		f.extra = nil
		if s == odd {
			f.extra = func(Shape) int64 { return 77 }
		}
		f.window(s, 1)
	}
	m := f.opened(t)
	births := func(s Shape) int {
		c, err := m.class(place{window: 1, role: roleMicro}, s)
		require.NoError(t, err)
		return len(c.op)
	}
	require.Equal(t, births(usual[2])+2, births(odd), "the storage and its gradient")
	require.Equal(t, births(usual[2]), births(Shape{4, 2001, 9}))
	require.Equal(t, births(usual[2]), births(Shape{9, 8000, 9}))
}
