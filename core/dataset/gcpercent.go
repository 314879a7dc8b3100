package dataset

import (
	"runtime/debug"
	"sync"
)

// manyFiles is from where on memory counts more than the time that saving it takes.
const manyFiles = 1 << 16

// gcPercent is how much garbage may lie beside what is in use while many files are scanned.
const gcPercent = 30

// gcSetting counts the scans that want the collector to be frugal; its setting is that of the whole process.
var gcSetting struct {
	sync.Mutex
	scans, before int
}

// limitGC keeps the heap close to what is in use until end is called, when there are many files.
func limitGC(files int) (end func()) {
	if files < manyFiles {
		return func() {}
	}
	gcSetting.Lock()
	defer gcSetting.Unlock()
	if gcSetting.scans++; gcSetting.scans == 1 {
		gcSetting.before = debug.SetGCPercent(gcPercent)
	}
	return func() {
		gcSetting.Lock()
		if gcSetting.scans--; gcSetting.scans == 0 {
			debug.SetGCPercent(gcSetting.before)
		}
		gcSetting.Unlock()
	}
}

// ReturnMemory gives the system back what a scan of so many files needed and no longer does; it takes some milliseconds where
// they are many, and nothing otherwise.
func ReturnMemory(files int) {
	if files >= manyFiles {
		debug.FreeOSMemory()
	}
}
