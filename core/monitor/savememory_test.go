package monitor

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGarbageIsCollectedWhileTheHeapIsSmall(t *testing.T) {
	var before, after runtime.MemStats
	m := &Monitor{}
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 3 * collectEvery {
		m.saveMemory()
	}
	runtime.ReadMemStats(&after)
	assert.GreaterOrEqual(t, after.NumGC-before.NumGC, uint32(3))
}

func TestALargeHeapIsLeftAlone(t *testing.T) {
	held := make([]byte, 2*smallHeap)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := &Monitor{readings: collectEvery}
	for range 3 * collectEvery {
		m.saveMemory()
	}
	runtime.ReadMemStats(&after)
	assert.Equal(t, before.NumGC, after.NumGC)
	runtime.KeepAlive(held)
}
