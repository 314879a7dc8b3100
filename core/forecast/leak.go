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
		if b.isOpen(runlog.AlertLeak, g.index) && g.leak.over(g.u, level, leakRest) {
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

func (g *gpu) leaking(t trend, steps, seconds float64) forecast {
	f := g.growing(runlog.AlertLeak, t, t.from, math.NaN(), steps, seconds)
	f.text = fmt.Sprintf("GPU memory grows %s/step since step %.0f: out of memory %s",
		units.Size(t.slope), f.since, timeLeft(steps, seconds))
	f.advice = "something keeps a tensor of every step: sum up loss.item() or loss.detach(), " +
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
	n := max(0, len(points)-1)
	centre := median(residuals[:n])
	for i := range n {
		residuals[i] = math.Abs(residuals[i] - centre)
	}
	return median(residuals[:n])
}

// settled is the level of the newest steps without what goes by their lengths.
func (g *gpu) settled() float64 {
	points := g.level.last(0, 9)
	var levels [9]float64
	for i, p := range points {
		if levels[i] = p.y; !math.IsNaN(p.x) {
			levels[i] -= g.k * p.x
		}
	}
	return median(levels[:len(points)])
}
