package memory

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

var settingsNone allocator.Settings

func ptr[T any](v T) *T { return &v }

// at is a request for a shape, to be filled in further.
func at(s trace.Shape) Request { return Request{Batch: &s.Batch, Length: &s.Length, Labels: &s.Labels} }

func simulated(t *testing.T, m *Model, r Request) peak.Estimate {
	t.Helper()
	e, err := m.Simulate(r)
	require.NoError(t, err)
	return e
}

func sum[K comparable](parts map[K]uint64) (all uint64) {
	for _, n := range parts {
		all += n
	}
	return all
}

func TestSimulate(t *testing.T) {
	shape := shape(6, 4000, 30)
	f := tracetest.New(3)
	f.Run(slices.Repeat([]trace.Shape{shape}, 3), 1)
	want := slices.MaxFunc(direct(training(&f.Trace), settingsNone), func(a, b state) int { return int(a.peakAllocated) - int(b.peakAllocated) })

	r := at(shape)
	r.Timeline, r.DeviceBytes = 40, ptr[uint64](1<<20)
	e := simulated(t, opened(t, tracetest.Usual(1)), r)
	require.Equal(t, want.peakAllocated, e.PeakAllocated)
	require.Equal(t, want.peakRequested, e.PeakRequested)
	require.Equal(t, want.peakReserved, e.PeakReserved)
	require.Equal(t, e.PeakReserved+1<<20, *e.PeakDevice)
	require.Nil(t, e.Fits)
	require.Nil(t, e.OutOfMemory)
	require.Zero(t, e.Approximate)
	require.Empty(t, e.Notes)
	require.InDelta(t, 0.5, e.Fragmentation, 0.5)

	require.Equal(t, "micro", e.AtPeak.Segment)
	require.Equal(t, "backward", e.AtPeak.Phase)
	require.Equal(t, e.PeakAllocated, sum(e.AtPeak.Components))
	require.Equal(t, uint64(3*tracetest.Width*tracetest.Width*4), e.AtPeak.Components["parameters"])
	require.Equal(t, uint64(6*tracetest.Width*tracetest.Width*4), e.AtPeak.Components["optimizer"])
	require.Equal(t, uint64(1<<20), e.AtPeak.Components["workspaces"])
	modules := map[string]uint64{}
	for _, row := range e.AtPeak.Modules {
		modules[row.Module] = row.Bytes
	}
	require.Equal(t, e.PeakAllocated, sum(modules))
	require.Contains(t, modules, "encoder.layers.1")

	highest := uint64(0)
	for _, p := range e.Phases {
		highest = max(highest, p.PeakAllocated)
	}
	require.Equal(t, e.PeakAllocated, highest)
	require.Equal(t, peak.Phase{Segment: "load", Phase: "load", PeakAllocated: 3 * tracetest.Width * tracetest.Width * 4, PeakReserved: 2 << 20}, e.Phases[0])
	require.Len(t, e.Phases, 4)
}

func TestTimeline(t *testing.T) {
	m := opened(t, tracetest.Usual(2))
	for _, points := range []int{1, 7, 50, 100_000} {
		r := at(shape(6, 4000, 30))
		r.Timeline = points
		e := simulated(t, m, r)
		line := e.Timeline
		require.LessOrEqual(t, len(line.Event), points)
		require.GreaterOrEqual(t, len(line.Event), min(points, 40))
		require.Equal(t, e.PeakAllocated, slices.Max(line.Allocated), "peaks are kept")
		require.Equal(t, e.PeakReserved, slices.Max(line.Reserved))
		require.True(t, slices.IsSorted(line.Event))
		for i := range line.Event {
			allocated := uint64(0)
			for _, column := range line.Components {
				allocated += column[i]
			}
			require.Equal(t, line.Allocated[i], allocated)
			require.GreaterOrEqual(t, line.Reserved[i], line.Allocated[i])
			require.LessOrEqual(t, line.Allocated[i], e.Phases[line.Phase[i]].PeakAllocated)
		}
	}
}

func TestOutOfMemory(t *testing.T) {
	m := opened(t, tracetest.Usual(1))
	unlimited := simulated(t, m, at(shape(6, 4000, 30)))
	r := at(shape(6, 4000, 30))
	r.LimitBytes = ptr(unlimited.PeakReserved)
	require.Equal(t, true, *simulated(t, m, r).Fits)

	r.LimitBytes, r.Timeline = ptr(unlimited.PeakAllocated-1), 10
	e := simulated(t, m, r)
	require.Equal(t, false, *e.Fits)
	require.Equal(t, "micro", e.OutOfMemory.Segment)
	require.NotZero(t, e.OutOfMemory.Wanted)
	require.LessOrEqual(t, e.OutOfMemory.Reserved, *r.LimitBytes)
	require.LessOrEqual(t, e.OutOfMemory.Allocated, e.OutOfMemory.Reserved)
	require.Equal(t, uint64(1), e.Retries)
	require.Equal(t, e.PeakAllocated, sum(e.AtPeak.Components))
	require.Equal(t, e.PeakAllocated, slices.Max(e.Timeline.Allocated))

	r.LimitBytes = ptr[uint64](1) // not even the model
	e = simulated(t, m, r)
	require.Equal(t, "load", e.OutOfMemory.Phase)
	require.Empty(t, e.AtPeak.Components)
	require.Empty(t, e.Phases)

	// beyond any number of bytes
	huge := simulated(t, m, at(shape(trace.MaxBatch, trace.MaxLength, trace.MaxLabels)))
	require.Equal(t, false, *huge.Fits)
	require.Equal(t, "forward", huge.OutOfMemory.Phase)
}

func TestEvaluation(t *testing.T) {
	shape := shape(16, 4000, 0)
	r := at(shape)
	r.Kind = trace.KindEvaluate
	e := simulated(t, opened(t, tracetest.Usual(1)), r)
	hidden := uint64(16 * tracetest.Frames(4000) * tracetest.Width * 2)
	require.Equal(t, "evaluate", e.AtPeak.Segment)
	require.Equal(t, map[string]uint64{
		"parameters": 3 * tracetest.Width * tracetest.Width * 4, "optimizer": 6 * tracetest.Width * tracetest.Width * 4, "workspaces": 1 << 20,
		"inputs": 16 * 4000 * 4, "temporaries": 2 * hidden, "activations": 512, // the last loss
	}, e.AtPeak.Components)

	r.Kind = trace.KindGenerate
	_, err := opened(t, tracetest.Usual(1)).Simulate(r)
	require.ErrorContains(t, err, `no segment of kind "generate"`)
}

// TestManyMicroBatches: the inputs of a window stay until the next one.
func TestManyMicroBatches(t *testing.T) {
	m := opened(t, tracetest.Usual(3))
	r := at(shape(2, 2000, 10))
	inputs := func(accumulation int) uint64 {
		r.Accumulation = &accumulation
		return simulated(t, m, r).AtPeak.Components["inputs"]
	}
	one := uint64(tracetest.RoundUp(2*2000*4, 512))
	require.Equal(t, 3*one, inputs(3))
	require.Equal(t, 10_000*one, inputs(10_000), "in a moment: no micro-batch looks at all before it")
	require.Equal(t, 3*one, simulated(t, m, at(shape(2, 2000, 10))).AtPeak.Components["inputs"], "as traced")
}

func TestIterations(t *testing.T) {
	loop := func(shaped bool, shapes []trace.Shape) *tracetest.Loop {
		f := tracetest.New(2)
		for _, s := range shapes {
			f.Micro(s, true)
			f.Last().Kind = trace.KindIteration
			if !shaped {
				f.Last().Batch, f.Last().Length, f.Last().Labels = nil, nil, nil
			}
			f.Free(f.Grads...)
			f.Grads = nil
		}
		return f
	}
	shapes := []trace.Shape{tracetest.Shapes[0], tracetest.Shapes[0], tracetest.Shapes[2], tracetest.Shapes[3], tracetest.Shapes[4]}
	other := tracetest.ShapesOf(of{6, 3333, 8}, of{6, 3333, 8}, of{6, 3333, 8})
	e := simulated(t, opened(t, loop(true, shapes)), at(other[0]))
	want := direct(loop(true, other).Trace.Segments, settingsNone)
	require.Equal(t, want[3].peakAllocated, e.PeakAllocated)
	require.Equal(t, "iteration", e.AtPeak.Segment)

	bare := opened(t, loop(false, shapes))
	steps := len(shapes)
	e = simulated(t, bare, Request{Steps: &steps})
	highest := uint64(0)
	for _, s := range direct(loop(false, shapes).Trace.Segments, settingsNone) {
		highest = max(highest, s.peakAllocated)
	}
	require.Equal(t, highest, e.PeakAllocated)
	steps = 20 // the last again and again
	require.Equal(t, highest, simulated(t, bare, Request{Steps: &steps}).PeakAllocated)
	_, err := bare.Simulate(at(other[0]))
	require.ErrorContains(t, err, "no shapes")
	_, err = bare.Run(RunRequest{Windows: known(1)})
	require.ErrorContains(t, err, "no shapes")
}

func TestRequestsAreChecked(t *testing.T) {
	m := opened(t, tracetest.Usual(1))
	good := at(shape(2, 2000, 10))
	for says, change := range map[string]func(*Request){
		"batch is 0":                    func(r *Request) { r.Batch = ptr[int64](0) },
		"batch is 65537":                func(r *Request) { r.Batch = ptr[int64](65537) },
		"length is -1":                  func(r *Request) { r.Length = ptr[int64](-1) },
		"length is 9223372036854775807": func(r *Request) { r.Length = ptr[int64](math.MaxInt64) },
		"labels is -1":                  func(r *Request) { r.Labels = ptr[int64](-1) },
		"a shape needs both":            func(r *Request) { r.Batch = nil },
		"batch and length are missing":  func(r *Request) { r.Batch, r.Length, r.Labels = nil, nil, nil },
		"accumulation is 0":             func(r *Request) { r.Accumulation = ptr(0) },
		"accumulation is 65537":         func(r *Request) { r.Accumulation = ptr(65537) },
		"steps is 0":                    func(r *Request) { r.Steps = ptr(0) },
		"steps is 1001":                 func(r *Request) { r.Steps = ptr(1001) },
		"timeline is -1":                func(r *Request) { r.Timeline = -1 },
		"modules is 0":                  func(r *Request) { r.Modules = ptr(0) },
		`kind "dream"`:                  func(r *Request) { r.Kind = "dream" },
		"limit_bytes is 0":              func(r *Request) { r.LimitBytes = ptr[uint64](0) },
		"device_bytes":                  func(r *Request) { r.DeviceBytes = ptr[uint64](math.MaxUint64) },
		"no_such_option":                func(r *Request) { r.Settings = "no_such_option:1" },
		"multiprocessors is 0":          func(r *Request) { r.Multiprocessors = ptr(0) },
		"multiprocessors is 1025":       func(r *Request) { r.Multiprocessors = ptr(1025) },
		"per_multiprocessor is 255":     func(r *Request) { r.Threads = ptr(255) },
		"per_multiprocessor is 4097":    func(r *Request) { r.Threads = ptr(4097) },
		"too short":                     func(r *Request) { r.Length = ptr[int64](3) },
	} {
		r := good
		change(&r)
		_, err := m.Simulate(r)
		require.ErrorContains(t, err, says)
		require.Equal(t, fault.InvalidArgument, fault.From(err).Code, says)
		require.NotEmpty(t, fault.From(err).Hint, says)
	}
	m = opened(t, tracetest.Usual(3))
	good.Accumulation, good.Steps = ptr(maxAccumulation), ptr(maxSteps)
	_, err := m.Simulate(good)
	require.ErrorContains(t, err, "events to simulate")
}

func TestNotes(t *testing.T) {
	f := tracetest.New(2)
	f.Trace.About["notes"] = "torch.compile: the eager model was traced"
	turn := int64(0)
	f.Extra = func(trace.Shape) int64 { turn++; return 100_000 + turn%3*5000 }
	f.Run(tracetest.Shapes, 1)
	e := simulated(t, opened(t, f), at(shape(7, 2000, 10)))
	require.Equal(t, 1, e.Approximate) // the first window keeps the size that it was seen with
	require.Contains(t, e.Notes[0], "torch.compile")
	require.Contains(t, e.Notes[1], "sizes without an exact formula: 1;")
	inexact, set := 0, opened(t, f).templates
	point, err := set.Variables.At(shape(7, 2000, 10))
	require.NoError(t, err)
	for _, c := range set.Templates {
		var n template.Inexactness
		n.CountAt(c, point)
		if inexact += n.Inexact * len(c.Recordings); n.Inexact > 0 {
			require.InDelta(t, 0.09, n.WorstResidual, 0.01)
		}
	}
	require.Equal(t, 7, inexact)
	require.Contains(t, simulated(t, opened(t, f), at(shape(1, 2000, 10))).Notes, "the first step was traced at another shape; here it is a later step plus what the first one allocates")
}
