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

func someLengths(n int) (lengths, labels []int64) {
	r := rand.New(rand.NewPCG(3, 3))
	for range n {
		length := 800 + r.Int64N(4000)
		lengths, labels = append(lengths, length), append(labels, 1+length/100)
	}
	return lengths, labels
}

func runOf(order string) RunRequest {
	lengths, labels := someLengths(100)
	return RunRequest{Lengths: lengths, Labels: labels, Batch: 4, Steps: 30, Seeds: 4, Order: order}
}

// TestRunPlaysItsOwnOrder replays one seed's windows by hand.
func TestRunPlaysItsOwnOrder(t *testing.T) {
	f := tracetest.Usual(2)
	r := runOf("random")
	e, err := opened(t, f).Run(r)
	require.NoError(t, err)
	require.Len(t, e.Seeds, 4)
	for _, seed := range e.Seeds {
		next := (&sampler{lengths: r.Lengths, labels: r.Labels, batch: 4, group: 8}).shapes(seed.Seed)
		other := tracetest.New(3)
		for range r.Steps {
			shapes := []trace.Shape{next(), next()}
			other.Micro(shapes[0], true)
			other.Micro(shapes[1], false)
			other.Step(shapes[1])
		}
		var want Peaks
		for _, s := range direct(other.Trace.Segments, settingsNone) {
			want = Peaks{max(want.PeakAllocated, s.peakAllocated), max(want.PeakReserved, s.peakReserved)}
		}
		require.Equal(t, want, seed.Peaks)
		require.Zero(t, seed.Failed)
		require.Equal(t, 60, seed.MicroBatches)
		require.LessOrEqual(t, seed.PeakAllocated, e.Largest.PeakAllocated)
	}
	require.NotEqual(t, e.Seeds[0].Peaks, e.Seeds[1].Peaks)
	again, err := opened(t, f).Run(r)
	require.NoError(t, err)
	require.Equal(t, e, again)
}

func TestRunOutOfMemory(t *testing.T) {
	m := opened(t, tracetest.Usual(1))
	r := runOf("grouped")
	e, err := m.Run(r)
	require.NoError(t, err)
	require.Zero(t, e.OutOfMemory)
	require.Nil(t, e.PeakDevice)

	r.LimitBytes, r.DeviceBytes = ptr(uint64(e.PeakAllocated.Worst)-1), ptr[uint64](1000)
	short, err := m.Run(r)
	require.NoError(t, err)
	require.Positive(t, short.OutOfMemory)
	require.Equal(t, e.Largest, short.Largest, "without the limit")
	require.Equal(t, short.PeakReserved.Worst+1000, short.PeakDevice.Worst)
	for _, s := range short.Seeds {
		require.LessOrEqual(t, s.PeakReserved, *r.LimitBytes)
	}
}

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

// TestRunOfKnownMicroBatches replays the windows by hand.
func TestRunOfKnownMicroBatches(t *testing.T) {
	r := RunRequest{Windows: known(40), Overhead: 1000}
	m := opened(t, tracetest.Usual(3))
	e, err := m.Run(r)
	require.NoError(t, err)
	require.Len(t, e.Seeds, 1)

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
	got := e.Seeds[0]
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
	e, err := m.Run(RunRequest{Windows: fits})
	require.NoError(t, err)
	limit := ptr(uint64(e.PeakReserved.Worst))
	with := func(steps ...int) [][][3]int64 {
		windows := slices.Clone(fits)
		for i := len(steps) - 1; i >= 0; i-- {
			windows = slices.Insert(windows, steps[i], [][3]int64{small, large, small})
		}
		return windows
	}
	failed, err := m.Run(RunRequest{Windows: with(1, 3), LimitBytes: limit})
	require.NoError(t, err)
	got := failed.Seeds[0]
	require.Equal(t, 2, got.Failed)
	require.Equal(t, 1, *got.FirstFailed)
	require.Equal(t, 1.0, failed.OutOfMemory)
	require.Equal(t, 8+2, got.MicroBatches, "of the steps that failed, the first micro-batch")
	require.LessOrEqual(t, got.PeakReserved, *limit)

	first, err := m.Run(RunRequest{Windows: with(0), LimitBytes: limit})
	require.NoError(t, err)
	require.Equal(t, 0, *first.Seeds[0].FirstFailed)
	require.Equal(t, 1, first.Seeds[0].MicroBatches, "a run without the optimizer's state ends")
	none, err := m.Run(RunRequest{Windows: fits, LimitBytes: ptr(uint64(1))})
	require.NoError(t, err)
	require.Nil(t, none.Seeds[0].MeanPeak)
}

// TestAbandonLeavesNothingBehind: what is allocated after steps that failed and one that did not is
// what it is without them.
func TestAbandonLeavesNothingBehind(t *testing.T) {
	m := opened(t, tracetest.Usual(2))
	small, large := shape(2, 1000, 10), shape(16, 4800, 48)
	after := func(failing bool) uint64 {
		settings, err := settingsOf("", ptr[uint64](3<<20), nil)
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
		"batch is 0":               func(r *RunRequest) { r.Batch = 0 },
		"3 lengths":                func(r *RunRequest) { r.Lengths = r.Lengths[:3] },
		"2 labels for 100 lengths": func(r *RunRequest) { r.Labels = r.Labels[:2] },
		"sample 7: length is 0":    func(r *RunRequest) { r.Lengths[7] = 0 },
		"sample 9: labels is -1":   func(r *RunRequest) { r.Labels[9] = -1 },
		"steps is 0":               func(r *RunRequest) { r.Steps = 0 },
		"seeds is 1001":            func(r *RunRequest) { r.Seeds = 1001 },
		"order":                    func(r *RunRequest) { r.Order = "sorted" },
		"accumulation is 0":        func(r *RunRequest) { r.Accumulation = ptr(0) },
		"limit_bytes is 0":         func(r *RunRequest) { r.LimitBytes = ptr[uint64](0) },
		"overhead is -1":           func(r *RunRequest) { r.Overhead = -1 },
		"0 windows":                func(r *RunRequest) { *r = RunRequest{Windows: [][][3]int64{}} },
		"window 1 has 0":           func(r *RunRequest) { *r = RunRequest{Windows: [][][3]int64{{{2, 900, 9}}, {}}} },
		"window 0, micro-batch 1":  func(r *RunRequest) { *r = RunRequest{Windows: [][][3]int64{{{2, 900, 9}, {0, 900, 9}}}} },
		"windows describe all":     func(r *RunRequest) { r.Windows = known(1) },
		"events to simulate":       func(r *RunRequest) { r.Steps, r.Seeds = 100_000, 1000 },
	} {
		r := runOf("random")
		change(&r)
		_, err := m.Run(r)
		require.ErrorContains(t, err, says)
		require.Equal(t, fault.InvalidArgument, fault.From(err).Code, says)
	}
	r := runOf("")
	r.Labels, r.Batch = nil, 1
	_, err := opened(t, traceOf(tracetest.Shapes[1:5]...)).Run(r)
	require.Equal(t, fault.Unsupported, fault.From(err).Code)
}

func TestGroupedOrder(t *testing.T) {
	lengths, labels := someLengths(1000)
	c := &sampler{lengths: lengths, labels: labels, batch: 4, group: 8, grouped: true}
	order := c.epoch(rand.New(rand.NewPCG(5, 0)))
	sorted := slices.Clone(order)
	slices.Sort(sorted)
	for i := range sorted {
		require.Equal(t, i, sorted[i], "every sample once")
	}
	require.Equal(t, slices.Max(lengths), lengths[order[0]], "the longest first")
	size := 8 * 31 // a quarter of the samples, in whole steps
	falls := func(part []int) bool {
		return slices.IsSortedFunc(part, func(a, b int) int { return int(lengths[b] - lengths[a]) })
	}
	require.True(t, falls(order[1:size]))
	for start := size + 1; start < len(order); start += size {
		require.True(t, falls(order[start:min(start+size-1, len(order))]))
	}
	require.False(t, falls(order))

	// Two clips and a batch of four: one group, whatever is left over.
	few := &sampler{lengths: lengths[:5], labels: labels[:5], batch: 4, group: 4, grouped: true}
	require.Len(t, few.epoch(rand.New(rand.NewPCG(5, 0))), 5)
}

func TestEpochs(t *testing.T) {
	lengths := []int64{1, 2, 3, 4, 5, 6, 7}
	next := (&sampler{lengths: lengths, labels: make([]int64, 7), batch: 3, group: 3}).shapes(1)
	longest := 0
	for range 20 {
		s := next()
		require.Equal(t, int64(3), s.Batch)
		require.GreaterOrEqual(t, s.Length, int64(3))
		if s.Length == 7 {
			longest++
		}
	}
	require.InDelta(t, 20*3.0/7, longest, 5)
}

func TestSpread(t *testing.T) {
	require.Equal(t, Spread{3, 4.96, 5}, spreadOf([]float64{5, 1, 4, 2, 3}))
	require.Equal(t, Spread{7, 7, 7}, spreadOf([]float64{7}))
}
