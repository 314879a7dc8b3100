package dataset

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestFrugally: the collector's setting is back when the last of several scans has ended, in whatever order they do.
func TestFrugally(t *testing.T) {
	before := debug.SetGCPercent(70)
	defer debug.SetGCPercent(before)
	now := func() int {
		percent := debug.SetGCPercent(70)
		debug.SetGCPercent(percent)
		return percent
	}
	frugally(manyFiles - 1)()
	first, second := frugally(manyFiles), frugally(manyFiles)
	assert.Equal(t, frugalPercent, now())
	first()
	assert.Equal(t, frugalPercent, now())
	second()
	assert.Equal(t, 70, now())
}
