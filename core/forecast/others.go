package forecast

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const (
	othersRise  = 0.01 // of the card
	othersReach = 600.0
	othersRest  = 60.0
)

// watchOthers looks at the memory of other processes on the card, by seconds.
func (g *gpu) watchOthers(b *book) {
	if g.told%ratio != 0 || !(g.total > 0) {
		return
	}
	g.strangers.search(&g.outside, g.told, g.at, demand{rise: g.least(othersRise), sign: 3.4})
	t, ok := g.strangers.longest()
	if !ok {
		if b.holds(runlog.AlertOthers, g.index) && g.strangers.over(g.at, g.others, othersRest) {
			b.clear(g.at, runlog.AlertOthers, g.index)
		}
		return
	}
	g.strangers.holds(t, g.at, g.others)
	seconds := max(0, g.roomOfOthers()) / t.slope
	if seconds > max(othersReach, t.span/2) && !b.holds(runlog.AlertOthers, g.index) {
		return
	}
	b.raise(g.at, forecast{
		kind: runlog.AlertOthers, gpu: g.index, since: math.NaN(), sinceS: t.from, perStep: math.NaN(), perS: t.slope,
		steps: seconds / g.paces.median(), seconds: seconds,
		text: fmt.Sprintf("Another process on this GPU holds %s and grows %s/s: out of memory in about %s", size(g.others), size(t.slope),
			lasting(seconds)),
		advice: "end the other process (nvidia-smi names it), or choose another card by CUDA_VISIBLE_DEVICES",
	})
}

// roomOfOthers is what others can take until a step of ours no longer fits.
func (g *gpu) roomOfOthers() float64 {
	if g.rooms.n == 0 {
		return g.free
	}
	return g.rooms.min()
}
