package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/view"
)

// comparedLogs are losses and error rates at the last step at which both runs logged them, and at the end of each.
func comparedLogs(a, b []Logged) (found []view.ComparedFigure) {
	for _, m := range metrics {
		for _, key := range m.names(slices.Concat(a, b)) {
			x, y, name := bySteps(a, key).known(), bySteps(b, key).known(), m.source(key)+" "+m.short
			same := -1
			for i, step := range x.times {
				if slices.Contains(y.times, step) {
					same = i
				}
			}
			if same >= 0 {
				k := slices.Index(y.times, x.times[same])
				found = append(found, compared(key, fmt.Sprintf("%s at step %.0f", name, x.times[same]), "", &x.values[same], &y.values[k]))
			}
			if same < 0 || same < len(x.times)-1 || y.times[len(y.times)-1] != x.times[same] {
				found = append(found, compared(key+"_last", name+" at the end", "", x.latest(), y.latest()))
			}
		}
	}
	return found
}

// known is a line without what is not.
func (l line) known() (found line) {
	for i, value := range l.values {
		if !math.IsNaN(value) {
			found.add(l.times[i:i+1], l.values[i:i+1])
		}
	}
	return found
}

// latest is the last value, nil of none.
func (l line) latest() *float64 {
	if len(l.values) == 0 {
		return nil
	}
	return &l.values[len(l.values)-1]
}

// comparedCharts are what both runs logged, over steps; nil where no steps are known.
func comparedCharts(a, b *side) *view.RunCharts {
	first, last := math.Inf(1), math.Inf(-1)
	for _, s := range []*side{a, b} {
		if s.all.Steps.First != nil {
			first, last = min(first, float64(*s.all.Steps.First)), max(last, float64(*s.all.Steps.Last))
		}
	}
	if first >= last {
		return nil
	}
	c := charts{&axis{unit: "optimizer step", low: first, high: last, divisor: 1}, nil}
	for _, m := range metrics {
		var curves []curve
		for _, each := range []struct {
			*side
			colours []string
		}{{a, []string{blue, green}}, {b, []string{orange, purple}}} {
			for _, found := range m.curves(each.History, func(l line) line { return l }, each.colours...) {
				found.name = each.Name + ": " + found.name
				curves = append(curves, found)
			}
		}
		c.add(view.RunPanel{Title: m.title, Group: view.GroupTraining}, 1, curves...)
	}
	return &view.RunCharts{By: "steps", Low: first, High: last, Unit: c.unit, Panels: c.panels, Spans: []view.RunSpan{}}
}
