package dataset

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestLimitGC: the collector's setting is back when the last of several scans has ended, in whatever order they do.
func TestLimitGC(t *testing.T) {
	before := debug.SetGCPercent(70)
	defer debug.SetGCPercent(before)
	now := func() int {
		percent := debug.SetGCPercent(70)
		debug.SetGCPercent(percent)
		return percent
	}
	limitGC(manyFiles - 1)()
	first, second := limitGC(manyFiles), limitGC(manyFiles)
	assert.Equal(t, gcPercent, now())
	first()
	assert.Equal(t, gcPercent, now())
	second()
	assert.Equal(t, 70, now())
}
