package forecast

import (
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const (
	// training steps that are not looked at: gradients, optimizer state and workspaces come into
	// being
	warmUp   = 4
	recent   = 64  // steps whose needs count as usual
	longest  = 2e5 // no forecast is made for more seconds or steps than this
	smallest = 1e5 // bytes; no growth below it is looked at, whatever the card
)

// gpu is what is known of one GPU.
type gpu struct {
	index        int
	crowded      bool    // fuller than the limit of Check
	total, free  float64 // newest; NaN when not known
	used, others float64
	atS          float64
	u, offset    float64 // count of training steps; what makes it the training's own number
	steps        uint64  // training steps that were reported
	kind         string  // of the newest step
	// allocated after the newest training step, without what goes by its length
	base                 float64
	capacity             ring    // what PyTorch could hold in all
	rise                 float64 // the most that a step needed above the level before it
	stepTimes, headrooms ring    // seconds of a step; capacity less peak
	k                    float64 // bytes of allocated for each unit of length, at the end of a step
	level, peak, reserve multires
	otherMemory          multires // memory of others, over seconds
	otherReadings        uint64   // readings of others
	record               float64  // highest peak
	// what it was when it last had risen by more than a trifle, and when that was
	mark, markU    float64
	leak           growth
	shifts         levelShifts
	length         growth
	reservedGrowth growth
	otherGrowth    growth
	phase          phase
	spikes         map[string]float64 // kind of step: what the last one took above the level
}

func newGPU(index int) *gpu {
	g := &gpu{index: index, total: math.NaN(), free: math.NaN(), used: math.NaN(),
		others: math.NaN(), base: math.NaN(), spikes: map[string]float64{}}
	g.peak.highest, g.reserve.highest = true, true
	return g
}

// second takes the driver's view.
func (g *gpu) second(atS float64, s runlog.GPUSecond, b *alertTable) {
	g.atS = atS
	for _, f := range []struct {
		to    *float64
		value float64
	}{{&g.total, s.Total}, {&g.free, s.Free}, {&g.used, s.Used}, {&g.others, s.Others}} {
		if value := orNaN(f.value); !math.IsNaN(value) {
			*f.to = value
		}
	}
	if others := orNaN(s.Others); !math.IsNaN(others) {
		g.otherReadings++
		g.otherMemory.push(point{u: atS, atS: atS, y: others, x: math.NaN()})
		g.watchOtherProcesses(b)
	}
}

// step adds one step of any kind. A step without PyTorch's counters has no GPU memory.
func (g *gpu) step(atS float64, s runlog.Step, b *alertTable) {
	s.Allocated, s.Reserved, s.PeakAllocated =
		orNaN(s.Allocated), orNaN(s.Reserved), orNaN(s.PeakAllocated)
	if math.IsNaN(s.Allocated) || math.IsNaN(s.Reserved) {
		return
	}
	if math.IsNaN(s.PeakAllocated) || s.PeakAllocated < s.Allocated {
		s.PeakAllocated = s.Allocated
	}
	if total := orNaN(s.Total); total > 0 {
		g.total = total
	}
	free := orNaN(s.DriverFree)
	if math.IsNaN(free) {
		free = g.free
	}
	g.capacity.push(free + max(s.Reserved, s.Allocated))
	switch s.Kind {
	case runlog.KindTrain:
		g.endPhase()
		g.train(atS, s, free, b)
	case runlog.KindEvaluation, runlog.KindCheckpoint:
		g.inPhase(atS, s, b)
	}
	g.atS, g.kind = atS, s.Kind
}

func (g *gpu) train(atS float64, s runlog.Step, free float64, b *alertTable) {
	g.count(s.Number)
	if g.kind == runlog.KindTrain && atS > g.atS {
		g.stepTimes.push(atS - g.atS)
	}
	if g.steps++; g.steps > warmUp {
		x := length(s)
		g.rise = max(g.rise, s.PeakAllocated-g.base)
		g.headrooms.push(g.headroom(s.PeakAllocated))
		g.level.push(point{g.u, atS, s.Allocated, x})
		g.peak.push(point{g.u, atS, s.PeakAllocated, x})
		g.reserve.push(point{g.u, atS, s.Reserved, s.PeakAllocated})
		if s.PeakAllocated > g.mark+g.minRise(leakRise) {
			g.mark, g.markU = s.PeakAllocated, g.u
		}
		g.record = max(g.record, s.PeakAllocated)
		g.detect(atS, s, free, b)
	}
	g.base = s.Allocated
	if x := length(s); !math.IsNaN(x) {
		g.base -= g.k * x
	}
}

// detect runs the detectors that are due.
func (g *gpu) detect(atS float64, s runlog.Step, free float64, b *alertTable) {
	g.watchFull(atS, b)
	g.watchSpikes(atS, b)
	n := g.steps - warmUp
	if n%decimation != 0 || !(g.total > 0) {
		return
	}
	g.watchLeak(atS, n, b)
	g.watchLength(atS, n, b)
	g.watchFragmentation(atS, n, s, free, b)
}

// count returns a number that rises by the steps done, also when a training reports only every
// tenth step, or starts again.
func (g *gpu) count(number uint64) {
	reported, before := float64(number), g.u+g.offset
	if more := reported - before; g.steps > 0 && more > 0 && more < 1e6 {
		g.u += more
	} else {
		g.u++
	}
	g.offset = reported - g.u
}

// length is what a batch's memory goes by: its seconds with padding, or its longest clip.
func length(s runlog.Step) float64 {
	if padded := orNaN(s.PaddedS); padded > 0 {
		return padded
	}
	return orNaN(s.LongestS)
}

// headroom is what a peak leaves free; NaN when the driver never reported.
func (g *gpu) headroom(peak float64) float64 { return g.capacity.median() - peak }

// minRise is the smallest growth that counts: this share of the card.
func (g *gpu) minRise(share float64) float64 { return max(smallest, share*g.total) }

// secondsFor turns steps into seconds by the newest steps' pace.
func (g *gpu) secondsFor(steps float64) float64 { return steps * g.stepTimes.median() }

// ring is the newest numbers of a series.
type ring struct {
	values [recent]float64
	n      int // pushed in all
}

func (r *ring) push(value float64) {
	if !math.IsNaN(value) {
		r.values[r.n%recent] = value
		r.n++
	}
}

func (r *ring) min() float64 {
	if r.n == 0 {
		return math.NaN()
	}
	return slices.Min(r.values[:min(r.n, recent)])
}

// median is that of the newest nine: readings of the driver and of PyTorch are not of one moment.
func (r *ring) median() float64 {
	var newest [9]float64
	n := min(r.n, len(newest))
	for i := range n {
		newest[i] = r.values[(r.n-1-i)%recent]
	}
	return median(newest[:n])
}
