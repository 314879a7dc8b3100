package memory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// padLoop writes attention masks down as recorders do: copied at every length. plainLoop writes what a GPU does. Every
// second layer makes a mask of its own, the others share one that lives to the end of the forward pass.
func padLoop() *fakeLoop {
	f := newFakeLoop(4)
	f.mask = func(s Shape, shared int64) (source, saved int64) {
		rows := frames(s.Length)
		source = f.ownMask(s, shared)
		f.die(f.born(rows, "workspace", opLength))
		op := int32(opPadOwn)
		if shared != none {
			op = f.op(fmt.Sprintf("pad:8:%d", f.births-shared))
		}
		return source, f.born(s.Batch*rows*up(rows, 8)*2, "", op)
	}
	return f
}

func plainLoop() *fakeLoop {
	f := newFakeLoop(4)
	f.mask = func(s Shape, shared int64) (source, saved int64) {
		rows := frames(s.Length)
		source = f.ownMask(s, shared)
		if rows%8 == 0 {
			return source, source
		}
		return source, f.born(s.Batch*rows*up(rows, 8)*2, "", 2)
	}
	return f
}

func TestCopiesAreMadeWhereRowsDoNotFillUp(t *testing.T) {
	pads := padLoop()
	pads.run(usual, 2)
	m := pads.opened(t)
	for name, shape := range map[string]Shape{
		"padded": {6, 3333, 50}, "full rows": {6, lengthOf(512), 50}, "full rows, one": {1, lengthOf(1024), 9}, "other": {3, lengthOf(515), 9},
	} {
		t.Run(name, func(t *testing.T) {
			plain := plainLoop()
			plain.run([]Shape{usual[0], usual[0], shape, shape, shape}, 2)
			steps := 4
			want, err := plain.opened(t).Simulate(Request{Batch: &shape.Batch, Length: &shape.Length, Labels: &shape.Labels, Steps: &steps})
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
	shape := Shape{4, lengthOf(256), 20}
	run := func(f *fakeLoop) Estimate {
		f.run([]Shape{shape, shape, shape, shape}, 1)
		e, err := f.opened(t).Simulate(Request{Batch: &shape.Batch, Length: &shape.Length, Labels: &shape.Labels})
		require.NoError(t, err)
		return e
	}
	want, got := run(plainLoop()), run(padLoop())
	require.Equal(t, want.PeakAllocated, got.PeakAllocated)
	require.Equal(t, want.PeakReserved, got.PeakReserved)
}
