package memory

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

type of = [3]int64

var shape, shapes = tracetest.ShapeOf, tracetest.ShapesOf

// opened sends a trace through its file format, as the real ones come.
func opened(t testing.TB, f *tracetest.Loop) *Model {
	t.Helper()
	read, err := trace.Decode(tracetest.Encode(&f.Trace))
	require.NoError(t, err)
	m, err := New(read)
	require.NoError(t, err)
	return m
}

func FuzzSimulate(f *testing.F) {
	small := tracetest.New(1)
	small.Run(tracetest.Shapes[:3], 2)
	raw := tracetest.JSON(&small.Trace)
	f.Add(raw)
	f.Add([]byte(strings.Replace(string(raw), `"micro"`, `"iteration"`, 1)))
	f.Add([]byte(`{"format":"asrconfig-trace","version":1,"segments":[{"kind":"load","events":[0,-1],"phases":[[0,"load"]]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		read, err := trace.Decode(tracetest.Pack(raw))
		if err != nil {
			return
		}
		m, err := New(read)
		if err != nil {
			return
		}
		batch, length, steps := int64(2), int64(1231), 2
		r := Request{Batch: &batch, Length: &length, Steps: &steps, Timeline: 5}
		for _, kind := range []string{"train", trace.KindEvaluate} {
			r.Kind = kind
			if e, err := m.Simulate(r); err == nil {
				require.LessOrEqual(t, e.PeakRequested, e.PeakAllocated)
				require.LessOrEqual(t, e.PeakAllocated, e.PeakReserved)
			}
		}
	})
}

func TestTemplates(t *testing.T) {
	for accumulation, want := range map[int]map[string][][]int{
		1: {trace.KindMicro: {{1}, {3, 5, 7, 9}, {11, 13, 15}}, trace.KindStep: {{2}, {4, 6, 8, 10, 12, 14, 16}}},
		// The accumulated micro-batch makes no gradients, and is the same in the first window as
		// later.
		2: {trace.KindMicro: {{1}, {4, 7, 10, 13}, {16, 19, 22}}, trace.KindAccumulate: {{2, 5, 8, 11, 14}, {17, 20, 23}}, trace.KindStep: {{3}, {6, 9, 12, 15, 18, 21, 24}}},
	} {
		got := map[string][][]int{}
		for _, c := range opened(t, tracetest.Usual(accumulation)).templates.Templates {
			var segments []int
			for _, r := range c.Recordings {
				segments = append(segments, r.Segment)
			}
			got[c.Kind] = append(got[c.Kind], segments)
		}
		for kind, segments := range want {
			require.Equal(t, segments, got[kind], "%s with accumulation %d", kind, accumulation)
		}
	}
}

// TestEndOfRecording: what the recorder lets go of at the very end says nothing about training.
func TestEndOfRecording(t *testing.T) {
	f := tracetest.New(3)
	for _, s := range tracetest.Shapes[:2] {
		f.Window(s, 1)
	}
	f.Free(f.States...)
	f.Free(f.Params...)
	f.Free(f.Inputs...)
	shapes := []trace.Shape{tracetest.Shapes[0], tracetest.Shapes[0], tracetest.Shapes[0], tracetest.Shapes[0]}
	longer := tracetest.New(3)
	longer.Run(shapes, 1)
	want := direct(training(&longer.Trace), settingsNone)
	got := replayed(t, opened(t, f), equalWindows(shapes, 1), settingsNone)
	for i, s := range got[:6] {
		require.InDelta(t, want[i].peakAllocated, s.peakAllocated, float64(shapes[0].Length*4*shapes[0].Batch), "segment %d", i)
	}
}

func openReal(t testing.TB, name string) (*trace.Trace, *Model) {
	t.Helper()
	read, err := trace.ReadFile("testdata/" + name)
	require.NoError(t, err)
	m, err := New(read)
	require.NoError(t, err)
	return read, m
}

func TestRealTraceIsExact(t *testing.T) {
	_, m := openReal(t, "wav2vec2.trace")
	storages, structures := 0, map[string]int{}
	for _, c := range m.templates.Templates {
		storages += len(c.Storages) * len(c.Recordings)
		require.True(t, c.IsCertain())
		structures[c.Kind]++
	}
	require.Equal(t, 6939, storages)
	// A first window, later ones, and later ones of a batch of one; the optimizer's step knows no
	// batch.
	require.Equal(t, map[string]int{trace.KindLoad: 1, trace.KindMicro: 3, trace.KindStep: 2, trace.KindEvaluate: 2}, structures)
}

// TestRealTracePredictsAnother: a recording of the same model at other, larger shapes, the first
// window included, comes out of the formulas to the byte, segment by segment.
func TestRealTracePredictsAnother(t *testing.T) {
	_, m := openReal(t, "wav2vec2.trace")
	other, _ := openReal(t, "wav2vec2-other-shapes.trace")
	var windows [][]trace.Shape
	for _, s := range other.Segments {
		if s.Kind == trace.KindMicro {
			shape, _ := s.Shape()
			windows = append(windows, []trace.Shape{shape})
		}
	}
	want := direct(training(other), allocator.Settings{})
	got := replayed(t, m, windows, allocator.Settings{})
	require.Len(t, got, 15)
	// the recording ends in the last step, and takes its inputs with it
	require.Equal(t, want[:14], got[:14])
	require.Greater(t, got[5].peakAllocated, uint64(2<<30))
}

// traceOf records windows at these shapes, the first twice.
func traceOf(shapes ...trace.Shape) *tracetest.Loop {
	f := tracetest.New(2)
	f.Run(append([]trace.Shape{shapes[0]}, shapes...), 1)
	return f
}

func ask(m *Model, s trace.Shape) error {
	_, err := m.Simulate(Request{Batch: &s.Batch, Length: &s.Length, Labels: &s.Labels})
	return err
}

func TestWhatATraceAnswers(t *testing.T) {
	three := shapes(of{2, 1231, 11}, of{3, 1943, 17}, of{5, 2792, 7})
	for name, c := range map[string]struct {
		traced   []trace.Shape
		yes, not []trace.Shape
	}{
		"larger batches only": {three, shapes(of{2, 9000, 50}, of{64, 500, 0}), shapes(of{1, 1231, 11})},
		"with batches of one": {append(three, shape(1, 1231, 13), shape(1, 2792, 19), shape(1, 1943, 5)), shapes(of{1, 7777, 3}, of{7, 7777, 3}), nil},
		"one of one":          {append(three, shape(1, 1231, 13)), shapes(of{1, 1231, 13}, of{6, 4000, 9}), shapes(of{1, 1232, 13})},
		"two shapes":          {three[:2], three[:2], shapes(of{4, 1500, 12})},
		"one batch size":      {shapes(of{4, 1231, 11}, of{4, 1943, 17}, of{4, 2792, 7}), shapes(of{4, 5000, 60}), shapes(of{3, 1231, 11}, of{1, 1231, 11})},
		"one length":          {shapes(of{2, 3000, 11}, of{3, 3000, 17}, of{5, 3000, 29}), shapes(of{9, 3000, 400}), shapes(of{2, 3001, 11})},
		"one label length":    {shapes(of{2, 1231, 20}, of{3, 1943, 20}, of{5, 2792, 20}), shapes(of{9, 4000, 20}), shapes(of{2, 1231, 21})},
		"no labels":           {shapes(of{2, 1231, 0}, of{3, 1943, 0}, of{5, 2792, 0}), shapes(of{9, 4000, 20}, of{9, 4000, 0}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := opened(t, traceOf(c.traced...))
			for _, s := range c.yes {
				require.NoError(t, ask(m, s), "%+v", s)
			}
			for _, s := range c.not {
				err := ask(m, s)
				require.ErrorContains(t, err, "the trace does not determine", "%+v", s)
				require.Equal(t, fault.Unsupported, fault.From(err).Code)
				require.Contains(t, fault.From(err).Hint, "trace the shape (")
			}
		})
	}
}
