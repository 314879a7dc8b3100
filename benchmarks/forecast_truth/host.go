package main

import (
	"math"
	"math/rand/v2"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// host is the machine beside the cards.
type host struct {
	total, base    float64 // RAM, and what is used without workers
	noise          float64
	workers        int
	each           float64 // bytes of a worker when it has started
	startS         float64 // until then
	started        float64 // time of the workers' last start
	persistent     bool
	touched, tau   float64 // memory that workers come to share no longer, and how soon
	shmTotal       float64
	shmUsual       float64
	swap           float64
	leaked, shmGot float64 // by what goes wrong
	ofWorkers      bool
}

func newHost(rng *rand.Rand) *host {
	total := []float64{16e9, 32e9, 64e9, 128e9, 256e9}[rng.IntN(5)]
	h := &host{
		total: total, base: (0.15 + 0.35*rng.Float64()) * total, workers: rng.IntN(9), startS: 3 + 30*rng.Float64(),
		persistent: rng.IntN(2) == 0, tau: 300 * math.Exp(2.5*rng.Float64()),
		shmTotal: total / 2, shmUsual: 0.3 * rng.Float64() * total / 8,
	}
	if rng.IntN(3) == 0 {
		h.shmTotal = 8e9
		h.shmUsual = 4e9 * rng.Float64()
	}
	h.shmUsual = min(h.shmUsual, 0.5*h.shmTotal)
	if h.workers > 0 {
		h.each = rng.Float64() * 0.2 * total / float64(h.workers)
		h.touched = rng.Float64() * 0.1 * total
	}
	if most := h.base + float64(h.workers)*h.each + h.touched + h.shmUsual; most > 0.86*total { // in order
		h.base = max(0.1*total, h.base-most+0.86*total)
	}
	return h
}

func (h *host) read(rng *rand.Rand, at float64) runlog.Second {
	h.noise = 0.97*h.noise + 0.0015*h.total*rng.NormFloat64()*0.25
	since := at - h.started
	workers := float64(h.workers)*h.each*min(1, since/h.startS) + h.touched*(1-math.Exp(-since/h.tau))
	shm := h.shmGot + h.shmUsual*(0.6+0.4*rng.Float64())
	if rng.IntN(300) == 0 && h.swap < 1e9 {
		h.swap += 2e7 * rng.Float64()
	}
	used := h.base + h.noise + workers + shm + h.leaked
	if h.ofWorkers {
		workers += h.leaked
	}
	return runlog.Second{
		AtS: at, HostTotal: h.total, ShmTotal: h.shmTotal,
		HostReading: runlog.HostReading{HostAvailable: max(0, h.total-used), SwapUsed: h.swap, TreeRSS: 0.1*h.total + workers,
			WorkersRSS: workers, ShmUsed: min(shm, h.shmTotal)},
	}
}
