package report

import (
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// line is values over time, NaN where something is not known.
type line struct {
	times  []float64
	values runlog.Column
}

// add appends a line that follows.
func (l *line) add(times []float64, values runlog.Column) {
	l.times, l.values = append(l.times, times...), append(l.values, values...)
}

// paces are how many seconds each point stands for: until the next one, but not across a gap, which is longer than limit.
func paces(times []float64) (spans []float64, limit float64) {
	if len(times) < 2 {
		return make([]float64, len(times)), math.Inf(1)
	}
	for i, later := range times[1:] {
		spans = append(spans, later-times[i])
	}
	sorted := slices.Sorted(slices.Values(spans))
	typical := (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
	limit = 3*typical + 1
	for i, span := range spans {
		if span > limit {
			spans[i] = typical
		}
	}
	return append(spans, typical), limit
}

// totals are of the values that are known; integral and seconds are over the time that was sampled.
type totals struct{ n, sum, integral, seconds float64 }

func (l line) totals() (s totals) {
	spans, _ := paces(l.times)
	for i, value := range l.values {
		if !math.IsNaN(value) {
			s = totals{s.n + 1, s.sum + value, s.integral + value*spans[i], s.seconds + spans[i]}
		}
	}
	return s
}

func (l line) sum() *float64 { s := l.totals(); return when(s.n > 0, s.sum) }

// mean is over time, that of a single moment over the values; points across a gap count no more than others.
func (l line) mean() *float64 {
	s := l.totals()
	if s.seconds == 0 {
		return ratio(s.sum, s.n)
	}
	return ratio(s.integral, s.seconds)
}

// best is when and how much the highest value was, with sign -1 the lowest; the first of equals.
func (l line) best(sign float64) (at, value *float64) {
	for i, v := range l.values {
		if !math.IsNaN(v) && (value == nil || sign*v > sign**value) {
			at, value = &l.times[i], &l.values[i]
		}
	}
	return at, value
}

func (l line) top() *float64 { _, value := l.best(1); return value }

// when is a figure, nil when it is not known.
func when(known bool, figure float64) *float64 {
	if !known {
		return nil
	}
	return &figure
}

// ratio is nil of nothing.
func ratio(part, whole float64) *float64 {
	share := part / whole
	return when(whole != 0 && !math.IsNaN(share) && !math.IsInf(share, 0), share)
}
