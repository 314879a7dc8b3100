package forecast

import (
	"math"
	"slices"
)

// growth is a trend that was found in a series and is followed.
type growth struct {
	trends    [resolutions]trend
	detectedU [resolutions]float64 // u of when it was found; 0: never
	u         float64              // of the newest time that any was
	y         float64              // and the value then
	best      trend
}

// search looks at the resolutions that are due after the n-th point. What was found stays for as
// long as its resolution gets no new look.
func (g *growth) search(l *multires, n uint64, u float64, d demand) {
	for i := range resolutions {
		if !due(i, n) {
			return
		}
		g.detectedU[i] = 0
		for _, size := range windows {
			points := l.last(i, size)
			if len(points) < size && (i > 0 || size > windows[0]) {
				break
			}
			if t, ok := climbs(points, d); ok {
				g.trends[i], g.detectedU[i] = t, u
				g.trends[i].from = l.onset(i, len(points), t, d.k)
			}
		}
	}
}

// longest is the trend over the longest time; its evidence is the best.
func (g *growth) longest() (trend, bool) {
	for i := resolutions - 1; i >= 0; i-- {
		if g.detectedU[i] > 0 {
			return g.trends[i], true
		}
	}
	return trend{}, false
}

// soonest is the trend by which the way to an end is shortest: of what grows faster and faster.
func (g *growth) soonest(way float64) (best trend, steps float64, ok bool) {
	steps = math.Inf(1)
	for i := range resolutions {
		if g.detectedU[i] > 0 && way/g.trends[i].slope < steps {
			best, steps, ok = g.trends[i], way/g.trends[i].slope, true
		}
	}
	return best, steps, ok
}

// holds keeps in mind that a trend was there.
func (g *growth) holds(t trend, u, y float64) { g.best, g.u, g.y = t, u, y }

// over reports whether a growth that was followed has stopped: nothing was detected for a while,
// and the value is well below its line. Where none was followed, nothing holds on.
func (g *growth) over(u, y, patience float64) bool {
	if g.best.slope == 0 {
		return true
	}
	waited := u - g.u
	return waited >= max(patience, g.best.span/4) && y < g.y+0.25*g.best.slope*waited
}

// onset is where a growth left the level before it: the line through the newest points meets the
// median of the older ones. Without older points it is the window's first.
func (l *multires) onset(i, size int, t trend, k float64) float64 {
	points := l.last(i, resolutionSize)
	older := points[:len(points)-size]
	if len(older) < 3 {
		return t.first.u
	}
	var values [resolutionSize]float64
	for j, p := range older {
		values[j] = p.without(k)
	}
	s := condense(points[len(points)-size:], k)
	var lines [maxPoints]float64
	for j := range s.n {
		lines[j] = s.y[j] - t.slope*s.u[j]
	}
	from := (median(values[:len(older)]) - median(lines[:s.n])) / t.slope
	return min(max(from, older[0].u), points[len(points)-1].u)
}

const (
	shiftWindow = 8 // steps on either side of a jump, and between them
	// how many times as large as the smallest the largest of regular jumps, and of the ways between
	// them, may be
	shiftTolerance = 2
	shiftCount     = 3 // so many make a row
)

// levelShifts follows a level that rises at once, again and again: what every epoch or every
// evaluation leaves behind. Each lasts too short for a slope, and three that are alike are no
// chance.
type levelShifts struct {
	u, y [shiftCount]float64 // newest last
	n    int
}

// detect returns the slope of regular jumps, while they go on.
func (j *levelShifts) detect(l *multires, k, minSize float64) (trend, bool) {
	points := l.last(0, 3*shiftWindow)
	if len(points) < 3*shiftWindow {
		return trend{}, false
	}
	before, after := condense(points[:shiftWindow], k), condense(points[2*shiftWindow:], k)
	size := median(slices.Clone(after.y[:after.n])) - median(slices.Clone(before.y[:before.n]))
	u := points[shiftWindow].u
	flat := max(before.scatter(0), after.scatter(0)) < 0.1*math.Abs(size)
	switch {
	case math.Abs(size) < minSize || !flat || j.n > 0 && u-j.u[shiftCount-1] < 3*shiftWindow:
	case size < 0:
		j.n = 0
	default:
		copy(j.u[:], j.u[1:])
		copy(j.y[:], j.y[1:])
		j.u[shiftCount-1], j.y[shiftCount-1] = u, size
		j.n++
	}
	return j.regular(points[len(points)-1].u)
}

// regular reports whether the newest jumps are alike and the next is not overdue.
func (j *levelShifts) regular(step float64) (trend, bool) {
	if j.n < shiftCount {
		return trend{}, false
	}
	sum, near, far := j.y[0], math.Inf(1), 0.0
	for i := 1; i < shiftCount; i++ {
		sum += j.y[i]
		near, far = min(near, j.u[i]-j.u[i-1]), max(far, j.u[i]-j.u[i-1])
	}
	last := j.u[shiftCount-1]
	if slices.Max(j.y[:]) > shiftTolerance*slices.Min(j.y[:]) || far > shiftTolerance*near ||
		step-last > shiftTolerance*far {
		return trend{}, false
	}
	span := last - j.u[0]
	return trend{slope: (sum - j.y[0]) / span, rise: sum, span: span * shiftCount / (shiftCount - 1),
		first: point{u: j.u[0]}, from: j.u[0]}, true
}
