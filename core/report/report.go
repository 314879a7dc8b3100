// Package report makes reports of runs from the logs of their monitors: figures, alerts, findings
// and charts, comparisons, and the series for other programs. It does no I/O.
package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

// Request asks for the report of a run.
type Request struct {
	Sources  []Source      `json:"sources"`
	Settings diagnosis.Run `json:"settings"`
	Guard    []GuardEvent  `json:"guard"`
	History  []Logged      `json:"history"` // log_history of trainer_state.json
	// the axis of the charts, "time" or "steps"; "" for no charts
	By string `json:"by"`
	// numbers of the GPUs whose charts are shown; null: all, folded but for the four with the least
	// headroom
	GPUs []int `json:"gpus"`
}

// Report is the report of a run.
type Report struct {
	Figures  view.RunFigures     `json:"figures"`
	Findings []diagnosis.Finding `json:"findings"`
	Charts   *view.RunCharts     `json:"charts"`
}

const shownGPUs = 4 // GPUs whose charts are shown without unfolding

// Make returns the figures of a run from its monitors' logs, what held it back, and its charts.
// Errors: Corrupt, InvalidArgument.
func Make(r Request) (report Report, err error) {
	if len(r.Sources) == 0 {
		return report, fault.New(fault.InvalidArgument, "pass the run logs of its monitors",
			"reporting a run: it has no run logs")
	}
	start, err := align(r.Sources)
	if err != nil {
		return report, err
	}
	t := newTimeline(r.Sources)
	report = Report{Figures: t.figures(float64(start)/1e9, r.Guard),
		Findings: t.findings(r.Settings)}
	if r.By == "" {
		return report, nil
	}
	a, err := newAxis(t, r.By)
	if err != nil {
		return report, err
	}
	shown, folded, err := t.divide(r.GPUs)
	if err == nil {
		a.mark(&report.Figures)
		report.Charts = t.charts(a, r.By, report.Figures.Bands, r.History, shown, folded)
	}
	return report, err
}

// figures returns the figures of the run; start is in Unix seconds.
func (t *timeline) figures(start float64, guard []GuardEvent) view.RunFigures {
	f := view.RunFigures{Start: start, Duration: t.duration,
		Interval: t.sources[0].RunLog.IntervalS, Steps: t.stepFigures(), GPUs: []view.GPUFigures{},
		Alerts: t.alerts(), Events: t.events(guard), Bands: t.bands(),
		Unfinished: t.leads[len(t.leads)-1].unfinished()}
	for _, s := range t.sources {
		f.Samples += int(s.RunLog.Samples)
		f.Errors += int(s.RunLog.Errors)
		f.Monitors = append(f.Monitors, cmp.Or(s.Name, "the first"))
	}
	for _, b := range f.Bands {
		if b.Kind == "gap" {
			f.Gaps, f.GapS = f.Gaps+1, f.GapS+b.EndS-b.BeginS
		}
	}
	energyWh, measured := 0.0, false
	for _, g := range t.gpus {
		figures := g.figures()
		f.GPUs = append(f.GPUs, figures)
		if figures.EnergyWh != nil {
			energyWh, measured = energyWh+*figures.EnergyWh, true
		}
	}
	f.EnergyWh = when(measured, energyWh)
	for _, h := range t.hosts {
		figures := h.figures()
		if len(t.hosts) > 1 {
			figures.Label = h.name
		}
		f.Hosts = append(f.Hosts, figures)
	}
	return f
}

// unfinished reports whether the run log has the beginning of a training and not its end.
func (s *Source) unfinished() bool {
	told := func(word string) bool {
		return slices.ContainsFunc(s.RunLog.Events, func(e runlog.Event) bool {
			return e.Kind == runlog.EventTraining && strings.Contains(e.Text, word)
		})
	}
	return told("begins") && !told("ends")
}

// findings returns the findings of all leading run logs; of those with the same text, one.
func (t *timeline) findings(settings diagnosis.Run) []diagnosis.Finding {
	var findings []diagnosis.Finding
	reported := map[string]bool{}
	for _, s := range t.leads {
		for _, f := range diagnosis.Of(&s.RunLog, settings) {
			if text := f.Title + f.Evidence; !reported[text] {
				reported[text], findings = true, append(findings, f)
			}
		}
	}
	diagnosis.Sort(findings)
	return conclusive(findings)
}

// inconclusive ranks the kinds of findings that name no cause. Where one part of a run has a cause,
// a report does not say that another part was healthy or too short.
var inconclusive = map[string]int{"healthy": 1, "too_short": 2}

// conclusive returns the findings of the lowest rank: causes, if there are any.
func conclusive(findings []diagnosis.Finding) []diagnosis.Finding {
	lowest := len(inconclusive)
	for _, f := range findings {
		lowest = min(lowest, inconclusive[f.Kind])
	}
	return slices.DeleteFunc(findings, func(f diagnosis.Finding) bool {
		return inconclusive[f.Kind] > lowest
	})
}

// divide returns the GPUs whose charts are shown, and those whose charts are behind a fold.
func (t *timeline) divide(numbers []int) (shown, folded []*gpu, err error) {
	if numbers != nil {
		for _, i := range numbers {
			if i < 0 || i >= len(t.gpus) {
				return nil, nil, fault.New(fault.InvalidArgument, "count from 0",
					"gpus: %d is not one of %d GPUs", i, len(t.gpus))
			}
			shown = append(shown, t.gpus[i])
		}
		return shown, nil, nil
	}
	unknown := math.Inf(1) // GPUs whose headroom is unknown come last
	byHeadroom := slices.Clone(t.gpus)
	slices.SortStableFunc(byHeadroom, func(a, b *gpu) int {
		return cmp.Compare(*cmp.Or(a.least(), &unknown), *cmp.Or(b.least(), &unknown))
	})
	for _, g := range t.gpus {
		if slices.Index(byHeadroom, g) < shownGPUs {
			shown = append(shown, g)
		} else {
			folded = append(folded, g)
		}
	}
	return shown, folded, nil
}

// mark sets the places of alerts and events on the charts' axis.
func (a *axis) mark(f *view.RunFigures) {
	for i := range f.Alerts {
		alert := &f.Alerts[i]
		alert.X = a.place(alert.AtS)
		if alert.ClearedS != nil {
			alert.UntilX = when(true, a.place(alert.AtS+*alert.AfterS))
		}
	}
	for i := range f.Events {
		f.Events[i].X = a.place(f.Events[i].AtS)
	}
}

// Source is the run log of one monitor.
type Source struct {
	// what distinguishes the name of its file from the first monitor's; "" for the first
	Name   string     `json:"name"`
	RunLog runlog.Log `json:"run_log"`

	offset float64 // seconds from the run's start to that of the run log
}

// align checks the run logs and sets their offsets from the earliest of them, whose start it
// returns in nanoseconds of Unix time. Errors: Corrupt.
func align(sources []Source) (start int64, err error) {
	for i := range sources {
		log := &sources[i].RunLog
		if err := log.Check(); err != nil {
			return 0, err
		}
		if i == 0 || log.StartUnixNanos < start {
			start = log.StartUnixNanos
		}
	}
	for i := range sources {
		sources[i].offset = float64(sources[i].RunLog.StartUnixNanos-start) / 1e9
	}
	return start, nil
}
