package dataset

import (
	"runtime/debug"
	"sync"
)

// manyFiles is from where on memory counts more than the time that saving it takes.
const manyFiles = 1 << 16

// frugalPercent is how much garbage may lie beside what is in use while many files are scanned.
const frugalPercent = 30

// frugal counts the scans that want the collector to be frugal; its setting is that of the whole process.
var frugal struct {
	sync.Mutex
	scans, before int
}

// frugally keeps the heap close to what is in use until end is called, when there are many files.
func frugally(files int) (end func()) {
	if files < manyFiles {
		return func() {}
	}
	frugal.Lock()
	defer frugal.Unlock()
	if frugal.scans++; frugal.scans == 1 {
		frugal.before = debug.SetGCPercent(frugalPercent)
	}
	return func() {
		frugal.Lock()
		if frugal.scans--; frugal.scans == 0 {
			debug.SetGCPercent(frugal.before)
		}
		frugal.Unlock()
	}
}

// ReturnMemory gives the system back what a scan of so many files needed and no longer does; it takes some milliseconds where
// they are many, and nothing otherwise.
func ReturnMemory(files int) {
	if files >= manyFiles {
		debug.FreeOSMemory()
	}
}
