package memory

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
)

// TestColumnSum holds the rule to what torch 2.15 asks for on an A100.
func TestColumnSum(t *testing.T) {
	for _, c := range []struct {
		rows    uint64
		columns int64
		bytes   uint64
	}{
		{996, 1024, 0},
		{5992, 1024, 49283072},
		{5992, 4096, 113246208},
		{1500, 768, 9437184},
		{12000, 3072, 113246208},
		{23968, 1280, 113377280},
		{400, 51865, 0},
		{3000, 40, 0},
		{5992, 40, 122880},
		{100000, 512, 113246208},
		{1996, 512, 8388608},
		{31996, 512, 113246208},
		{0, 512, 0},
		{1, 1, 0},
	} {
		require.Equal(t, c.bytes, GPU{}.reducer().bytes(c.rows, c.columns), "%d x %d", c.rows, c.columns)
		require.Equal(t, c.rows, GPU{}.reducer().bytes(c.rows, 0), "bytes as they are")
	}
}

// TestColumnSumEverywhere: no shape or GPU in range divides by zero or overflows, and what no machine has stays so.
func TestColumnSumEverywhere(t *testing.T) {
	for _, multiprocessors := range []int{1, 132, maxMultiprocessors} {
		for _, threads := range []int{leastThreads, 1536, maxThreads} {
			r := GPU{&multiprocessors, &threads}.reducer()
			for _, columns := range []int64{1, 2, 3, 6, 40, 1 << 20, maxColumns - 1, maxColumns} {
				for rows := uint64(1); rows < tooLarge; rows *= 2 {
					for _, n := range []uint64{rows, 2*rows - 1} {
						require.LessOrEqual(t, r.columnSum(columns, n), uint64(tooLarge))
					}
				}
				require.Equal(t, uint64(tooLarge), r.columnSum(columns, tooLarge))
			}
		}
	}
}

// rowsTrace is the usual run with column sums, as recorders write them.
func rowsTrace(accumulation int) *fakeLoop {
	f := newFakeLoop(3)
	f.sum = func(rows int64) int64 { return rows }
	f.run(usual, accumulation)
	return f
}

// bytesLoop writes the buffers' bytes down instead, for the allocator alone.
func bytesLoop(gpu GPU) *fakeLoop {
	f := newFakeLoop(3)
	f.sum = func(rows int64) int64 { return int64(gpu.reducer().columnSum(1024, uint64(rows))) }
	return f
}

func TestColumnSumsAreReplayedInBytes(t *testing.T) {
	for name, shapes := range map[string][]Shape{
		"as traced": usual,
		"longer":    {{2, 1231, 11}, {7, 5000, 90}, {3, 4001, 1}, {40, 5003, 40}},
		"first":     {{60, 3333, 50}, {6, 3333, 50}, {2, 9999, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			other := bytesLoop(GPU{})
			other.run(shapes, 2)
			want := direct(training(&other.t), settingsNone)
			got := replayed(t, rowsTrace(2).opened(t), equalWindows(shapes, 2), settingsNone)
			require.Equal(t, want[:len(want)-1], got[:len(got)-1])
		})
	}
}

func TestSimulatedColumnSums(t *testing.T) {
	shape, m := Shape{6, 4000, 30}, rowsTrace(1).opened(t)
	peaks := map[uint64]bool{}
	for _, gpu := range []GPU{{}, {ptr(24), ptr(1536)}, {ptr(48), ptr(1024)}} {
		other := bytesLoop(gpu)
		other.run(slices.Repeat([]Shape{shape}, 3), 1)
		want := slices.MaxFunc(direct(training(&other.t), settingsNone), func(a, b state) int { return int(a.peakAllocated) - int(b.peakAllocated) })
		r := at(shape)
		r.Timeline, r.GPU = 100, gpu
		e := simulated(t, m, r)
		require.Equal(t, want.peakAllocated, e.PeakAllocated)
		require.Equal(t, want.peakRequested, e.PeakRequested)
		require.Equal(t, want.peakReserved, e.PeakReserved)
		require.Equal(t, "column_sum:1024", e.AtPeak.Op)
		require.Equal(t, e.PeakAllocated, sum(e.AtPeak.Components))
		buffer := gpu.reducer().columnSum(1024, uint64(6*frames(4000)))
		require.InDelta(t, buffer+1<<20, e.AtPeak.Components["workspaces"], 1<<20, "what the allocator does not split off")
		require.Equal(t, e.PeakAllocated, slices.Max(e.Timeline.Allocated))
		peaks[e.PeakAllocated] = true
	}
	require.Len(t, peaks, 3, "each GPU has its own")
}

func TestNoRoomForAColumnSum(t *testing.T) {
	m, shape := rowsTrace(1).opened(t), Shape{6, 4000, 30}
	e := simulated(t, m, at(shape))
	r := at(shape)
	r.LimitBytes = ptr(e.PeakAllocated - 1)
	full := simulated(t, m, r).OutOfMemory
	require.NotNil(t, full)
	require.Equal(t, "column_sum:1024", full.Op)
	require.Equal(t, GPU{}.reducer().columnSum(1024, uint64(6*frames(4000))), full.Wanted)
}

func TestRunWithColumnSums(t *testing.T) {
	m, r := rowsTrace(1).opened(t), runOf("random")
	usually, err := m.Run(r)
	require.NoError(t, err)
	r.GPU = GPU{ptr(16), ptr(1024)}
	small, err := m.Run(r)
	require.NoError(t, err)
	require.Less(t, small.PeakAllocated.Worst, usually.PeakAllocated.Worst)
	require.Less(t, small.Largest.PeakAllocated, usually.Largest.PeakAllocated)
}

// TestColumnSumsAsRecorded: where sizes are played as they are (a loop without shapes, the state that an evaluation finds),
// rows are bytes as well. The same number in bytes is another size.
func TestColumnSumsAsRecorded(t *testing.T) {
	f := newFakeLoop(0)
	f.segment(KindIteration, Shape{}, "forward")
	f.born(5992, "", 0)
	f.born(5992, "workspace", 5)
	buffer := GPU{}.reducer().columnSum(1024, 5992)
	e := simulated(t, f.opened(t), Request{Steps: ptr(1)})
	require.Equal(t, 5992+buffer, e.PeakRequested)

	f = newFakeLoop(0)
	f.micro(Shape{2, 1231, 11}, true)
	kept := f.born(5992, "workspace", 5)
	f.evaluate(Shape{2, 1231, 11})
	f.die(kept)
	r := at(Shape{2, 1231, 11})
	r.Kind = KindEvaluate
	e = simulated(t, f.opened(t), r)
	require.Greater(t, e.AtPeak.Components["workspaces"], buffer)
}

func TestDoubtfulColumnSums(t *testing.T) {
	f := newFakeLoop(1)
	f.sum = func(rows int64) int64 { return rows + rows%7*rows%13 }
	f.run(usual, 1)
	found := 0
	for _, c := range f.opened(t).Summary().Classes {
		for _, d := range c.Doubtful {
			if d.Op == "column_sum:1024" {
				found++
				require.Contains(t, d.Formula, " rows")
				require.Zero(t, d.Bytes%(4*1024*4), "whole rows of partial sums")
			}
		}
	}
	require.Positive(t, found)
}

func TestGPUsAreChecked(t *testing.T) {
	m := usualTrace(1).opened(t)
	for says, gpu := range map[string]GPU{
		"multiprocessors is 0":               {Multiprocessors: ptr(0)},
		"multiprocessors is 1025":            {Multiprocessors: ptr(1025)},
		"threads_per_multiprocessor is 255":  {Threads: ptr(255)},
		"threads_per_multiprocessor is 4097": {Threads: ptr(4097)},
	} {
		r, run := at(usual[0]), runOf("random")
		r.GPU, run.GPU = gpu, gpu
		_, err := m.Simulate(r)
		require.ErrorContains(t, err, says)
		require.Equal(t, fault.InvalidArgument, fault.From(err).Code)
		_, err = m.Run(run)
		require.ErrorContains(t, err, says)
	}
}

// TestNoMachineHasSuchRows: rows beyond all arithmetic are refused by the allocator, not wrapped around.
func TestNoMachineHasSuchRows(t *testing.T) {
	_, err := allocator.New(settingsNone).Malloc(GPU{}.reducer().columnSum(maxColumns, math.MaxUint64>>1))
	require.Error(t, err)
}

// TestNormBlocks: rows and columns as XLS-R's feature extractor has them, on an A100 and on a card too small to split them.
func TestNormBlocks(t *testing.T) {
	few := 16
	for op, c := range map[string]struct {
		rows, a100, small uint64
	}{
		"norm_blocks:4:512":  {191992, 2048 * 512 * 4, 0},
		"norm_blocks:2:512":  {191992, 2048 * 512 * 2, 0},
		"norm_sum:512":       {191992, 8388608, 0},
		"norm_blocks:4:500":  {65568, 2048 * 500 * 4, 0},
		"norm_blocks:4:100":  {65537, 2049 * 100 * 4, 2049 * 100 * 4},
		"norm_blocks:4:1024": {65536, 0, 0},
		"norm_sum:1024":      {65536, 0, 0},
		"norm_blocks:4:4096": {1 << 20, 0, 0}, // wide enough to keep every multiprocessor busy
	} {
		columns, err := parseCounted(op)
		require.NoError(t, err)
		require.Equal(t, c.a100, GPU{}.reducer().bytes(c.rows, columns), op)
		require.Equal(t, c.small, GPU{Multiprocessors: &few}.reducer().bytes(c.rows, columns), op)
	}
	_, err := parseCounted("norm_blocks:4:x")
	require.ErrorContains(t, err, "from 1 to 2147483648")
}
