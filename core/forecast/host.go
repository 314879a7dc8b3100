package forecast

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	hostRise = 0.01
	hostSpan = 60.0 // seconds: workers that start grow for less
	// enough when less than fastShare is left, for fastS at most, and no workers are starting
	fastSpan   = 20.0
	fastShare  = 0.45
	fastS      = 120.0
	hostReach  = 1.5  // a growth is foreseen this many times as far ahead as it was seen
	startReach = 0.25 // and before the first step, while data is loaded
	hostSoon   = 180.0
	hostTight  = 0.06 // of the RAM
	hostEasy   = 0.10
	shmTight   = 0.92
	shmEasy    = 0.85
	swapRise   = 0.01 // of the RAM, within a minute while less than swapTight of it is available
	swapTight  = 0.12
	hostRest   = 60.0
)

// host is what is known of the host.
type host struct {
	started          bool // a training step was reported
	crowded          bool // fuller than the limit of Check
	n                uint64
	total, available float64
	used, shm        multires
	swapped          ring
	ram, shared      growth
	cpu              contention
}

func (h *host) second(atS float64, s runlog.Second, b *alertTable) {
	h.n++
	total, available := orNaN(s.HostTotal), orNaN(s.HostAvailable)
	if total > 0 && available <= total {
		h.total, h.available = total, available
		h.used.push(point{atS, atS, total - available, orNaN(s.WorkersRSS)})
		h.watchRAM(atS, b)
		h.watchSwap(atS, orNaN(s.SwapUsed), b)
	}
	if total, used := orNaN(s.ShmTotal), orNaN(s.ShmUsed); total > 0 && used >= 0 {
		h.shm.push(point{atS, atS, used, math.NaN()})
		h.watchShm(atS, total, used, b)
	}
	if h.started {
		h.cpu.watch(atS, s.CPU, b)
	}
}

// watchRAM looks at RAM that is not available: the page cache is.
func (h *host) watchRAM(atS float64, b *alertTable) {
	kind := runlog.AlertHostRAM
	if b.isOpen(runlog.AlertWorkersRAM, -1) {
		kind = runlog.AlertWorkersRAM
	}
	used := h.total - h.available
	if h.n%decimation == 0 {
		h.ram.search(&h.used, h.n, atS, demand{rise: hostRise * h.total, sign: 3.9})
	}
	t, ok := h.ram.longest()
	if ok {
		h.ram.holds(t, atS, used)
	}
	seconds := h.available / t.slope
	switch {
	case ok && (h.near(t, seconds, h.available/h.total, h.starting()) || b.isOpen(kind, -1)):
		if !b.isOpen(kind, -1) && h.ofWorkers(t) {
			kind = runlog.AlertWorkersRAM
		}
		b.raise(atS, h.filling(kind, t, seconds))
	case h.available < hostTight*h.total:
		b.raise(atS, h.lowMemory(kind))
	case !h.crowded && h.available > hostEasy*h.total && h.ram.over(atS, used, hostRest):
		b.clear(atS, kind, -1)
	}
}

// near reports whether a growth lasted long enough to predict an end that far away. share is the
// share that is free.
func (h *host) near(t trend, seconds, share float64, starting bool) bool {
	if !h.started {
		return t.span >= hostSpan && seconds <= startReach*t.span
	}
	return t.span >= hostSpan && !(starting && t.span < 2*hostSpan) &&
		seconds <= max(hostSoon, hostReach*t.span) ||
		t.span >= fastSpan && !starting && share < fastShare && seconds <= fastS
}

// starting reports whether the workers were far smaller within the last minute and a half: then
// they are still starting.
func (h *host) starting() bool {
	points := h.used.last(0, resolutionSize)
	newest := points[len(points)-1].x
	lowest := newest
	for _, p := range points {
		lowest = min(lowest, p.x)
	}
	return newest > 4*lowest && h.available > hostEasy*h.total
}

// ofWorkers reports whether the DataLoader workers' memory grew by most of it.
func (h *host) ofWorkers(t trend) bool {
	newest := h.used.last(0, 1)[0].x
	return newest-t.first.x >= 0.6*t.rise
}

func (h *host) filling(kind string, t trend, seconds float64) runlog.Alert {
	f := runlog.Alert{Kind: kind, GPU: -1}
	f.SinceS, f.PerS, f.Seconds = pointer(t.from), pointer(t.slope), pointer(seconds)
	f.Text = fmt.Sprintf("Host memory in use grows %s/min, %s of %s are left: it runs out in "+
		"about %s", units.Size(60*t.slope), units.Size(h.available),
		units.Size(h.total), units.About(seconds))
	f.Advice = "keep results of steps as numbers (.item()), not in growing lists, and load data " +
		"by memory map (datasets does), not into lists"
	if kind == runlog.AlertWorkersRAM {
		f.Text = fmt.Sprintf("The DataLoader workers' RAM grows %s/min and reaches the limit of "+
			"%s in about %s", units.Size(60*t.slope), units.Size(h.total),
			units.About(seconds))
		f.Advice = "halve dataloader_num_workers; if it goes on, keep paths in numpy arrays, not " +
			"in Python lists that each worker copies"
	}
	return f
}

func (h *host) lowMemory(kind string) runlog.Alert {
	f := runlog.Alert{Kind: kind, GPU: -1}
	f.Advice = h.filling(kind, trend{}, 0).Advice
	f.Text = fmt.Sprintf("Only %s of %s of host memory are available", units.Size(h.available),
		units.Size(h.total))
	return f
}

// watchShm looks at /dev/shm, through which workers hand over batches.
func (h *host) watchShm(atS, total, used float64, b *alertTable) {
	if h.n%decimation == 0 {
		h.shared.search(&h.shm, h.n, atS, demand{rise: hostRise * total, sign: 3.9})
	}
	t, ok := h.shared.longest()
	if ok {
		h.shared.holds(t, atS, used)
	}
	seconds := max(0, total-used) / t.slope
	f := runlog.Alert{Kind: runlog.AlertShm, GPU: -1}
	f.Advice = "give the container more (docker run --shm-size=8g), or lower dataloader_num_workers"
	switch {
	case ok && (h.near(t, seconds, 1-used/total, false) || b.isOpen(runlog.AlertShm, -1)):
		f.SinceS, f.PerS, f.Seconds = pointer(t.from), pointer(t.slope), pointer(seconds)
		f.Text = fmt.Sprintf("/dev/shm grows %s/min, %s of %s are used: it is full in about %s",
			units.Size(60*t.slope), units.Size(used), units.Size(total), units.About(seconds))
		b.raise(atS, f)
	case used > shmTight*total:
		f.Text = fmt.Sprintf("/dev/shm is nearly full: %s of %s", units.Size(used),
			units.Size(total))
		b.raise(atS, f)
	case used < shmEasy*total && h.shared.over(atS, used, hostRest):
		b.clear(atS, runlog.AlertShm, -1)
	}
}

// watchSwap looks for swapping that slows the training: swap grows while little RAM is available.
// Idle pages that the kernel swaps out do not count.
func (h *host) watchSwap(atS, used float64, b *alertTable) {
	if math.IsNaN(used) {
		return
	}
	h.swapped.push(used)
	rise := used - h.swapped.min()
	switch low := h.available < swapTight*h.total; {
	case low && rise > swapRise*h.total:
		f := runlog.Alert{Kind: runlog.AlertSwap, GPU: -1}
		f.PerS, f.Advice = pointer(rise/recent), "halve dataloader_num_workers"
		f.Text = fmt.Sprintf("The host swaps: %s more within a minute, %s of RAM are available",
			units.Size(rise), units.Size(h.available))
		b.raise(atS, f)
	case !low && rise <= swapRise*h.total/2:
		b.clear(atS, runlog.AlertSwap, -1)
	}
}

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

func (c *contention) alert(waiting, others, cores float64) runlog.Alert {
	f := runlog.Alert{Kind: runlog.AlertCPU, GPU: -1}
	f.SinceS = pointer(c.sinceS)
	f.Text = fmt.Sprintf("Other processes use %.1f of %.3g CPU cores, and on average %.1f threads of "+
		"this training wait for one", others, cores, waiting)
	free := max(1, math.Floor(cores-others))
	f.Advice = fmt.Sprintf("stop them, or torch.set_num_threads(%.0f) (OMP_NUM_THREADS=%.0f before "+
		"Python starts)", free, free)
	return f
}
