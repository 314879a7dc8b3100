package diagnosis

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

func finite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }

// share is NaN of nothing.
func share(part, total float64) float64 {
	if !(total > 0) || !finite(part) {
		return math.NaN()
	}
	return part / total
}

// mean is that of the known values; NaN of few.
func mean(column runlog.Column) float64 { return meanOf(column, leastRows) }

// meanOf is the mean of the known values, NaN of fewer than least.
func meanOf(column runlog.Column, least float64) float64 {
	sum, n := 0.0, 0.0
	for _, value := range column {
		if finite(value) {
			sum, n = sum+value, n+1
		}
	}
	if n < least {
		return math.NaN()
	}
	return share(sum, n)
}

func highest(column runlog.Column) float64 {
	top := math.NaN()
	for _, value := range column {
		if finite(value) && !(value <= top) {
			top = value
		}
	}
	return top
}

func lowest(column runlog.Column) float64 {
	bottom := math.NaN()
	for _, value := range column {
		if finite(value) && !(value >= bottom) {
			bottom = value
		}
	}
	return bottom
}

// over describes which steps, or what time, a figure covers.
func (f *figures) over() string {
	if f.steps > 1 {
		return fmt.Sprintf("over steps %d to %d (%s)", f.first, f.last, units.Duration(f.spanS))
	}
	return "over " + units.Duration(f.log.DurationS)
}
