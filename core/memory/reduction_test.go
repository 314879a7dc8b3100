package memory

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

// rowsTrace is the usual run with column sums, as recorders write them.
func rowsTrace(accumulation int) *tracetest.Loop {
	f := tracetest.New(3)
	f.Sum = func(rows int64) int64 { return rows }
	f.Run(tracetest.Shapes, accumulation)
	return f
}

// bytesLoop writes the buffers' bytes down instead, for the allocator alone.
func bytesLoop(gpu reduction.GPU) *tracetest.Loop {
	f := tracetest.New(3)
	f.Sum = func(rows int64) int64 { return int64(columnSum(gpu, rows, 1024)) }
	return f
}

func TestColumnSumsAreReplayedInBytes(t *testing.T) {
	for name, shapes := range map[string][]trace.Shape{
		"as traced": tracetest.Shapes,
		"longer":    shapes(of{2, 1231, 11}, of{7, 5000, 90}, of{3, 4001, 1}, of{40, 5003, 40}),
		"first":     shapes(of{60, 3333, 50}, of{6, 3333, 50}, of{2, 9999, 3}),
	} {
		t.Run(name, func(t *testing.T) {
			other := bytesLoop(reduction.GPU{})
			other.Run(shapes, 2)
			want := direct(training(&other.Trace), settingsNone)
			got := replayed(t, opened(t, rowsTrace(2)), equalWindows(shapes, 2), settingsNone)
			require.Equal(t, want[:len(want)-1], got[:len(got)-1])
		})
	}
}

func TestSimulatedColumnSums(t *testing.T) {
	shape, m := shape(6, 4000, 30), opened(t, rowsTrace(1))
	peaks := map[uint64]bool{}
	for _, gpu := range []reduction.GPU{{}, {Multiprocessors: ptr(24), Threads: ptr(1536)}, {Multiprocessors: ptr(48), Threads: ptr(1024)}} {
		other := bytesLoop(gpu)
		other.Run(slices.Repeat([]trace.Shape{shape}, 3), 1)
		want := slices.MaxFunc(direct(training(&other.Trace), settingsNone), func(a, b state) int { return int(a.peakAllocated) - int(b.peakAllocated) })
		r := at(shape)
		r.Timeline, r.GPU = 100, gpu
		e := simulated(t, m, r)
		require.Equal(t, want.peakAllocated, e.PeakAllocated)
		require.Equal(t, want.peakRequested, e.PeakRequested)
		require.Equal(t, want.peakReserved, e.PeakReserved)
		require.Equal(t, "column_sum:1024", e.AtPeak.Op)
		require.Equal(t, e.PeakAllocated, sum(e.AtPeak.Components))
		buffer := columnSum(gpu, 6*tracetest.Frames(4000), 1024)
		require.InDelta(t, buffer+1<<20, e.AtPeak.Components["workspaces"], 1<<20, "what the allocator does not split off")
		require.Equal(t, e.PeakAllocated, slices.Max(e.Timeline.Allocated))
		peaks[e.PeakAllocated] = true
	}
	require.Len(t, peaks, 3, "each GPU has its own")
}

// TestColumnSumsAsRecorded: where sizes are played as they are (a loop without shapes, the state
// that an evaluation finds), rows are bytes as well. The same number in bytes is another size.
func TestColumnSumsAsRecorded(t *testing.T) {
	f := tracetest.New(0)
	f.Segment(trace.KindIteration, trace.Shape{}, "forward")
	f.Alloc(5992, "", 0)
	f.Alloc(5992, "workspace", 5)
	buffer := columnSum(reduction.GPU{}, 5992, 1024)
	e := simulated(t, opened(t, f), Request{Steps: ptr(1)})
	require.Equal(t, 5992+buffer, e.PeakRequested)

	f = tracetest.New(0)
	f.Micro(shape(2, 1231, 11), true)
	workspace := f.Alloc(5992, "workspace", 5)
	f.Evaluate(shape(2, 1231, 11))
	f.Free(workspace)
	r := at(shape(2, 1231, 11))
	r.Kind = trace.KindEvaluate
	e = simulated(t, opened(t, f), r)
	require.Greater(t, e.AtPeak.Components["workspaces"], buffer)
}

func columnSum(gpu reduction.GPU, rows, columns int64) uint64 {
	return gpu.Rules().Bytes(uint64(rows), trace.Unit{Count: trace.ColumnSum, Columns: uint32(columns)})
}
