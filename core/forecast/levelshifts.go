package forecast

import "math"

const (
	shiftWindow    = 8 // steps on either side of a jump, and between them
	shiftTolerance = 2 // how many times as large as the smallest the largest of regular jumps, and of the ways between them, may be
	shiftCount     = 3 // so many make a row
)

// levelShifts follows a level that rises at once, again and again: what every epoch or every evaluation leaves behind. Each lasts too
// short for a slope, and three that are alike are no chance.
type levelShifts struct {
	u, y [shiftCount + 1]float64 // newest last
	n    int
}

// detect gives the slope of regular jumps, while they go on.
func (j *levelShifts) detect(l *multires, k, least float64) (trend, bool) {
	points := l.last(0, 3*shiftWindow)
	if len(points) < 3*shiftWindow {
		return trend{}, false
	}
	before, after := condense(points[:shiftWindow], k), condense(points[2*shiftWindow:], k)
	size := median(append([]float64{}, after.y[:after.n]...)) - median(append([]float64{}, before.y[:before.n]...))
	u := points[shiftWindow].u
	flat := max(before.scatter(0), after.scatter(0)) < 0.1*math.Abs(size)
	switch {
	case math.Abs(size) < least || !flat || j.n > 0 && u-j.u[shiftCount] < 3*shiftWindow:
	case size < 0:
		j.n = 0
	default:
		copy(j.u[:], j.u[1:])
		copy(j.y[:], j.y[1:])
		j.u[shiftCount], j.y[shiftCount] = u, size
		j.n++
	}
	return j.regular(points[len(points)-1].u)
}

// regular says whether the newest jumps are alike and the next is not overdue.
func (j *levelShifts) regular(now float64) (trend, bool) {
	if j.n < shiftCount {
		return trend{}, false
	}
	first := shiftCount + 1 - shiftCount
	least, most, sum := j.y[first], j.y[first], 0.0
	near, far := math.Inf(1), 0.0
	for i := first; i <= shiftCount; i++ {
		least, most, sum = min(least, j.y[i]), max(most, j.y[i]), sum+j.y[i]
		if i > first {
			near, far = min(near, j.u[i]-j.u[i-1]), max(far, j.u[i]-j.u[i-1])
		}
	}
	span := j.u[shiftCount] - j.u[first]
	if most > shiftTolerance*least || far > shiftTolerance*near || now-j.u[shiftCount] > shiftTolerance*far {
		return trend{}, false
	}
	slope := (sum - j.y[first]) / span
	return trend{slope: slope, rise: sum, span: span * shiftCount / (shiftCount - 1), first: point{u: j.u[first]}, from: j.u[first]}, true
}
