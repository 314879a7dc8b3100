package forecast

// A ladder keeps a series of any length in little memory: the newest points one by one, older ones by the lowest (or highest)
// of every 4, 16, 64, …. So a fast growth is seen in the newest steps and a slow one over a hundred thousand.
const (
	rungs    = 7
	rungSize = 96 // points on a rung
	ratio    = 4  // points that become one on the next rung
)

// point is one value of a series.
type point struct {
	u  float64 // where: a count of steps, or seconds
	at float64 // time, seconds
	y  float64 // the value
	x  float64 // the length of the batch that it belongs to; NaN when not known
}

type rung struct {
	points [2 * rungSize]point // the newest rungSize of these hold; moved to the front when full
	n      int
	best   point // of those that will be one on the next rung
	inBest int
}

type ladder struct {
	rungs   [rungs]rung
	highest bool // a group is stood for by its highest point, not by its lowest
}

func (l *ladder) push(p point) {
	for i := range l.rungs {
		r := &l.rungs[i]
		r.add(p)
		if r.inBest == 0 || (p.y > r.best.y) == l.highest {
			r.best = p
		}
		if r.inBest++; r.inBest < ratio {
			return
		}
		p, r.inBest = r.best, 0
	}
}

func (r *rung) add(p point) {
	if r.n == len(r.points) {
		copy(r.points[:], r.points[rungSize:])
		r.n = rungSize
	}
	r.points[r.n] = p
	r.n++
}

// last gives the newest n points of a rung, oldest first; fewer when there are fewer.
func (l *ladder) last(i, n int) []point {
	r := &l.rungs[i]
	return r.points[r.n-min(n, r.n, rungSize) : r.n]
}

// due says whether rung i is worth another look after the n-th point: its newest points have changed by some of them.
func due(i int, n uint64) bool {
	every := uint64(4)
	for range i {
		every *= ratio
	}
	return n%every == 0
}
