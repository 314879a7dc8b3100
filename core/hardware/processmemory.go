package hardware

import (
	"math"
	"os"
	"slices"
	"time"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	// listEvery is how often processes are listed: three orders of magnitude dearer than reading memory.
	listEvery = 10 * time.Second
	// idleBytes bounds what a card uses without any process, in bytes.
	idleBytes = 64 << 20
)

// otherProcesses knows how much of each card's memory is held by processes that are not of this training: not this process, nor one
// that it started, nor, under a launcher of several (torchrun, accelerate), one that the launcher started.
//
// In a container the driver may list processes by the host's numbers, or none at all. A number that /proc does not have, or
// an empty list on a card in use, says so, and then nothing is known.
type otherProcesses struct {
	tree  tree
	top   int // the process whose tree is this training
	now   func() time.Time
	at    []time.Time // of the last listing of each card
	bytes []float64
}

func newOtherProcesses(root string, gpus int) otherProcesses {
	o := otherProcesses{tree: newTree(root), top: os.Getpid(), now: time.Now, at: make([]time.Time, gpus), bytes: make([]float64, gpus)}
	if _, launched := os.LookupEnv("LOCAL_RANK"); launched && os.Getppid() > 1 {
		o.top = os.Getppid()
	}
	return o
}

// of gives the bytes on card i, listing its processes now and then.
func (o *otherProcesses) of(i int, u *unit) float64 {
	if now := o.now(); o.at[i].IsZero() || now.Sub(o.at[i]) >= listEvery {
		o.at[i] = now
		o.bytes[i] = o.count(u)
	}
	return o.bytes[i]
}

func (o *otherProcesses) count(u *unit) float64 {
	memory, err := u.memory()
	if err != nil {
		return math.NaN()
	}
	listed := u.processes()
	if len(listed) == 0 {
		if memory.used > idleBytes {
			return math.NaN()
		}
		return 0
	}
	return o.foreign(listed, append(o.tree.descendants(o.top), o.top))
}

// foreign adds up the processes that are not ours.
func (o *otherProcesses) foreign(listed []profile.Process, ours []int) float64 {
	sum := 0.0
	for _, p := range listed {
		if _, err := os.Stat(o.tree.real(procOf(int(p.PID)))); err != nil {
			return math.NaN()
		}
		if slices.Contains(ours, int(p.PID)) {
			continue
		}
		if p.MemoryBytes == nil {
			return math.NaN()
		}
		sum += float64(*p.MemoryBytes)
	}
	return sum
}
