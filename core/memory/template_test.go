package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

func TestTemplates(t *testing.T) {
	for accumulation, want := range map[int]map[string][][]int{
		1: {trace.KindMicro: {{1}, {3, 5, 7, 9}, {11, 13, 15}}, trace.KindStep: {{2}, {4, 6, 8, 10, 12, 14, 16}}},
		// The accumulated micro-batch makes no gradients, and is the same in the first window as
		// later.
		2: {trace.KindMicro: {{1}, {4, 7, 10, 13}, {16, 19, 22}}, trace.KindAccumulate: {{2, 5, 8, 11, 14}, {17, 20, 23}}, trace.KindStep: {{3}, {6, 9, 12, 15, 18, 21, 24}}},
	} {
		got := map[string][][]int{}
		for _, c := range opened(t, tracetest.Usual(accumulation)).Summary().Templates {
			got[c.Kind] = append(got[c.Kind], c.Segments)
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
