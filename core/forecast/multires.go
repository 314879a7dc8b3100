package forecast

// A multires keeps a series of any length in little memory: the newest points one by one, older
// ones by the lowest (or highest) of every 4, 16, 64, …. So a fast growth is seen in the newest
// steps and a slow one over a hundred thousand.
const (
	resolutions    = 7
	resolutionSize = 96 // points of a resolution
	decimation     = 4  // points that become one of the next resolution
)

// point is one value of a series.
type point struct {
	u   float64 // where: a count of steps, or seconds
	atS float64 // time, seconds
	y   float64 // the value
	x   float64 // the length of the batch that it belongs to; NaN when not known
}

type resolution struct {
	// the newest resolutionSize of these hold; moved to the front when full
	points  [2 * resolutionSize]point
	n       int
	extreme point // of those that will be one of the next resolution
	grouped int
}

type multires struct {
	levels  [resolutions]resolution
	highest bool // a group is stood for by its highest point, not by its lowest
}

func (l *multires) push(p point) {
	for i := range l.levels {
		r := &l.levels[i]
		r.add(p)
		if r.grouped == 0 || (p.y > r.extreme.y) == l.highest {
			r.extreme = p
		}
		if r.grouped++; r.grouped < decimation {
			return
		}
		p, r.grouped = r.extreme, 0
	}
}

func (r *resolution) add(p point) {
	if r.n == len(r.points) {
		copy(r.points[:], r.points[resolutionSize:])
		r.n = resolutionSize
	}
	r.points[r.n] = p
	r.n++
}

// last returns the newest n points of a resolution, oldest first; fewer when there are fewer.
func (l *multires) last(i, n int) []point {
	r := &l.levels[i]
	return r.points[r.n-min(n, r.n, resolutionSize) : r.n]
}

// due reports whether resolution i needs another look after the n-th point: several of its newest
// points have changed.
func due(i int, n uint64) bool {
	every := uint64(4)
	for range i {
		every *= decimation
	}
	return n%every == 0
}
