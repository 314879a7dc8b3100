package report

import (
	"math"
	"sort"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const widthColumns = 480 // of a chart: a pixel or two each

// axis is the horizontal one of a run's charts: its time, or optimizer steps.
type axis struct {
	unit               string
	low, high, divisor float64
	steps              line // numbers of training steps, of those that were made again the highest before; nothing by time
}

func newAxis(t *timeline, by string) (*axis, error) {
	a := &axis{unit: "s", divisor: 1, high: t.duration}
	switch by {
	case "time":
		for _, each := range []axis{{unit: "min", divisor: 60}, {unit: "h", divisor: 3600}, {unit: "d", divisor: 86400}} {
			if a.high >= 2*each.divisor {
				a.unit, a.divisor = each.unit, each.divisor
			}
		}
	case "steps":
		a.unit, a.steps = "optimizer step", t.steps(runlog.KindTrain, number)
		numbers := a.steps.values
		if len(numbers) == 0 {
			return nil, fault.New(fault.InvalidArgument, `pass by="time"`, "the run told of no training steps")
		}
		for i := 1; i < len(numbers); i++ {
			numbers[i] = max(numbers[i], numbers[i-1])
		}
		a.low, a.high = numbers[0], numbers[len(numbers)-1]
	default:
		return nil, fault.New(fault.InvalidArgument, `pass "time" or "steps"`, "drawing a run: there is no axis %q", fault.Shorten(by))
	}
	a.high = max(a.high, a.low+1e-9)
	return a, nil
}

// value is a time of the run in the axis' own measure: seconds or step numbers.
func (a *axis) value(at float64) float64 {
	times, numbers := a.steps.times, a.steps.values
	if len(times) == 0 {
		return at
	}
	i := sort.Search(len(times), func(i int) bool { return times[i] > at })
	if i == 0 || i == len(times) {
		return numbers[min(i, len(times)-1)]
	}
	return numbers[i-1] + (at-times[i-1])/max(times[i]-times[i-1], 1e-9)*(numbers[i]-numbers[i-1])
}

// place is a time of the run in the unit of the axis.
func (a *axis) place(at float64) float64 { return a.value(at) / a.divisor }

func (a *axis) column(at float64) int {
	share := (a.value(at) - a.low) / (a.high - a.low)
	return int(min(max(math.Floor(widthColumns*share), 0), widthColumns-1))
}

// thinned are pieces without gaps: for each column with points one value of those that are known, their mean or the highest.
// Time without points breaks a line that is not whole.
func (a *axis) thinned(l line, mean, whole bool, scale float64) [][][2]float64 {
	_, limit := paces(l.times)
	if whole {
		limit = math.Inf(1)
	}
	pieces, broken := [][][2]float64{}, true
	for i, next := 0, 0; i < len(l.times); i = next {
		column := a.column(l.times[i])
		for next = i + 1; next < len(l.times) && a.column(l.times[next]) == column && l.times[next]-l.times[next-1] <= limit; {
			next++
		}
		broken = broken || l.times[i]-l.times[i-1] > limit
		held := line{make([]float64, next-i), l.values[i:next]} // at one moment, so that all count the same
		value := held.top()
		if mean {
			value = held.mean()
		}
		if value == nil {
			broken = true
			continue
		}
		if broken {
			pieces, broken = append(pieces, nil), false
		}
		x := a.low + float64(column)/widthColumns*(a.high-a.low)
		pieces[len(pieces)-1] = append(pieces[len(pieces)-1], [2]float64{x / a.divisor, *value / scale})
	}
	return pieces
}
