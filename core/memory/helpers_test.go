package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

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
