package report

import (
	"math"
	"slices"
	"sort"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

const (
	blue, orange, green, purple, grey = "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#8c8c8c"

	gib = 1 << 30
)

// curve is a line of a chart, thinned to the mean or the highest of what is in a column. Area is
// filled.
type curve struct {
	name string
	line
	colour     string
	mean, area bool
}

// charts are those of the shown GPUs, of others and of the host; groups "fold" and "more GPUs" are
// behind folds.
type charts struct {
	*axis
	panels []view.RunPanel
}

func (t *timeline) charts(a *axis, axisKind string, bands []view.Band, history []Logged, gpus,
	others []*gpu) *view.RunCharts {
	c := charts{a, []view.RunPanel{}}
	for _, g := range gpus {
		c.addGPU(t, g, "")
		limit, power, heat := &view.Limit{At: g.PowerLimitW, Name: "power limit"},
			g.row(g.activity.PowerW), g.row(g.activity.Temperature)
		c.add(view.RunPanel{Title: "Power", Where: g.label, Group: "fold", Unit: "W", Limit: limit},
			1, curve{"power", power, purple, true, true})
		c.add(view.RunPanel{Title: "Temperature", Where: g.label, Group: "fold", Unit: "°C",
			Top: 100}, 1, curve{"temperature", heat, orange, false, false})
	}
	for _, g := range others {
		c.addGPU(t, g, "more GPUs")
	}
	c.addLogged(t, history)
	c.addSteps(t)
	c.addHosts(t.hosts)
	spans := []view.Span{}
	for _, b := range bands {
		spans = append(spans, view.Span{From: a.place(b.BeginS), To: a.place(b.EndS),
			Kind: b.Kind, Text: b.Words()})
	}
	return &view.RunCharts{By: axisKind, Low: a.low / a.divisor, High: a.high / a.divisor,
		Unit: a.unit, Panels: c.panels, Spans: spans}
}

// add adds a chart, in whose unit values are once divided by scale, as its limit. Its top is what
// all of it would be, where that is known without a limit. Where nothing is known there is none.
func (c *charts) add(p view.RunPanel, scale float64, curves ...curve) {
	highest, complete := math.Inf(-1), p.Group == view.GroupTraining
	for _, curve := range curves {
		if top := curve.top(); top != nil {
			highest = max(highest, *top/scale)
			p.Series = append(p.Series, view.Series{Name: curve.name, Colour: curve.colour,
				Area: curve.area, Pieces: c.thinned(curve.line, curve.mean, complete, scale)})
		}
	}
	if p.Limit != nil && p.Limit.At == 0 { // not known
		p.Limit = nil
	}
	if p.Limit != nil {
		p.Limit.At /= scale
		highest = max(highest, p.Limit.At)
	}
	if p.Top == 0 {
		p.Top = highest
	}
	if p.Top *= 1.06; p.Top == 0 {
		p.Top = 1
	}
	if p.Series != nil {
		c.panels = append(c.panels, p)
	}
}

// rising are the curves that did not stay at zero.
func rising(curves ...curve) (rises []curve) {
	for _, c := range curves {
		_, low := c.best(-1)
		if top := c.top(); top != nil && (*top != 0 || *low != 0) {
			rises = append(rises, c)
		}
	}
	return rises
}

func (c *charts) addGPU(t *timeline, g *gpu, group string) {
	c.add(view.RunPanel{Title: "Memory", Where: g.label, Group: group, Unit: "GiB",
		Limit: &view.Limit{At: float64(g.TotalBytes), Name: "total"}}, gib,
		curve{"in use (driver)", g.used, blue, false, true},
		curve{"reserved by PyTorch", g.reserved, orange, false, false},
		curve{"allocated by PyTorch", g.allocated, green, false, false})
	ofStep := func(column column) line {
		return t.steps(runlog.KindTrain, func(s *runlog.StepSeries, i int) float64 {
			return profile.Or(ratio(column(s)[i], s.SpentS[i]), math.NaN())
		})
	}
	c.add(view.RunPanel{Title: "Utilisation", Where: g.label, Group: group, Unit: "%", Top: 100},
		0.01,
		curve{"GPU busy", g.row(g.activity.Utilization), blue, true, true},
		curve{"tensor cores", g.row(g.activity.TensorActive), purple, true, false},
		curve{"steps waiting for the loader", ofStep(waitedS), orange, true, false},
		curve{"useful work (MFU)", ofStep(arithmeticS), green, true, false})
}

func (c *charts) addSteps(t *timeline) {
	seriesOf := func(column column) line {
		return t.steps(runlog.KindTrain, func(s *runlog.StepSeries, i int) float64 {
			return column(s)[i] / float64(max(1, s.Covers[i]))
		})
	}
	c.add(view.RunPanel{Title: "Seconds a step", Unit: "s"}, 1,
		curve{"a step", seriesOf(spentS), blue, true, true},
		curve{"of that, the loader", seriesOf(waitedS), orange, true, false})
}

func (c *charts) addHosts(hosts []*host) {
	name := func(h *host, title string) string {
		if h.name != "" && len(hosts) > 1 {
			return h.name + ": " + title
		}
		return title
	}
	for _, h := range hosts {
		limit := &view.Limit{At: float64(h.TotalBytes), Name: "total"}
		if h.Contained {
			limit.Name = "container's limit"
		}
		c.add(view.RunPanel{Title: name(h, "Host RAM"), Unit: "GiB", Limit: limit}, gib, rising(
			curve{"in use", h.used, blue, false, true},
			curve{"this training", h.row(h.activity.TreeRSS), orange, false, false},
			curve{"its loader workers", h.row(h.activity.WorkersRSS), green, false, false},
			curve{"/dev/shm", h.row(h.activity.ShmUsed), purple, false, false},
			curve{"swap", h.row(h.activity.SwapUsed), grey, false, false})...)
		c.add(view.RunPanel{Title: name(h, "Processors"), Unit: "%", Top: 100}, 0.01,
			curve{"all cores", h.row(h.activity.CPUShare), blue, true, true},
			curve{"this training", h.row(h.activity.TreeCPU), orange, true, false},
			curve{"the busiest core", h.row(h.activity.BusiestCore), green, true, false})
		c.add(view.RunPanel{Title: name(h, "Disk and network"), Unit: "MB/s"}, 1e6, rising(
			curve{"disk read", h.row(h.activity.DiskRead), blue, true, true},
			curve{"disk written", h.row(h.activity.DiskWritten), orange, true, false},
			curve{"network received", h.row(h.activity.Received), green, true, false},
			curve{"network sent", h.row(h.activity.Sent), purple, true, false})...)
	}
}

const widthColumns = 480 // of a chart: a pixel or two each

// axis is the horizontal one of a run's charts: its time, or optimizer steps.
type axis struct {
	unit               string
	low, high, divisor float64
	// numbers of training steps, of those that were made again the highest before; nothing by time
	steps line
}

func newAxis(t *timeline, kind string) (*axis, error) {
	a := &axis{unit: "s", divisor: 1, high: t.duration}
	switch kind {
	case "time":
		for _, unit := range []axis{{unit: "min", divisor: 60}, {unit: "h", divisor: 3600},
			{unit: "d", divisor: 86400}} {
			if a.high >= 2*unit.divisor {
				a.unit, a.divisor = unit.unit, unit.divisor
			}
		}
	case "steps":
		a.unit, a.steps = "optimizer step", t.steps(runlog.KindTrain, number)
		numbers := a.steps.values
		if len(numbers) == 0 {
			return nil, fault.New(fault.InvalidArgument, `pass by="time"`,
				"the run reported no training steps")
		}
		for i := 1; i < len(numbers); i++ {
			numbers[i] = max(numbers[i], numbers[i-1])
		}
		a.low, a.high = numbers[0], numbers[len(numbers)-1]
	default:
		return nil, fault.New(fault.InvalidArgument, `pass "time" or "steps"`,
			"drawing a run: there is no axis %q", fault.Shorten(kind))
	}
	a.high = max(a.high, a.low+1e-9)
	return a, nil
}

// value is a time of the run in the axis' own measure: seconds or step numbers.
func (a *axis) value(atS float64) float64 {
	times, numbers := a.steps.times, a.steps.values
	if len(times) == 0 {
		return atS
	}
	i := sort.Search(len(times), func(i int) bool { return times[i] > atS })
	if i == 0 || i == len(times) {
		return numbers[min(i, len(times)-1)]
	}
	return numbers[i-1] + (atS-times[i-1])/max(times[i]-times[i-1], 1e-9)*(numbers[i]-numbers[i-1])
}

// place is a time of the run in the unit of the axis.
func (a *axis) place(atS float64) float64 { return a.value(atS) / a.divisor }

func (a *axis) column(atS float64) int {
	share := (a.value(atS) - a.low) / (a.high - a.low)
	return int(min(max(math.Floor(widthColumns*share), 0), widthColumns-1))
}

// thinned are pieces without gaps: for each column with points one value of those that are known,
// their mean or the highest. Time without points breaks a line that is not whole.
func (a *axis) thinned(l line, mean, complete bool, scale float64) [][][2]float64 {
	_, limit := paces(l.times)
	if complete {
		limit = math.Inf(1)
	}
	pieces, broken := [][][2]float64{}, true
	for i, next := 0, 0; i < len(l.times); i = next {
		column := a.column(l.times[i])
		for next = i + 1; next < len(l.times) && a.column(l.times[next]) == column &&
			l.times[next]-l.times[next-1] <= limit; {
			next++
		}
		broken = broken || l.times[i]-l.times[i-1] > limit
		// at one moment, so that all count the same
		group := line{make([]float64, next-i), l.values[i:next]}
		value := group.top()
		if mean {
			value = group.mean()
		}
		if value == nil {
			broken = true
			continue
		}
		if broken {
			pieces, broken = append(pieces, nil), false
		}
		x := a.low + float64(column)/widthColumns*(a.high-a.low)
		pieces[len(pieces)-1] = append(pieces[len(pieces)-1],
			[2]float64{x / a.divisor, *value / scale})
	}
	return pieces
}

// line is values over time, NaN where something is not known.
type line struct {
	times  []float64
	values runlog.Column
}

func (l *line) add(times []float64, values runlog.Column) {
	l.times, l.values = append(l.times, times...), append(l.values, values...)
}

func (l *line) addPoint(atS, value float64) { l.add([]float64{atS}, runlog.Column{value}) }

// paces are how many seconds each point stands for: until the next one, but not across a gap, which
// is longer than limit.
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

// mean is over time, that of a single moment over the values; points across a gap count no more
// than others.
func (l line) mean() *float64 {
	s := l.totals()
	if s.seconds == 0 {
		return ratio(s.sum, s.n)
	}
	return ratio(s.integral, s.seconds)
}

// best is when and how much the highest value was, with sign -1 the lowest; the first of equals.
func (l line) best(sign float64) (atS, value *float64) {
	for i, v := range l.values {
		if !math.IsNaN(v) && (value == nil || sign*v > sign**value) {
			atS, value = &l.times[i], &l.values[i]
		}
	}
	return atS, value
}

func (l line) top() *float64 { _, value := l.best(1); return value }

// when is a figure, nil when it is not known.
func when(ok bool, figure float64) *float64 {
	if !ok {
		return nil
	}
	return &figure
}

// ratio is nil of nothing.
func ratio(part, total float64) *float64 {
	share := part / total
	return when(total != 0 && !math.IsNaN(share) && !math.IsInf(share, 0), share)
}
