package forecast

import (
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	fragmentationRise = 0.02 // of the card
	fragmentationSpan = 40   // steps: a cache that fills looks straight over fewer
	// a growth that may be one of records is foreseen this share as far ahead as it was seen
	fragmentationReach = 0.5
	fragmentationRest  = 500 // steps
	// of the card: reserved above the highest peak ever; less is no fragmentation
	fragmentationGap         = 0.10
	enoughHeadroom, fullLook = 0.05, 32 // again after little, and steps that must have it
)

// watchFragmentation looks for reserved memory that grows while peaks do not: the free blocks do
// not fit the requests. A cache that only meets longer and longer batches grows with its peaks, and
// more and more slowly.
func (g *gpu) watchFragmentation(atS float64, n uint64, s runlog.Step, free float64,
	b *alertTable) {
	g.reservedGrowth.search(&g.reserve, n, g.u,
		demand{rise: g.minRise(fragmentationRise), sign: 3.5})
	gap := s.Reserved - g.record
	t, ok := g.reservedGrowth.longest()
	ok = ok && t.span >= fragmentationSpan && gap >= fragmentationGap*g.total &&
		g.peaksRise(t) < t.rise/4 && !g.peaksClimb(t)
	if !ok {
		// the most of the newest steps: near the end PyTorch empties its cache, and fills it again
		reserved := top(g.reserve.last(1, resolutionSize))
		isClosed := reserved-g.record < fragmentationGap*g.total/2
		if isClosed && g.u-g.reservedGrowth.u >= fragmentationRest {
			b.clear(atS, runlog.AlertFragmentation, g.index)
		}
		return
	}
	g.reservedGrowth.holds(t, g.u, s.Reserved)
	steps := free / t.slope
	seconds := g.secondsFor(steps)
	if steps <= max(soonSteps, fragmentationReach*t.span) ||
		b.isOpen(runlog.AlertFragmentation, g.index) {
		b.raise(atS, g.fragmenting(t, gap, steps, seconds))
	}
}

// peaksRise is by how much the record of the peaks rose since a trend of the cache began.
func (g *gpu) peaksRise(t trend) float64 {
	before := 0.0
	for i := range resolutions {
		for _, p := range g.peak.last(i, resolutionSize) {
			if p.u <= t.first.u {
				before = max(before, p.y)
			}
		}
	}
	return g.record - before
}

// peaksClimb reports whether peaks rise all the time, however little: then every batch is a little
// longer than the blocks of the cache, as in sorted orders, and unused reserved memory can be
// released.
func (g *gpu) peaksClimb(t trend) bool {
	for i := range resolutions {
		points := g.peak.last(i, resolutionSize)
		from := slices.IndexFunc(points, func(p point) bool { return p.u >= t.first.u })
		if from > 0 || i == resolutions-1 || len(points) < resolutionSize {
			s := condense(points[max(0, from):], 0)
			_, sign := s.slope()
			return sign > 2
		}
	}
	return false
}

func (g *gpu) fragmenting(t trend, gap, steps, seconds float64) runlog.Alert {
	f := g.growing(runlog.AlertFragmentation, t, t.first.u, t.first.atS, steps, seconds)
	f.Text = fmt.Sprintf("PyTorch's cache fragments: reserved memory grows %s/step since step "+
		"%d, %s above what steps need; it fills the GPU %s",
		units.Size(t.slope), *f.Since, units.Size(gap), timeLeft(steps, seconds))
	f.Advice = "set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before " +
		"PyTorch 2.9) before the training starts"
	return f
}

// watchFull looks at what the newest steps left free at their peaks. The cache counts as free.
func (g *gpu) watchFull(atS float64, b *alertTable) {
	if !(g.total > 0) || g.headrooms.n < fullLook/4 {
		return
	}
	switch headroom := g.headrooms.min(); {
	case headroom/g.total >= enoughHeadroom && g.headrooms.n >= fullLook && !g.crowded:
		b.clear(atS, runlog.AlertFull, g.index)
	case g.tight() && !b.isOpen(runlog.AlertOthers, g.index):
		f := runlog.Alert{Kind: runlog.AlertFull, GPU: g.index}
		f.Text = fmt.Sprintf("At the peak of a step only %s of %s are left, PyTorch's cache "+
			"counted as free: a slightly longer batch runs out of memory",
			units.Size(max(0, headroom)), units.Size(g.total))
		f.Advice = "halve per_device_train_batch_size and double gradient_accumulation_steps"
		b.raise(atS, f)
	}
}

// tight reports whether one of the newest steps left little headroom at its peak.
func (g *gpu) tight() bool {
	return g.headrooms.n >= fullLook/4 && g.headrooms.min() < runlog.LowHeadroom*g.total
}
