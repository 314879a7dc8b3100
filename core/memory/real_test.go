package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

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
	s := m.Summary()
	require.Equal(t, 6939, s.Storages)
	require.Equal(t, s.Storages, s.Exact)
	require.Zero(t, s.Approximate)
	require.Zero(t, s.Ambiguous)
	structures := map[string]int{}
	for _, c := range s.Templates {
		structures[c.Kind]++
	}
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
