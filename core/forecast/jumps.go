package forecast

import "math"

const (
	jumpSteps = 8 // steps on either side of a jump, and between them
	jumpAlike = 2 // how many times as large as the smallest the largest of regular jumps, and of the ways between them, may be
	jumpRow   = 3 // so many make a row
)

// jumps follows a level that rises at once, again and again: what every epoch or every evaluation leaves behind. Each lasts too
// short for a slope, and three that are alike are no chance.
type jumps struct {
	u, y [jumpRow + 1]float64 // newest last
	n    int
}

// look gives the slope of regular jumps, while they go on.
func (j *jumps) look(l *ladder, k, least float64) (trend, bool) {
	points := l.last(0, 3*jumpSteps)
	if len(points) < 3*jumpSteps {
		return trend{}, false
	}
	before, after := condense(points[:jumpSteps], k), condense(points[2*jumpSteps:], k)
	size := median(append([]float64{}, after.y[:after.n]...)) - median(append([]float64{}, before.y[:before.n]...))
	u := points[jumpSteps].u
	flat := max(before.scatter(0), after.scatter(0)) < 0.1*math.Abs(size)
	switch {
	case math.Abs(size) < least || !flat || j.n > 0 && u-j.u[jumpRow] < 3*jumpSteps:
	case size < 0:
		j.n = 0
	default:
		copy(j.u[:], j.u[1:])
		copy(j.y[:], j.y[1:])
		j.u[jumpRow], j.y[jumpRow] = u, size
		j.n++
	}
	return j.regular(points[len(points)-1].u)
}

// regular says whether the newest jumps are alike and the next is not overdue.
func (j *jumps) regular(now float64) (trend, bool) {
	if j.n < jumpRow {
		return trend{}, false
	}
	first := jumpRow + 1 - jumpRow
	least, most, sum := j.y[first], j.y[first], 0.0
	near, far := math.Inf(1), 0.0
	for i := first; i <= jumpRow; i++ {
		least, most, sum = min(least, j.y[i]), max(most, j.y[i]), sum+j.y[i]
		if i > first {
			near, far = min(near, j.u[i]-j.u[i-1]), max(far, j.u[i]-j.u[i-1])
		}
	}
	span := j.u[jumpRow] - j.u[first]
	if most > jumpAlike*least || far > jumpAlike*near || now-j.u[jumpRow] > jumpAlike*far {
		return trend{}, false
	}
	slope := (sum - j.y[first]) / span
	return trend{slope: slope, rise: sum, span: span * jumpRow / (jumpRow - 1), first: point{u: j.u[first]}, from: j.u[first]}, true
}
