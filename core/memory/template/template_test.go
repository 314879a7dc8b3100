package template

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

var shape = tracetest.ShapeOf

// built sends a trace through its file format, as the real ones come.
func built(t *testing.T, f *tracetest.Loop) *Set {
	t.Helper()
	read, err := trace.Decode(tracetest.Encode(&f.Trace))
	require.NoError(t, err)
	set, err := New(read)
	require.NoError(t, err)
	return set
}

func TestCanonicalOrder(t *testing.T) {
	s := &trace.Segment{Kind: trace.KindMicro, Events: []int64{10, 20, -1, -13, -12, 30, -14, -11, 40}, Phases: []trace.Phase{{Name: "forward"}, {Event: 5, Name: "backward"}}}
	c := canonicalOf(s, 10) // storages 0 to 9 are of earlier segments
	require.Equal(t, []int32{0, 1, ^1, ^2, 2, ^0, ^3, 3}, c.events)
	require.Equal(t, []earlierFree{{2, 0}}, c.earlier)
	require.Equal(t, []int64{10, 20, 30, 40}, c.sizes)
	require.Equal(t, []Phase{{0, "forward"}, {2, "backward"}}, c.phases)
}

// TestStructureTellsTemplatesApart changes one thing in the last training window of an otherwise
// regular trace.
func TestStructureTellsTemplatesApart(t *testing.T) {
	count := func(change func(*trace.Segment)) int {
		f := tracetest.Usual(1)
		change(&f.Trace.Segments[9])
		return len(built(t, f).Templates)
	}
	same := count(func(*trace.Segment) {})
	require.Equal(t, same, count(func(s *trace.Segment) { s.Events[0] *= 3 }), "sizes are no structure")
	require.Equal(t, same+1, count(func(s *trace.Segment) { s.Op[4] = 0 }))
	require.Equal(t, same+1, count(func(s *trace.Segment) { s.Module[4] = 2 }))
	require.Equal(t, same+1, count(func(s *trace.Segment) { s.Tag[4] = 5 }))
	require.Equal(t, same+1, count(func(s *trace.Segment) { s.Phases[1].Event -= 4 }))
}

func TestPositions(t *testing.T) {
	var segments []trace.Segment
	for _, kind := range []string{trace.KindLoad, trace.KindMicro, trace.KindAccumulate, trace.KindAccumulate, trace.KindAccumulate, trace.KindStep, trace.KindMicro, trace.KindStep, trace.KindEvaluate, trace.KindIteration} {
		segments = append(segments, trace.Segment{Kind: kind})
	}
	require.Equal(t, []Position{
		{-1, 0, Load}, {0, 0, Micro}, {0, 1, Middle}, {0, 2, Middle}, {0, 3, Last}, {0, 4, Step},
		{1, 0, Micro}, {1, 1, Step}, {2, 0, Evaluate}, {3, 0, Iteration},
	}, positions(segments))
}

func TestComponents(t *testing.T) {
	loop := tracetest.Usual(1)
	m := built(t, loop)
	byOp := map[string]map[string]bool{} // by operation of a steady micro-batch
	for _, s := range m.Of[3].Storages {
		op := loop.Trace.Ops[s.Op]
		if byOp[op] == nil {
			byOp[op] = map[string]bool{}
		}
		byOp[op][m.Components[s.Component]] = true
	}
	require.Equal(t, map[string]map[string]bool{
		// casts of weights die in the forward pass
		"to":        {"inputs": true, "temporaries": true},
		"mm":        {"activations": true},
		"attention": {"activations": true},
		"backward":  {"gradients": true, "temporaries": true},
	}, byOp)
}

// TestUnrelatedFirstWindow: a first window that is not a later one with additions is not played at
// other shapes.
func TestUnrelatedFirstWindow(t *testing.T) {
	f := tracetest.New(3)
	f.Layers = 1
	f.Window(tracetest.Shapes[0], 1)
	f.Layers = 3
	f.Run(tracetest.Shapes[1:], 1)
	m := built(t, f)
	first, err := m.For(Position{Window: 0, Role: Micro}, shape(7, 5000, 9))
	require.NoError(t, err)
	later, err := m.For(Position{Window: 1, Role: Micro}, shape(7, 5000, 9))
	require.NoError(t, err)
	require.Same(t, later, first.Base())
	require.Len(t, first.Storages, len(later.Storages)+1, "the workspace that stays")
	traced, err := m.For(Position{Window: 0, Role: Micro}, tracetest.Shapes[0])
	require.NoError(t, err)
	require.Same(t, m.Of[1], traced)
}

// TestStructureThatDependsOnTheLength: the shape that was traced itself decides, else what holds
// for more shapes.
func TestStructureThatDependsOnTheLength(t *testing.T) {
	f := tracetest.New(2)
	odd := shape(4, 2000, 9)
	for _, s := range append(slices.Clone(tracetest.Shapes[:5]), odd) {
		f.Extra = nil
		if s == odd {
			f.Extra = func(trace.Shape) int64 { return 77 }
		}
		f.Window(s, 1)
	}
	m := built(t, f)
	storages := func(s trace.Shape) int {
		c, err := m.For(Position{Window: 1, Role: Micro}, s)
		require.NoError(t, err)
		return len(c.Storages)
	}
	require.Equal(t, storages(tracetest.Shapes[2])+2, storages(odd), "the storage and its gradient")
	require.Equal(t, storages(tracetest.Shapes[2]), storages(shape(4, 2001, 9)))
	require.Equal(t, storages(tracetest.Shapes[2]), storages(shape(9, 8000, 9)))
}
