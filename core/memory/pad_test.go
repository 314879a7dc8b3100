package memory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

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
			steps := 4
			want, err := opened(t, plain).Simulate(Request{Batch: &shape.Batch, Length: &shape.Length, Labels: &shape.Labels, Steps: &steps})
			require.NoError(t, err)
			got, err := m.Simulate(Request{Batch: &shape.Batch, Length: &shape.Length, Labels: &shape.Labels, Steps: &steps, Timeline: 50})
			require.NoError(t, err)
			require.Equal(t, want.PeakAllocated, got.PeakAllocated)
			require.Equal(t, want.PeakReserved, got.PeakReserved)
			for i := range want.Phases {
				require.Equal(t, want.Phases[i], got.Phases[i])
			}
			require.Equal(t, want.AtPeak.Components, got.AtPeak.Components, "what holds the memory at the peak")
		})
	}
}

// TestRecordedCopies: a trace at lengths that fill up is answered as recorded, without the copies.
func TestRecordedCopies(t *testing.T) {
	shape := shape(4, tracetest.LengthOf(256), 20)
	run := func(f *tracetest.Loop) peak.Estimate {
		f.Run([]trace.Shape{shape, shape, shape, shape}, 1)
		e, err := opened(t, f).Simulate(Request{Batch: &shape.Batch, Length: &shape.Length, Labels: &shape.Labels})
		require.NoError(t, err)
		return e
	}
	want, got := run(plainLoop()), run(padLoop())
	require.Equal(t, want.PeakAllocated, got.PeakAllocated)
	require.Equal(t, want.PeakReserved, got.PeakReserved)
}
