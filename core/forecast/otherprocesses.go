package forecast

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

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
		if b.isOpen(runlog.AlertOthers, g.index) &&
			g.otherGrowth.over(g.atS, g.others, othersRest) {
			b.clear(g.atS, runlog.AlertOthers, g.index)
		}
		return
	}
	g.otherGrowth.holds(t, g.atS, g.others)
	seconds := max(0, g.headroomForOthers()) / t.slope
	if seconds > max(othersReach, t.span/2) && !b.isOpen(runlog.AlertOthers, g.index) {
		return
	}
	f := unforeseen(runlog.AlertOthers, g.index)
	f.sinceS, f.perS, f.seconds, f.steps = t.from, t.slope, seconds, seconds/g.stepTimes.median()
	f.text = fmt.Sprintf("Another process on this GPU holds %s and grows %s/s: out of memory in "+
		"about %s", units.Size(g.others), units.Size(t.slope), units.About(seconds))
	f.advice = "end the other process (nvidia-smi names it), or choose another card by " +
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
