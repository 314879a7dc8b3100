package monitor

import (
	"runtime"
	"runtime/metrics"
)

const (
	// collectEvery is how many slow readings pass between two collections. A reading leaves 50 KiB behind, and the runtime
	// would wait for 4 MiB of it.
	collectEvery = 8
	// smallHeap bounds what is collected so often, in bytes; the time of a collection grows with what is in use.
	smallHeap = 16 << 20
)

// saveMemory frees now and then what readings left behind, while the heap is small. Pages of the library's file that only
// starting needed are left to the kernel: giving them back lowers the resident memory that is shown, not the machine's.
func (m *Monitor) saveMemory() {
	m.readings++
	if m.readings%collectEvery != 0 {
		return
	}
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	if metrics.Read(heap); heap[0].Value.Kind() == metrics.KindUint64 && heap[0].Value.Uint64() < smallHeap {
		runtime.GC()
	}
}
