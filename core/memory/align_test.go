package memory

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCanonicalOrder(t *testing.T) {
	s := &Segment{Kind: KindMicro, Events: []int64{10, 20, -1, -13, -12, 30, -14, -11, 40}, Phases: []Phase{{0, "forward"}, {5, "backward"}}}
	v := canonical(s, 10) // storages 0 to 9 are of earlier segments
	require.Equal(t, []int32{0, 1, ^1, ^2, 2, ^0, ^3, 3}, v.class.events)
	require.Equal(t, []carried{{2, 0}}, v.carried)
	require.Equal(t, []int64{10, 20, 30, 40}, v.sizes)
	require.Equal(t, []phaseStart{{0, "forward"}, {2, "backward"}}, v.class.phases)
}

func TestClasses(t *testing.T) {
	for accumulation, want := range map[int]map[string][][]int{
		1: {KindMicro: {{1}, {3, 5, 7, 9}, {11, 13, 15}}, KindStep: {{2}, {4, 6, 8, 10, 12, 14, 16}}},
		// The accumulated micro-batch makes no gradients, and is the same in the first window as later.
		2: {KindMicro: {{1}, {4, 7, 10, 13}, {16, 19, 22}}, KindAccumulate: {{2, 5, 8, 11, 14}, {17, 20, 23}}, KindStep: {{3}, {6, 9, 12, 15, 18, 21, 24}}},
	} {
		got := map[string][][]int{}
		for _, c := range usualTrace(accumulation).opened(t).Summary().Classes {
			got[c.Kind] = append(got[c.Kind], c.Segments)
		}
		for kind, segments := range want {
			require.Equal(t, segments, got[kind], "%s with accumulation %d", kind, accumulation)
		}
	}
}

// TestStructureTellsClassesApart changes one thing in the last training window of an otherwise regular trace.
func TestStructureTellsClassesApart(t *testing.T) {
	count := func(change func(*Segment)) int {
		f := usualTrace(1)
		change(&f.t.Segments[9])
		return len(f.opened(t).classes)
	}
	same := count(func(*Segment) {})
	require.Equal(t, same, count(func(s *Segment) { s.Events[0] *= 3 }), "sizes are no structure")
	require.Equal(t, same+1, count(func(s *Segment) { s.Op[4] = 0 }))
	require.Equal(t, same+1, count(func(s *Segment) { s.Module[4] = 2 }))
	require.Equal(t, same+1, count(func(s *Segment) { s.Tag[4] = 5 }))
	require.Equal(t, same+1, count(func(s *Segment) { s.Phases[1].Event -= 4 }))
}

func TestPlaces(t *testing.T) {
	var segments []Segment
	for _, kind := range []string{KindLoad, KindMicro, KindAccumulate, KindAccumulate, KindAccumulate, KindStep, KindMicro, KindStep, KindEvaluate, KindIteration} {
		segments = append(segments, Segment{Kind: kind})
	}
	require.Equal(t, []place{
		{-1, 0, roleLoad}, {0, 0, roleMicro}, {0, 1, roleMiddle}, {0, 2, roleMiddle}, {0, 3, roleLast}, {0, 4, roleStep},
		{1, 0, roleMicro}, {1, 1, roleStep}, {2, 0, roleEvaluate}, {3, 0, roleIteration},
	}, places(segments))
}

func TestComponents(t *testing.T) {
	m := usualTrace(1).opened(t)
	parts := map[string]map[string]bool{} // by operation of a steady micro-batch
	for birth, part := range m.of[3].part {
		op := m.ops[m.of[3].op[birth]]
		if parts[op] == nil {
			parts[op] = map[string]bool{}
		}
		parts[op][m.parts[part]] = true
	}
	require.Equal(t, map[string]map[string]bool{
		"to":        {"inputs": true, "temporaries": true}, // casts of weights die in the forward pass
		"mm":        {"activations": true},
		"attention": {"activations": true},
		"backward":  {"gradients": true, "temporaries": true},
	}, parts)
}

// TestEndOfRecording: what the recorder lets go of at the very end says nothing about training.
func TestEndOfRecording(t *testing.T) {
	f := newFakeLoop(3)
	for _, s := range usual[:2] {
		f.window(s, 1)
	}
	f.die(f.states...)
	f.die(f.params...)
	f.die(f.inputs...)
	shapes := []Shape{usual[0], usual[0], usual[0], usual[0]}
	longer := newFakeLoop(3)
	longer.run(shapes, 1)
	want := direct(training(&longer.t), settingsNone)
	got := replayed(t, f.opened(t), equalWindows(shapes, 1), settingsNone)
	for i, s := range got[:6] {
		require.InDelta(t, want[i].peakAllocated, s.peakAllocated, float64(shapes[0].Length*4*shapes[0].Batch), "segment %d", i)
	}
}
