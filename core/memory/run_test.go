package memory

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

// known are windows of three to five micro-batches of every size.
func known(windows int) (all [][][3]int64) {
	r := rand.New(rand.NewPCG(7, 7))
	for range windows {
		var window [][3]int64
		for range 3 + r.IntN(3) {
			length := 800 + r.Int64N(4000)
			window = append(window, [3]int64{2 + r.Int64N(5), length, 1 + length/100})
		}
		all = append(all, window)
	}
	return all
}

func ran(t *testing.T, m *Model, r RunRequest) RunEstimate {
	t.Helper()
	e, err := m.Run(r)
	require.NoError(t, err)
	return e
}

// TestRunOfKnownMicroBatches replays the windows by hand.
func TestRunOfKnownMicroBatches(t *testing.T) {
	r := RunRequest{Windows: known(40), Overhead: 1000}
	m := opened(t, tracetest.Usual(3))
	e := ran(t, m, r)

	other := tracetest.New(3)
	var largest trace.Shape
	var cost []float64 // of each segment; 0 for those of the optimizer
	for _, window := range r.Windows {
		var last trace.Shape
		for i, dims := range window {
			last = shape(dims[0], dims[1], dims[2])
			other.Micro(last, i == 0)
			cost = append(cost, float64(dims[0]*dims[1])+1000)
			if last.Batch*last.Length > largest.Batch*largest.Length {
				largest = last
			}
		}
		other.Step(last)
		cost = append(cost, 0)
	}
	var want Peaks
	var micros int
	var sum, weighted, weight float64
	played := direct(other.Trace.Segments, settingsNone)
	played = played[len(played)-len(cost):] // loading comes before
	for i, s := range played {
		want = Peaks{max(want.PeakAllocated, s.peakAllocated), max(want.PeakReserved, s.peakReserved)}
		if cost[i] > 0 {
			micros, sum = micros+1, sum+float64(s.peakAllocated)
			weighted, weight = weighted+cost[i]*float64(s.peakAllocated), weight+cost[i]
		}
	}
	got := e
	require.Equal(t, want, got.Peaks)
	require.Equal(t, micros, got.MicroBatches)
	require.InDelta(t, sum/float64(micros), *got.MeanPeak, 1e-6)
	require.InDelta(t, weighted/weight, *got.MeanByTime, 1e-6)
	require.Zero(t, got.Failed)
	require.Nil(t, got.FirstFailed)

	alone, err := m.Simulate(Request{Batch: &largest.Batch, Length: &largest.Length, Labels: &largest.Labels, Accumulation: ptr(1)})
	require.NoError(t, err)
	require.Equal(t, Peaks{alone.PeakAllocated, alone.PeakReserved}, e.Largest)
}

// TestStepsOutOfMemoryAreGivenUp: the steps behind one that failed find what they would find had it
// never been.
func TestStepsOutOfMemoryAreGivenUp(t *testing.T) {
	m := opened(t, tracetest.Usual(2))
	small, large := [3]int64{2, 1000, 10}, [3]int64{16, 4800, 48}
	fits := [][][3]int64{{small, small}, {small}, {small, small, small}, {small}, {small}}
	e := ran(t, m, RunRequest{Windows: fits})
	limit := ptr(e.PeakReserved)
	with := func(steps ...int) [][][3]int64 {
		windows := slices.Clone(fits)
		for i := len(steps) - 1; i >= 0; i-- {
			windows = slices.Insert(windows, steps[i], [][3]int64{small, large, small})
		}
		return windows
	}
	failed := ran(t, m, RunRequest{Windows: with(1, 3), Device: Device{LimitBytes: limit}})
	got := failed
	require.Equal(t, 2, got.Failed)
	require.Equal(t, 1, *got.FirstFailed)
	require.Equal(t, 8+2, got.MicroBatches, "of the steps that failed, the first micro-batch")
	require.LessOrEqual(t, got.PeakReserved, *limit)

	first := ran(t, m, RunRequest{Windows: with(0), Device: Device{LimitBytes: limit}})
	require.Equal(t, 0, *first.FirstFailed)
	require.Equal(t, 1, first.MicroBatches, "a run without the optimizer's state ends")
	none := ran(t, m, RunRequest{Windows: fits, Device: Device{LimitBytes: ptr(uint64(1))}})
	require.Nil(t, none.MeanPeak)
}

// TestAbandonLeavesNothingBehind: what is allocated after steps that failed and one that did not is
// what it is without them.
func TestAbandonLeavesNothingBehind(t *testing.T) {
	m := opened(t, tracetest.Usual(2))
	small, large := shape(2, 1000, 10), shape(16, 4800, 48)
	after := func(failing bool) uint64 {
		settings, err := Device{LimitBytes: ptr[uint64](3 << 20)}.settings()
		require.NoError(t, err)
		p := replay.New(m.templates.Variables, settings, reduction.GPU{})
		full, err := p.PlayAll(m.load())
		require.NoError(t, err)
		require.Nil(t, full)
		for number := range 8 {
			shapes := []trace.Shape{small, small}
			if failing && number%3 == 2 {
				shapes[number%2] = large
			}
			plan, err := m.window(number, shapes)
			require.NoError(t, err)
			full, err := p.PlayAll(plan)
			require.NoError(t, err)
			require.Equal(t, failing && number%3 == 2, full != nil)
			if full != nil {
				p.Abandon(full)
			}
		}
		return p.Allocator.Stats().Allocated
	}
	require.Equal(t, after(false), after(true))
}

func TestRunsAreChecked(t *testing.T) {
	m := opened(t, tracetest.Usual(1))
	for says, change := range map[string]func(*RunRequest){
		"limit_bytes is 0":        func(r *RunRequest) { r.LimitBytes = ptr[uint64](0) },
		"multiprocessors is 0":    func(r *RunRequest) { r.Multiprocessors = ptr(0) },
		"overhead is -1":          func(r *RunRequest) { r.Overhead = -1 },
		"0 windows":               func(r *RunRequest) { r.Windows = nil },
		"window 1 has 0":          func(r *RunRequest) { r.Windows = [][][3]int64{{{2, 900, 9}}, {}} },
		"window 0, micro-batch 1": func(r *RunRequest) { r.Windows = [][][3]int64{{{2, 900, 9}, {0, 900, 9}}} },
		"events to simulate": func(r *RunRequest) {
			r.Windows = slices.Repeat([][][3]int64{slices.Repeat([][3]int64{{2, 900, 9}}, 1000)}, 100_000)
		},
	} {
		r := RunRequest{Windows: known(1)}
		change(&r)
		_, err := m.Run(r)
		require.ErrorContains(t, err, says)
		require.Equal(t, fault.InvalidArgument, fault.From(err).Code, says)
	}
	_, err := opened(t, traceOf(tracetest.Shapes[1:5]...)).Run(RunRequest{Windows: known(1)})
	require.Equal(t, fault.Unsupported, fault.From(err).Code)
}
