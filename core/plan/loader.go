package plan

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	workersRAM = 32e9 // published: no workers under 32 GB of host RAM
	// one worker process with torch imported, before any batch; a round, cautious figure
	workerBytes      = 1e9
	smallSetWorkers  = 2 // published, for datasets under 10 h
	maxLightWorkers  = 8
	maxHeavyWorkers  = 16
	lightPrefetch    = 3 // published: 3 to 4 batches
	heavyPrefetch    = 4
	coresLeftLight   = 2
	coresLeftHeavy   = 1
	coresLeftOfSmall = 1
)

// loader is what the DataLoader rules look at.
type loader struct {
	memory      profile.Memory
	usableCores float64
	hours       float64
	heavy       bool
	room        float64 // bytes of host RAM that workers may take
	batchBytes  float64 // of one batch of the longest rows
	accumulated int     // batches of an optimizer step, which the Trainer takes at once
	// bytes free in /dev/shm, where workers hand batches over; absent where it is not known
	shared *int64
}

// workers applies the published rule: none under 32 GB of RAM; 2 for a dataset under 10 h; else
// min(8, cores - 2), or min(16, cores - 1) for heavy preprocessing; none when their processes and
// batches do not fit into the RAM left.
func (l loader) workers() (count int, reason string) {
	cores := int(math.Floor(l.usableCores))
	if float64(l.memory.TotalBytes) < workersRAM {
		return 0, fmt.Sprintf("%s of host RAM, under %s", units.Size(l.memory.TotalBytes),
			threshold(workersRAM))
	}
	switch {
	case l.hours < smallHours:
		count = min(smallSetWorkers, cores-coresLeftOfSmall)
		reason = fmt.Sprintf("small dataset (%.1f h < 10 h): 2, if %s leave them", l.hours,
			fault.Plural(cores, "usable core"))
	case l.heavy:
		count = min(maxHeavyWorkers, cores-coresLeftHeavy)
		reason = fmt.Sprintf("heavy preprocessing: min(16, %s − 1)",
			fault.Plural(cores, "usable core"))
	default:
		count = min(maxLightWorkers, cores-coresLeftLight)
		reason = fmt.Sprintf("min(8, %s − 2)", fault.Plural(cores, "usable core"))
	}
	if count = max(0, count); l.bytes(count) > l.room {
		return 0, fmt.Sprintf("%s = %d, but they would take %s and %s of RAM is left: memory is "+
			"short", reason, count, units.Size(l.bytes(count)), units.Size(l.room))
	}
	count, short := l.shareable(count)
	return count, fmt.Sprintf("%s = %d; %s of the %s of RAM left%s", reason, count,
		units.Size(l.bytes(count)), units.Size(l.room), short)
}

// shareable is how many of the workers can hand their batches over, and, where fewer can, why. One
// that finds no room in /dev/shm is killed.
func (l loader) shareable(workers int) (count int, reason string) {
	for count = workers; count > 0 && !l.fitsShared(count); count-- {
	}
	if count < workers {
		reason = fmt.Sprintf("; %s would keep %s of batches in /dev/shm, which has %s free "+
			"(docker run --shm-size=8g)",
			fault.Plural(workers, "worker"), units.Size(l.sharedBytes(workers)),
			units.Size(*l.shared))
	}
	return count, reason
}

func (l loader) fitsShared(workers int) bool {
	return l.shared == nil || l.sharedBytes(workers) <= float64(*l.shared)
}

// sharedBytes is what the batches take that lie ready, and those of the step that is computed.
func (l loader) sharedBytes(workers int) float64 {
	if workers == 0 {
		return 0
	}
	return float64(workers*l.prefetch()+max(1, l.accumulated)) * l.batchBytes
}

// sharedWarning warns of a worker count set by the user that /dev/shm cannot hold.
func (l loader) sharedWarning(workers int) string {
	if l.fitsShared(workers) {
		return ""
	}
	fit, _ := l.shareable(workers)
	return fmt.Sprintf("%s would keep %s of batches in /dev/shm, which has %s free, and be "+
		"killed: set dataloader_num_workers=%d, or give the container more (docker run "+
		"--shm-size=8g).",
		fault.Plural(workers, "worker"), units.Size(l.sharedBytes(workers)),
		units.Size(*l.shared), fit)
}

// bytes is the host RAM that a number of workers takes: their processes and the batches that they
// hold ready.
func (l loader) bytes(workers int) float64 {
	return float64(workers) * (workerBytes + float64(l.prefetch())*l.batchBytes)
}

func (l loader) prefetch() int {
	if l.heavy {
		return heavyPrefetch
	}
	return lightPrefetch
}
