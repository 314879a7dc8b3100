package memory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

func determined(t *testing.T, m *Model, s trace.Shape, kind string) Determined {
	t.Helper()
	result, err := m.Determined(Request{Batch: &s.Batch, Length: &s.Length, Labels: &s.Labels, Kind: kind})
	require.NoError(t, err)
	return result
}

func TestExactFormulasDetermine(t *testing.T) {
	m := opened(t, tracetest.Usual(2))
	for _, s := range shapes(of{7, 2000, 10}, of{1, 5000, 3}, of{64, 9000, 200}) {
		require.Equal(t, Determined{Exactly: true}, determined(t, m, s, "train"))
		require.Equal(t, Determined{Exactly: true}, determined(t, m, s, trace.KindEvaluate))
	}
}

// TestChunksAreDeterminedWhereTheyWereTraced: a size in steps of the length follows no formula, and
// is known at traced shapes alone.
func TestChunksAreDeterminedWhereTheyWereTraced(t *testing.T) {
	chunked := func(bytes int64) *Model {
		f := tracetest.New(2)
		f.Extra = func(s trace.Shape) int64 { return s.Batch * tracetest.RoundUp(s.Length, 1000) * bytes }
		f.Run(tracetest.Shapes, 1)
		return opened(t, f)
	}
	m := chunked(400)
	for _, s := range tracetest.Shapes {
		require.True(t, determined(t, m, s, "train").Exactly, "%+v", s)
	}
	result := determined(t, m, shape(7, 2000, 10), "train")
	require.False(t, result.Exactly)
	require.Greater(t, result.Doubt, 0.5)
	require.Contains(t, result.Why, "no formula")
	// which has no chunks
	require.True(t, determined(t, m, shape(7, 2000, 10), trace.KindEvaluate).Exactly)
	require.Empty(t, simulated(t, m, at(shape(3, 1943, 17))).Approximate)

	few := determined(t, chunked(1), shape(7, 2000, 10), "train")
	require.Positive(t, few.Doubt)
	require.Less(t, few.Doubt, result.Doubt/50)
}

func TestShapesThatTheTraceDoesNotAnswerAreNotDetermined(t *testing.T) {
	m := opened(t, traceOf(shapes(of{2, 1231, 11}, of{3, 1943, 17})...))
	result := determined(t, m, shape(4, 1500, 12), "train")
	require.False(t, result.Exactly)
	require.Contains(t, result.Why, "the trace does not determine")
	require.InDelta(t, 1, result.Doubt, 0)
	none := int64(0)
	_, err := m.Determined(Request{Batch: &none, Length: &none})
	require.Equal(t, fault.InvalidArgument, fault.From(err).Code)
}

// TestAShapeBehindOthersIsReplayedAsAlone: where each shape has a structure of its own, a trace has
// none of them twice in a row. What a micro-batch frees of the window before is then known from
// another shape's.
func TestAShapeBehindOthersIsReplayedAsAlone(t *testing.T) {
	first, second := shape(2, 1231, 11), shape(3, 1943, 17)
	record := func(runs ...trace.Shape) *Model {
		f := tracetest.New(3)
		for _, s := range runs {
			if s == second {
				f.Layers = 2 // other operations
			}
			f.Window(s, 2)
		}
		return opened(t, f)
	}
	alone, behind := record(second, second), record(first, first, second)
	inputs := func(m *Model) uint64 { return simulated(t, m, at(second)).AtPeak.Components["inputs"] }
	require.Equal(t, inputs(alone), inputs(behind))
}

// padLoop writes attention masks down as recorders do: copied at every length. plainLoop writes
// what a GPU does. Every second layer makes a mask of its own, the others share one that lives to
// the end of the forward pass.
func padLoop() *tracetest.Loop {
	f := tracetest.New(4)
	f.Mask = func(s trace.Shape, shared int64) (source, saved int64) {
		rows := tracetest.Frames(s.Length)
		source = f.OwnMask(s, shared)
		f.Free(f.Alloc(rows, "workspace", tracetest.OpLength))
		op := int32(tracetest.OpPad)
		if shared != tracetest.None {
			op = f.OpNumber(fmt.Sprintf("pad:8:%d", f.Storages-shared))
		}
		return source, f.Alloc(s.Batch*rows*tracetest.RoundUp(rows, 8)*2, "", op)
	}
	return f
}

func plainLoop() *tracetest.Loop {
	f := tracetest.New(4)
	f.Mask = func(s trace.Shape, shared int64) (source, saved int64) {
		rows := tracetest.Frames(s.Length)
		source = f.OwnMask(s, shared)
		if rows%8 == 0 {
			return source, source
		}
		return source, f.Alloc(s.Batch*rows*tracetest.RoundUp(rows, 8)*2, "", 2)
	}
	return f
}

func TestCopiesAreMadeWhereRowsDoNotFillUp(t *testing.T) {
	pads := padLoop()
	pads.Run(tracetest.Shapes, 2)
	m := opened(t, pads)
	for name, shape := range map[string]trace.Shape{
		"padded": shape(6, 3333, 50), "full rows": shape(6, tracetest.LengthOf(512), 50), "full rows, one": shape(1, tracetest.LengthOf(1024), 9),
		"other": shape(3, tracetest.LengthOf(515), 9),
	} {
		t.Run(name, func(t *testing.T) {
			plain := plainLoop()
			plain.Run([]trace.Shape{tracetest.Shapes[0], tracetest.Shapes[0], shape, shape, shape}, 2)
			r := at(shape)
			r.Steps = ptr(4)
			want, got := simulated(t, opened(t, plain), r), simulated(t, m, r)
			require.Equal(t, want.PeakAllocated, got.PeakAllocated)
			require.Equal(t, want.PeakReserved, got.PeakReserved)
			require.Equal(t, want.Phases, got.Phases)
			require.Equal(t, want.AtPeak.Components, got.AtPeak.Components, "what holds the memory at the peak")
		})
	}
}

// TestRecordedCopies: a trace at lengths that fill up is answered as recorded, without the copies.
func TestRecordedCopies(t *testing.T) {
	shape := shape(4, tracetest.LengthOf(256), 20)
	run := func(f *tracetest.Loop) peak.Estimate {
		f.Run([]trace.Shape{shape, shape, shape, shape}, 1)
		return simulated(t, opened(t, f), at(shape))
	}
	want, got := run(plainLoop()), run(padLoop())
	require.Equal(t, want.PeakAllocated, got.PeakAllocated)
	require.Equal(t, want.PeakReserved, got.PeakReserved)
}
