package view

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// RunCharts are the charts of a run on one axis: seconds, minutes, hours or days of it, or
// optimizer steps.
type RunCharts struct {
	By     string     `json:"by"` // "time" or "steps"
	Low    float64    `json:"low"`
	High   float64    `json:"high"`
	Unit   string     `json:"unit"`
	Panels []RunPanel `json:"panels"`
	Spans  []Span     `json:"spans"`
}

// GroupTraining is the group of the charts of what the Trainer logged.
const GroupTraining = "training"

// RunPanel is one chart. Where is the label of its GPU, "" for the host; groups "fold" and "more
// GPUs" lie behind folds.
type RunPanel struct {
	Title  string   `json:"title"`
	Where  string   `json:"where"`
	Group  string   `json:"group"`
	Unit   string   `json:"unit"`
	Top    float64  `json:"top"`
	Series []Series `json:"series"`
	Limit  *Limit   `json:"limit"`
}

// gravest are the kinds of events that stay where there are too many; others come last.
var gravest = []string{"out_of_memory", "xid", "ecc", "gpu_lost", "clean_up", "guard", "throttled",
	"gpu_back", "nonsense", "clock"}

const mostEvents = 80 // in a chart

// overTime are the charts: of the fullest GPUs, the rest of them folded, then of the host.
func (r runRecord) overTime() section {
	s := section{Title: "Over time", Body: []Block{r.legend()}}
	if r.Charts.By == "steps" {
		s.Title = "Over optimizer steps"
	}
	var training, host beside
	var more []Block
	folds, gpus := map[string]beside{}, map[string]bool{}
	for _, p := range r.Charts.Panels {
		c := r.chart(p)
		c.Aside = p.Group == "fold" || p.Group == "more GPUs"
		switch {
		case c.Empty():
		case p.Group == "more GPUs":
			more, gpus[p.Where] = append(more, c), true
		case p.Group == "fold":
			folds[p.Where] = append(folds[p.Where], []Block{c})
		case p.Group == GroupTraining:
			training = append(training, []Block{c})
		case p.Where != "":
			s.Body = append(s.Body, c)
		default:
			host = append(host, []Block{c})
		}
	}
	s.Body = append(s.Body, training)
	for _, where := range sortedKeys(folds) {
		s.Body = append(s.Body, fold{Summary: "power and temperature of " + where,
			Body: []Block{folds[where]}})
	}
	s.Body = append(s.Body, fold{Summary: count(len(gpus), "more GPU") + ", with more headroom",
		Body: more}, host)
	return s
}

func (r runRecord) chart(p RunPanel) curves {
	title := p.Title
	if p.Where != "" {
		title = p.Where + ": " + p.Title
	}
	c := curves{Kind: "curves", Title: title, Unit: p.Unit, XUnit: r.Charts.Unit, Top: p.Top,
		Series: p.Series, Limit: p.Limit, Spans: r.Charts.Spans,
		X: axis{Low: r.Charts.Low, High: r.Charts.High, Ticks: r.Charts.ticks()}}
	c.Events = append(r.moments(p.Where), r.alertsOf(p.Where)...)
	return c
}

// moments are the gravest events of a GPU and of none.
func (r runRecord) moments(where string) []event {
	chosen := slices.DeleteFunc(slices.Clone(r.Events), func(m Moment) bool {
		return m.Where != "" && m.Where != where
	})
	slices.SortStableFunc(chosen, func(a, b Moment) int { return grave(a) - grave(b) })
	var events []event
	for _, m := range first(mostEvents, chosen) {
		e := event{At: m.X, Text: intoRun(m.AtS) + " " + m.Where + " " + m.Text}
		if m.Kind == "out_of_memory" {
			e.Level = "out of memory"
		}
		events = append(events, e)
	}
	return events
}

func grave(m Moment) int {
	if i := slices.Index(gravest, m.Kind); i >= 0 {
		return i
	}
	return len(gravest)
}

func (r runRecord) alertsOf(where string) []event {
	var events []event
	for i, a := range r.Alerts {
		if a.Where == where {
			events = append(events, event{At: a.X, Until: a.UntilX, Level: levelOf(a.Severity),
				Label: strconv.Itoa(i + 1), Text: a.Text})
		}
	}
	return events
}

// ticks are round values, the first with the unit.
func (c RunCharts) ticks() []tick {
	step := c.tickStep()
	var ticks []tick
	for n := max(0, math.Ceil(c.Low/step-1e-9)); n*step <= c.High*(1+1e-9) && len(ticks) < 50; n++ {
		text := short(n * step)
		if len(ticks) == 0 {
			if c.By == "steps" {
				text = "step " + text
			} else {
				text += " " + c.Unit
			}
		}
		ticks = append(ticks, tick{At: n * step, Text: text})
	}
	return ticks
}

func (c RunCharts) tickStep() float64 {
	extent := max(c.High-c.Low, 1e-9)
	if (c.Unit == "s" || c.Unit == "min") && extent > 6 {
		for _, nice := range []float64{1, 2, 5, 10, 15, 20, 30} {
			if extent/nice <= 8 {
				return nice
			}
		}
	}
	step := roundStep(extent)
	if c.By == "steps" {
		step = max(step, 1)
	}
	return step
}

// legend is what is marked in all charts, of what there is.
func (r runRecord) legend() legend {
	var keys legend
	for _, kind := range []string{"evaluation", "checkpoint", "gap"} {
		if slices.ContainsFunc(r.Charts.Spans, func(s Span) bool { return s.Kind == kind }) {
			keys = append(keys, key{Name: kind, Line: kind})
		}
	}
	if len(r.Alerts) > 0 {
		keys = append(keys, key{Name: "alert, by its number above, and how long it held",
			Line: "number", Label: "1"})
	}
	if slices.ContainsFunc(r.Events, func(m Moment) bool { return m.Kind == "out_of_memory" }) {
		keys = append(keys, key{Name: "out of memory", Line: "oom"})
	}
	return keys
}

type legend []key

func (legend) templateName() string { return "keys" }
func (legend) lines(int) []string   { return nil }

// alertNotices are the alerts with the numbers that charts give them, and what became of each.
func (r runRecord) alertNotices() []Block {
	var notices []Block
	for i, a := range r.Alerts {
		where := a.Where
		if where != "" {
			where += ": "
		}
		notices = append(notices, notice{Level: levelOf(a.Severity),
			What:  fmt.Sprintf("%d. %s  %s%s", i+1, intoRun(a.AtS), where, a.Text),
			Lines: advice(a.outcome(), a.Advice)})
	}
	return notices
}

func (a Alert) outcome() string {
	after := units.Duration(profile.Or(a.AfterS, 0))
	switch a.Outcome {
	case "held":
		return "still held at the end of the run"
	case "came true":
		if a.Seconds != nil {
			return fmt.Sprintf("came true %s later (warned of %s)", after,
				units.Duration(*a.Seconds))
		}
		return fmt.Sprintf("came true %s later", after)
	case "averted":
		return fmt.Sprintf("averted after %s, by a clean-up", after)
	}
	return "passed after " + after
}
