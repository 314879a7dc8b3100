package forecast

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	leakRise  = 0.0025 // of the card: the least growth that counts as one
	leakReach = 8      // a leak is foreseen this many times as far ahead as it was seen
	leakRest  = 32     // steps without growth after which it may be over
)

// watchLeak looks at what stays allocated after a step, at equal lengths. In a training in order it
// is flat: weights, optimizer state, and the inputs of the last batch, which go by its length and
// are taken out.
func (g *gpu) watchLeak(atS float64, n uint64, b *alertTable) {
	g.learnInputs(n)
	g.leak.search(&g.level, n, g.u, demand{rise: g.minRise(leakRise), sign: 3.9, k: g.k})
	t, ok := g.leak.longest()
	level := g.settled()
	if regular, jumps := g.shifts.detect(&g.level, g.k, g.minRise(leakRise)); jumps && !ok {
		t, ok = regular, true
	}
	if !ok {
		if g.leak.over(g.u, level, leakRest) {
			b.clear(atS, runlog.AlertLeak, g.index)
		}
		return
	}
	g.leak.holds(t, g.u, level)
	steps := max(0, g.capacity.median()-level-g.rise) / t.slope
	if seconds := g.secondsFor(steps); steps < leakReach*t.span && steps < longest &&
		!(seconds > longest) || b.isOpen(runlog.AlertLeak, g.index) {
		b.raise(atS, g.leaking(t, steps, seconds))
	}
}

func (g *gpu) leaking(t trend, steps, seconds float64) runlog.Alert {
	f := g.growing(runlog.AlertLeak, t, t.from, math.NaN(), steps, seconds)
	f.Text = fmt.Sprintf("GPU memory grows %s/step since step %d: out of memory %s",
		units.Size(t.slope), *f.Since, timeLeft(steps, seconds))
	f.Advice = "something keeps a tensor of every step: sum up loss.item() or loss.detach(), " +
		"not loss, and keep no outputs in a list"
	return f
}

// learnInputs finds how many bytes stay for each unit of length, from the median ratio of the
// differences between neighbours: once after subtracting the usual growth of a step, once without.
// The one that explains the levels better is used: in grouped and sorted orders lengths mostly
// change in one direction, and their growth would be mistaken for that of a step.
func (g *gpu) learnInputs(n uint64) {
	if n%(4*decimation) != 0 {
		return
	}
	points := g.level.last(0, resolutionSize/2)
	var grown [resolutionSize]float64
	for i := 1; i < len(points); i++ {
		grown[i-1] = points[i].y - points[i-1].y
	}
	usual := median(grown[:max(0, len(points)-1)])
	with, pairs := perLength(points, usual)
	without, _ := perLength(points, 0)
	switch {
	case pairs >= 8 && unexplained(points, with) <= unexplained(points, without):
		g.k = max(0, with)
	case pairs >= 8:
		g.k = max(0, without)
	case len(points) > 1 && points[len(points)-1].x > 1.02*points[0].x:
		g.k = max(0, (points[len(points)-1].y-points[0].y)/(points[len(points)-1].x-points[0].x))
	}
}

// perLength is the median growth for a unit of length between neighbours of clearly different
// lengths, and how many there were.
func perLength(points []point, usual float64) (k float64, pairs int) {
	var ratios [resolutionSize]float64
	for i := 1; i < len(points); i++ {
		if more := points[i].x - points[i-1].x; math.Abs(more) > 0.02*points[i].x {
			ratios[pairs] = (points[i].y - points[i-1].y - usual) / more
			pairs++
		}
	}
	return median(ratios[:pairs]), pairs
}

// unexplained is how much the growth of a step scatters once k bytes for each unit of length are
// taken out.
func unexplained(points []point, k float64) float64 {
	var residuals [resolutionSize]float64
	for i := 1; i < len(points); i++ {
		residuals[i-1] = points[i].y - points[i-1].y - k*(points[i].x-points[i-1].x)
	}
	return deviation(residuals[:max(0, len(points)-1)])
}

// settled is the level of the newest steps without what goes by their lengths.
func (g *gpu) settled() float64 {
	points := g.level.last(0, 9)
	var levels [9]float64
	for i, p := range points {
		levels[i] = p.without(g.k)
	}
	return median(levels[:len(points)])
}

const (
	peakRise = 0.01 // of the card
	// what may end with the dataset is foreseen this share as far ahead as it was seen,
	lengthPart = 0.5
	soonSteps  = 80 // or so many steps
	soonS      = 180.0
	// of what there is: the pieces of a cache that meets new lengths never fit exactly
	lengthFull = 0.95
	// of the capacity; below it the end is too far to be predicted from a few lengths
	lengthShare = 0.5
	newestSteps = 8 // whose highest peak is the present one
)

// watchLength looks at the highest peaks of equal numbers of steps. In random order these are
// steady, whatever the lengths; they rise when longer batches come (sorted orders, a curriculum) or
// when a step itself needs more and more.
func (g *gpu) watchLength(atS float64, n uint64, b *alertTable) {
	g.length.search(&g.peak, n, g.u, demand{rise: g.minRise(peakRise), sign: 3.9})
	peak := top(g.peak.last(0, newestSteps))
	t, steps, ok := g.length.soonest(max(0, lengthFull*g.capacity.median()-peak))
	if b.isOpen(runlog.AlertLeak, g.index) {
		ok = false // its peaks grow, too
	}
	if !ok {
		if g.length.over(g.u, peak, leakRest) {
			b.clear(atS, runlog.AlertLength, g.index)
		}
		return
	}
	g.length.holds(t, g.u, peak)
	seconds := g.secondsFor(steps)
	near := steps <= max(soonSteps, lengthPart*t.span) || seconds <= soonS
	near = near && peak >= lengthShare*g.capacity.median()
	if near && g.u-g.markU <= max(recent, t.span) || b.isOpen(runlog.AlertLength, g.index) {
		b.raise(atS, g.lengthening(t, steps, seconds))
	}
}

// lengthening words it by length where the peaks go by it, else as a leak of what a step needs.
func (g *gpu) lengthening(t trend, steps, seconds float64) runlog.Alert {
	f := g.growing(runlog.AlertLength, t, t.first.u, t.first.atS, steps, seconds)
	f.Text = fmt.Sprintf("The peak of a step grows %s/step since step %d: out of memory %s",
		units.Size(t.slope), *f.Since, timeLeft(steps, seconds))
	f.Advice = "halve per_device_train_batch_size and double gradient_accumulation_steps, or " +
		"limit the length of clips"
	if x, end, ok := g.lengthAtEnd(); ok {
		f.Text = fmt.Sprintf("GPU memory grows with the length of batches since step %d, now "+
			"%.0f s: out of memory at about %.0f s, %s",
			*f.Since, x, end, timeLeft(steps, seconds))
	}
	return f
}

// lengthAtEnd fits peaks to lengths and returns the longest recent length and the length at which
// the capacity ends; false when lengths do not explain the peaks.
func (g *gpu) lengthAtEnd() (x, end float64, ok bool) {
	var s series
	for _, p := range g.peak.last(1, maxPoints) {
		if !math.IsNaN(p.x) {
			s.u[s.n], s.y[s.n] = p.x, p.y
			s.n++
			x = max(x, p.x)
		}
	}
	slope, _ := s.slope()
	if s.n < 4 || !(slope > 0) {
		return 0, 0, false
	}
	peak := top(g.peak.last(0, newestSteps))
	return x, x + max(0, lengthFull*g.capacity.median()-peak)/slope, true
}

const (
	othersRise  = 0.01 // of the card
	othersReach = 600.0
	othersRest  = 60.0
)

// watchOtherProcesses looks at the memory of other processes on the card, by seconds.
func (g *gpu) watchOtherProcesses(b *alertTable) {
	if g.otherReadings%decimation != 0 || !(g.total > 0) {
		return
	}
	g.otherGrowth.search(&g.otherMemory, g.otherReadings, g.atS,
		demand{rise: g.minRise(othersRise), sign: 3.4})
	t, ok := g.otherGrowth.longest()
	if !ok {
		if g.otherGrowth.over(g.atS, g.others, othersRest) {
			b.clear(g.atS, runlog.AlertOthers, g.index)
		}
		return
	}
	g.otherGrowth.holds(t, g.atS, g.others)
	seconds := max(0, g.headroomForOthers()) / t.slope
	if seconds > max(othersReach, t.span/2) && !b.isOpen(runlog.AlertOthers, g.index) {
		return
	}
	f := runlog.Alert{Kind: runlog.AlertOthers, GPU: g.index}
	f.SinceS, f.PerS = pointer(t.from), pointer(t.slope)
	f.Seconds, f.Steps = pointer(seconds), pointer(seconds/g.stepTimes.median())
	f.Text = fmt.Sprintf("Another process on this GPU holds %s and grows %s/s: out of memory in "+
		"about %s", units.Size(g.others), units.Size(t.slope), units.About(seconds))
	f.Advice = "end the other process (nvidia-smi names it), or choose another card by " +
		"CUDA_VISIBLE_DEVICES"
	b.raise(g.atS, f)
}

// headroomForOthers is what others can take until a step of ours no longer fits.
func (g *gpu) headroomForOthers() float64 {
	if g.headrooms.n == 0 {
		return g.free
	}
	return g.headrooms.min()
}
