package memory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

// state is what an allocator shows after a segment.
type state struct{ allocated, reserved, peakAllocated, peakRequested, peakReserved uint64 }

func stateOf(a *allocator.Allocator) state {
	s := a.Stats()
	a.ResetPeaks()
	return state{s.Allocated, s.Reserved, s.PeakAllocated, s.PeakRequested, s.PeakReserved}
}

// direct plays the events of a trace's segments as they are.
func direct(segments []trace.Segment, settings allocator.Settings) (after []state) {
	a := allocator.New(settings)
	var blocks []allocator.Block
	for _, s := range segments {
		for _, e := range s.Events {
			if e < 0 {
				_ = a.Free(blocks[-e-1])
				continue
			}
			block, _ := a.Malloc(uint64(e))
			blocks = append(blocks, block)
		}
		after = append(after, stateOf(a))
	}
	return after
}

// training returns the segments of a trace before its evaluation.
func training(t *trace.Trace) []trace.Segment {
	for i, s := range t.Segments {
		if s.Kind == trace.KindEvaluate {
			return t.Segments[:i]
		}
	}
	return t.Segments
}

// replayed plays windows of the model and returns the state after each segment.
func replayed(t *testing.T, m *Model, windows [][]trace.Shape, settings allocator.Settings) (after []state) {
	t.Helper()
	p := replay.New(m.templates.Variables, settings, reduction.GPU{})
	plan := m.load()
	for number, shapes := range windows {
		window, err := m.window(number, shapes)
		require.NoError(t, err)
		plan = append(plan, window...)
	}
	for _, s := range plan {
		full, err := p.Play(s)
		require.NoError(t, err)
		require.Nil(t, full)
		after = append(after, stateOf(p.Allocator))
	}
	return after
}

func equalWindows(shapes []trace.Shape, accumulation int) (windows [][]trace.Shape) {
	for _, s := range shapes {
		window := make([]trace.Shape, accumulation)
		for i := range window {
			window[i] = s
		}
		windows = append(windows, window)
	}
	return windows
}

// lastStep is left out of comparisons: the recording ends in it, so inputs die there that would
// live on.
func TestTracedRunIsReplayedExactly(t *testing.T) {
	for accumulation := 1; accumulation <= 3; accumulation++ {
		for _, conf := range []string{"", "expandable_segments:True", "max_split_size_mb:32"} {
			t.Run(fmt.Sprintf("%d %s", accumulation, conf), func(t *testing.T) {
				settings, err := allocator.ParseSettings(conf)
				require.NoError(t, err)
				f := tracetest.Usual(accumulation)
				want := direct(training(&f.Trace), settings)
				got := replayed(t, opened(t, f), equalWindows(tracetest.Shapes, accumulation), settings)
				require.Equal(t, want[:len(want)-1], got[:len(got)-1])
			})
		}
	}
}

// TestOtherRunsAreReplayedExactly compares with traces of runs that the model was not made from:
// other shapes in other orders, another number of micro-batches, a first window at a shape of its
// own.
func TestOtherRunsAreReplayedExactly(t *testing.T) {
	runs := map[string][]trace.Shape{
		"longer":        shapes(of{2, 1231, 11}, of{7, 5000, 90}, of{3, 4001, 1}, of{7, 5003, 40}),
		"first differs": shapes(of{6, 3333, 50}, of{6, 3333, 50}, of{2, 9999, 3}),
		"batch of one":  shapes(of{1, 4321, 9}, of{1, 1500, 44}, of{1, 1500, 44}),
	}
	for name, shapes := range runs {
		for _, c := range []struct{ traced, played int }{{1, 1}, {2, 2}, {3, 3}, {3, 8}} {
			t.Run(fmt.Sprintf("%s, accumulation %d from %d", name, c.played, c.traced), func(t *testing.T) {
				other := tracetest.New(3)
				other.Run(shapes, c.played)
				want := direct(training(&other.Trace), allocator.Settings{})
				got := replayed(t, opened(t, tracetest.Usual(c.traced)), equalWindows(shapes, c.played), allocator.Settings{})
				require.Equal(t, want[:len(want)-1], got[:len(got)-1])
			})
		}
	}
}

func TestMicroBatchesOfDifferentLengths(t *testing.T) {
	windows := [][]trace.Shape{shapes(of{2, 1231, 11}, of{2, 2222, 5}), shapes(of{2, 3001, 80}, of{2, 900, 2}), shapes(of{2, 777, 3}, of{2, 4001, 9}), shapes(of{2, 777, 3}, of{2, 4001, 9})}
	other := tracetest.New(3)
	for _, w := range windows {
		for i, s := range w {
			other.Micro(s, i == 0)
		}
		other.Step(w[1])
	}
	require.Equal(t, direct(other.Trace.Segments, allocator.Settings{}), replayed(t, opened(t, tracetest.Usual(2)), windows, allocator.Settings{}))
}

// TestFewerMicroBatchesThanTraced: the loss of a micro-batch was only seen to die in the next one
// of its window, which is not there. It goes with its window at the latest.
func TestFewerMicroBatchesThanTraced(t *testing.T) {
	shapes := shapes(of{2, 1231, 11}, of{2, 1231, 11}, of{2, 2000, 8}, of{2, 2000, 8}, of{2, 2000, 8})
	other := tracetest.New(3)
	other.Run(shapes, 1)
	want := direct(training(&other.Trace), allocator.Settings{})
	got := replayed(t, opened(t, tracetest.Usual(3)), equalWindows(shapes, 1), allocator.Settings{})
	for i := range got[:len(got)-1] {
		require.InDelta(t, want[i].peakAllocated, got[i].peakAllocated, 2*512, "segment %d", i)
	}
}
