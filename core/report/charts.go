package report

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

const (
	blue, orange, green, purple, grey = "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#8c8c8c"

	gib = 1 << 30
)

// curve is a line of a chart, thinned to the mean or the highest of what is in a column. Area is filled.
type curve struct {
	name string
	line
	colour     string
	mean, area bool
}

// charts are those of the shown GPUs, of others and of the host; groups "fold" and "more GPUs" are behind folds.
type charts struct {
	*axis
	panels []view.RunPanel
}

func (t *timeline) charts(a *axis, by string, bands []view.Band, history []Logged, shown, others []*gpu) *view.RunCharts {
	c := charts{a, []view.RunPanel{}}
	for _, g := range shown {
		c.addGPU(t, g, "")
		limit, power, heat := &view.Limit{At: g.PowerLimitW, Name: "power limit"}, g.row(g.activity.PowerW), g.row(g.activity.Temperature)
		c.add(view.RunPanel{Title: "Power", Where: g.label, Group: "fold", Unit: "W", Limit: limit}, 1, curve{"power", power, purple, true, true})
		c.add(view.RunPanel{Title: "Temperature", Where: g.label, Group: "fold", Unit: "°C", Top: 100}, 1, curve{"temperature", heat, orange, false, false})
	}
	for _, g := range others {
		c.addGPU(t, g, "more GPUs")
	}
	c.addLogged(t, history)
	c.addSteps(t)
	c.addHosts(t.hosts)
	found := &view.RunCharts{By: by, Low: a.low / a.divisor, High: a.high / a.divisor, Unit: a.unit, Panels: c.panels, Spans: []view.RunSpan{}}
	for _, b := range bands {
		span := view.Span{From: a.place(b.BeginS), To: a.place(b.EndS), Kind: b.Kind}
		found.Spans = append(found.Spans, view.RunSpan{Span: span, BeginS: b.BeginS, EndS: b.EndS})
	}
	return found
}

// add adds a chart, in whose unit values are once divided by scale, as its limit. Its top is what all of it would be, where that is
// known without a limit. Where nothing is known there is none.
func (c *charts) add(p view.RunPanel, scale float64, curves ...curve) {
	highest, whole := math.Inf(-1), p.Group == view.GroupTraining
	for _, each := range curves {
		if top := each.top(); top != nil {
			highest = max(highest, *top/scale)
			p.Series = append(p.Series, view.Series{Name: each.name, Colour: each.colour, Area: each.area, Pieces: c.thinned(each.line, each.mean, whole, scale)})
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
func rising(curves ...curve) (found []curve) {
	for _, c := range curves {
		_, low := c.best(-1)
		if top := c.top(); top != nil && (*top != 0 || *low != 0) {
			found = append(found, c)
		}
	}
	return found
}

func (c *charts) addGPU(t *timeline, g *gpu, group string) {
	c.add(view.RunPanel{Title: "Memory", Where: g.label, Group: group, Unit: "GiB", Limit: &view.Limit{At: float64(g.TotalBytes), Name: "total"}}, gib,
		curve{"in use (driver)", g.used, blue, false, true},
		curve{"reserved by PyTorch", g.reserved, orange, false, false},
		curve{"allocated by PyTorch", g.allocated, green, false, false})
	ofStep := func(column func(*runlog.StepSeries) runlog.Column) line {
		return t.steps(runlog.KindTrain, func(s *runlog.StepSeries, i int) float64 {
			if share := ratio(column(s)[i], s.SpentS[i]); share != nil {
				return *share
			}
			return math.NaN()
		})
	}
	c.add(view.RunPanel{Title: "Utilisation", Where: g.label, Group: group, Unit: "%", Top: 100}, 0.01,
		curve{"GPU busy", g.row(g.activity.Utilization), blue, true, true},
		curve{"tensor cores", g.row(g.activity.TensorActive), purple, true, false},
		curve{"steps waiting for the loader", ofStep(func(s *runlog.StepSeries) runlog.Column { return s.WaitedS }), orange, true, false},
		curve{"useful work (MFU)", ofStep(func(s *runlog.StepSeries) runlog.Column { return s.ArithmeticS }), green, true, false})
}

// addSteps adds seconds of an optimizer step, with its wait for the loader.
func (c *charts) addSteps(t *timeline) {
	each := func(column func(*runlog.StepSeries) runlog.Column) line {
		return t.steps(runlog.KindTrain, func(s *runlog.StepSeries, i int) float64 { return column(s)[i] / float64(max(1, s.Covers[i])) })
	}
	c.add(view.RunPanel{Title: "Seconds a step", Unit: "s"}, 1,
		curve{"a step", each(func(s *runlog.StepSeries) runlog.Column { return s.SpentS }), blue, true, true},
		curve{"of that, the loader", each(func(s *runlog.StepSeries) runlog.Column { return s.WaitedS }), orange, true, false})
}

// addHosts adds the RAM of all machines, then their processors, then their traffic.
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
	}
	for _, h := range hosts {
		c.add(view.RunPanel{Title: name(h, "Processors"), Unit: "%", Top: 100}, 0.01,
			curve{"all cores", h.row(h.activity.CPUShare), blue, true, true},
			curve{"this training", h.row(h.activity.TreeCPU), orange, true, false},
			curve{"the busiest core", h.row(h.activity.BusiestCore), green, true, false})
	}
	for _, h := range hosts {
		c.add(view.RunPanel{Title: name(h, "Disk and network"), Unit: "MB/s"}, 1e6, rising(
			curve{"disk read", h.row(h.activity.DiskRead), blue, true, true},
			curve{"disk written", h.row(h.activity.DiskWritten), orange, true, false},
			curve{"network received", h.row(h.activity.Received), green, true, false},
			curve{"network sent", h.row(h.activity.Sent), purple, true, false})...)
	}
}
