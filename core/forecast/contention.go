package forecast

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const (
	// Measured on two cores, a step of two OpenMP threads: 12 ms alone, while 0.13 of a thread
	// waits on average; 39 ms beside one busy process, which uses 0.76 of a core while 0.76 of a
	// thread waits: threads wait for each other at the end of every operation. With
	// torch.set_num_threads(1) a step takes 19 ms beside it, and 0.04 of a thread waits.
	waitingThreads = 0.5
	othersCores    = 0.5
	contendedS     = 30.0 // what is started beside a training, such as a compiler, ends sooner
	easyShare      = 0.5  // of both limits: the alert ends
)

// contention is whether threads of the training wait for cores that other processes use.
type contention struct {
	waiting, others ring
	sinceS          float64 // when both went over their limits; 0: they are not
}

// watch raises an alert only for both together: threads that wait while no other process uses the
// cores are too many, or have too many workers, and what others use while no thread waits is free.
func (c *contention) watch(atS float64, use runlog.CPUUse, b *alertTable) {
	if c.waiting.push(orNaN(use.Waiting)); !(use.Cores >= 1) {
		return
	}
	c.others.push(orNaN(use.Others))
	waiting, others := c.waiting.median(), c.others.median()
	contended := waiting >= waitingThreads && others >= othersCores
	switch {
	case !contended:
		c.sinceS = 0
	case c.sinceS == 0:
		c.sinceS = atS
	}
	switch isOpen := b.isOpen(runlog.AlertCPU, -1); {
	case contended && (isOpen || atS-c.sinceS >= contendedS):
		b.raise(atS, c.alert(waiting, others, use.Cores))
	case isOpen && (waiting < easyShare*waitingThreads || others < easyShare*othersCores):
		b.clear(atS, runlog.AlertCPU, -1)
	}
}

func (c *contention) alert(waiting, others, cores float64) forecast {
	f := unforeseen(runlog.AlertCPU, -1)
	f.sinceS = c.sinceS
	f.text = fmt.Sprintf("Other processes use %.1f of %.3g CPU cores, and on average %.1f threads of "+
		"this training wait for one", others, cores, waiting)
	free := max(1, math.Floor(cores-others))
	f.advice = fmt.Sprintf("stop them, or torch.set_num_threads(%.0f) (OMP_NUM_THREADS=%.0f before "+
		"Python starts)", free, free)
	return f
}
