package forecast

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

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
)

// watchLength looks at the highest peaks of equal numbers of steps. In random order these are
// steady, whatever the lengths; they rise when longer batches come (sorted orders, a curriculum) or
// when a step itself needs more and more.
func (g *gpu) watchLength(atS float64, n uint64, b *alertTable) {
	g.length.search(&g.peak, n, g.u, demand{rise: g.minRise(peakRise), sign: 3.9})
	peak := g.newestPeak()
	t, steps, ok := g.length.soonest(max(0, lengthFull*g.capacity.median()-peak))
	if b.isOpen(runlog.AlertLeak, g.index) {
		ok = false // its peaks grow, too
	}
	if !ok {
		if b.isOpen(runlog.AlertLength, g.index) && g.length.over(g.u, peak, leakRest) {
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
func (g *gpu) lengthening(t trend, steps, seconds float64) forecast {
	f := g.growing(runlog.AlertLength, t, t.first.u, t.first.atS, steps, seconds)
	f.text = fmt.Sprintf("The peak of a step grows %s/step since step %.0f: out of memory %s",
		units.Size(t.slope), f.since, timeLeft(steps, seconds))
	f.advice = "halve per_device_train_batch_size and double gradient_accumulation_steps, or " +
		"limit the length of clips"
	if x, end, ok := g.lengthAtEnd(); ok {
		f.text = fmt.Sprintf("GPU memory grows with the length of batches since step %.0f, now "+
			"%.0f s: out of memory at about %.0f s, %s",
			f.since, x, end, timeLeft(steps, seconds))
	}
	return f
}

// newestPeak is the highest of the newest steps.
func (g *gpu) newestPeak() float64 {
	highest := 0.0
	for _, p := range g.peak.last(0, 8) {
		highest = max(highest, p.y)
	}
	return highest
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
	if s.n < 4 {
		return 0, 0, false
	}
	slope, _ := s.slope()
	if !(slope > 0) {
		return 0, 0, false
	}
	return x, x + max(0, lengthFull*g.capacity.median()-g.newestPeak())/slope, true
}
