// Package forecast warns of memory that will run out, while a training still runs: GPU memory that
// grows step by step or with the length of clips, a cache that fragments, evaluations and
// checkpoints that will not fit, and the RAM, /dev/shm and swap of the host; and of threads that
// wait for cores that other processes use. It is pure: it sees numbers, never a device.
// docs/monitor.md describes how each forecast is made.
package forecast

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// maxGPUs bounds what one Forecaster keeps; readings of further GPUs are ignored.
const maxGPUs = 64

// Forecaster makes forecasts from the seconds of a sampler and the steps of a training. It keeps
// some 200 kB for each GPU however long the run. Its methods may be called from any goroutine, with
// any numbers: what is absent, infinite or negative counts as not known.
type Forecaster struct {
	lock     sync.Mutex
	gpus     []*gpu // nil until something is reported about it
	host     host
	alerts   alertTable
	cleanUps cleanUps
	changes  atomic.Uint64
	atS      float64 // newest time that was reported
}

// New makes a Forecaster for a number of GPUs, 0 to 64.
func New(gpus int) *Forecaster {
	return &Forecaster{gpus: make([]*gpu, min(max(gpus, 0), maxGPUs)),
		host:   host{total: math.NaN(), available: math.NaN()},
		alerts: alertTable{open: map[key]int{}, cleared: map[key]clearedAlert{}}}
}

// Second takes one slow reading, about one a second.
func (w *Forecaster) Second(s runlog.Second) {
	w.lock.Lock()
	defer w.lock.Unlock()
	atS := w.clock(s.AtS)
	for i := range min(len(s.GPUs), len(w.gpus)) {
		w.gpu(i).second(atS, s.GPUs[i], &w.alerts)
	}
	w.host.second(atS, s, &w.alerts)
	w.changes.Store(w.alerts.changes)
}

// Step takes one optimizer step, evaluation batch or checkpoint.
func (w *Forecaster) Step(s runlog.Step) {
	w.lock.Lock()
	defer w.lock.Unlock()
	atS := w.clock(s.AtS)
	if s.Kind == runlog.KindTrain {
		w.host.started = true
	}
	if s.GPU >= 0 && s.GPU < len(w.gpus) {
		w.gpu(s.GPU).step(atS, s, &w.alerts)
	}
	w.changes.Store(w.alerts.changes)
}

// Alerts returns all alerts so far by rising ID; of very many, the newest 256 and those that still
// hold.
func (w *Forecaster) Alerts() []runlog.Alert {
	w.lock.Lock()
	defer w.lock.Unlock()
	return slices.Clone(w.alerts.alerts)
}

// Changes counts the alerts that were raised, became critical or were cleared. It takes no lock.
func (w *Forecaster) Changes() uint64 { return w.changes.Load() }

// clock returns the newest time so far; it never goes back.
func (w *Forecaster) clock(atS float64) float64 {
	if atS = orNaN(atS); atS > w.atS {
		w.atS = atS
	}
	return w.atS
}

func (w *Forecaster) gpu(i int) *gpu {
	if w.gpus[i] == nil {
		w.gpus[i] = newGPU(i)
	}
	return w.gpus[i]
}

// orNaN returns the value, or NaN where it cannot be a size or a time: negative, infinite, beyond 1
// EB.
func orNaN(value float64) float64 {
	if value >= 0 && value < 1e18 {
		return value
	}
	return math.NaN()
}
