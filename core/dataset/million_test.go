package dataset

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMemoryOfAMillionClips: what a scan of a million files keeps beside their paths, while it measures and afterwards.
func TestMemoryOfAMillionClips(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const n = 1_000_000
	before := heap()
	entries := make([]entry, 0)
	var paths arena
	bytes := 0
	for i := range n {
		name := fmt.Sprintf("clips/%07d.flac", i)
		bytes += len("/data/") + len(name)
		entries = append(entries, entry{path: paths.join("/data/", []byte(name)), listed: true})
	}
	c := NewCollection(Options{})
	measure := func(e *entry, r *row) {
		r.path, r.duration, r.size, r.digest = e.path, float64(len(e.path)), 1000, 1
		r.kind = c.clips.kinds.of(kind{16000 + len(e.path)%3, 1, 16, "flac", "header"})
	}
	c.clips.rows = make([]row, n)
	require.NoError(t, measureAll(context.Background(), entries, c.clips.rows, 2, new(Progress), meterOf(measure)))
	during := heap()
	runtime.KeepAlive(entries)
	entries = nil //nolint:ineffassign // what is measured below is without them
	result, err := c.Finish(context.Background(), Ending{Source: "many"})
	require.NoError(t, err)
	after := heap()
	assert.LessOrEqual(t, float64(during-before-bytes)/n, 130.0, "bytes a file while they are measured")
	assert.LessOrEqual(t, float64(after-before-bytes)/n, 70.0, "bytes a file in the result")
	assert.Equal(t, n, result.Profile.MeasuredCount)
	runtime.KeepAlive(c)
	t.Logf("%.1f bytes a file while measuring, %.1f in the result", float64(during-before-bytes)/n, float64(after-before-bytes)/n)
}

// heap counts the bytes in use.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
