package forecast

import (
	"math"
	"slices"
)

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
	u, y [shiftCount + 1]float64 // newest last
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
	case math.Abs(size) < minSize || !flat || j.n > 0 && u-j.u[shiftCount] < 3*shiftWindow:
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

// regular reports whether the newest jumps are alike and the next is not overdue.
func (j *levelShifts) regular(step float64) (trend, bool) {
	if j.n < shiftCount {
		return trend{}, false
	}
	first := shiftCount + 1 - shiftCount
	low, high, sum := j.y[first], j.y[first], 0.0
	near, far := math.Inf(1), 0.0
	for i := first; i <= shiftCount; i++ {
		low, high, sum = min(low, j.y[i]), max(high, j.y[i]), sum+j.y[i]
		if i > first {
			near, far = min(near, j.u[i]-j.u[i-1]), max(far, j.u[i]-j.u[i-1])
		}
	}
	span := j.u[shiftCount] - j.u[first]
	if high > shiftTolerance*low || far > shiftTolerance*near ||
		step-j.u[shiftCount] > shiftTolerance*far {
		return trend{}, false
	}
	slope := (sum - j.y[first]) / span
	return trend{slope: slope, rise: sum, span: span * shiftCount / (shiftCount - 1),
		first: point{u: j.u[first]}, from: j.u[first]}, true
}
