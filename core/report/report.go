// Package report says what became of a run: its figures, alerts and charts, and its series for
// other programs. It is pure. Package report says what became of a run: its figures, alerts and
// charts, and its series for other programs. It is pure.
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
	// whose charts are shown; null: the four with the least headroom, the others behind a fold
	GPUs []int `json:"gpus"`
}

// Report is what became of a run.
type Report struct {
	Figures  view.RunFigures     `json:"figures"`
	Findings []diagnosis.Finding `json:"findings"`
	Charts   *view.RunCharts     `json:"charts"`
}

const openGPUs = 4 // whose charts are not behind a fold

// Make returns the figures of a run by its monitors' logs, what held it back, and its charts.
// Errors: Corrupt, InvalidArgument.
func Make(r Request) (report Report, err error) {
	start, err := placed(r.Sources)
	if err != nil {
		return report, err
	}
	if len(r.Sources) == 0 {
		return report, fault.New(fault.InvalidArgument, "pass what its monitors saw",
			"reporting a run: it has no run logs")
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
	gpus, others, err := t.chosen(r.GPUs)
	if err == nil {
		a.mark(&report.Figures)
		report.Charts = t.charts(a, r.By, report.Figures.Bands, r.History, gpus, others)
	}
	return report, err
}

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
	for _, g := range t.gpus {
		f.GPUs = append(f.GPUs, g.figures())
		if wh := f.GPUs[len(f.GPUs)-1].EnergyWh; wh != nil {
			f.EnergyWh = when(true, *cmp.Or(f.EnergyWh, new(float64))+*wh)
		}
	}
	for _, h := range t.hosts {
		f.Hosts = append(f.Hosts, h.figures())
		if len(t.hosts) > 1 {
			f.Hosts[len(f.Hosts)-1].Label = h.name
		}
	}
	return f
}

// unfinished reports whether a training began, and nothing is known of its end.
func (s *Source) unfinished() bool {
	has := func(word string) bool {
		return slices.ContainsFunc(s.RunLog.Events, func(e runlog.Event) bool {
			return e.Kind == runlog.EventTraining && strings.Contains(e.Text, word)
		})
	}
	return has("begins") && !has("ends")
}

// findings are of all leading run logs, each once. Where one part of a run has more to say, it is
// not said of another that nothing was found.
func (t *timeline) findings(settings diagnosis.Run) []diagnosis.Finding {
	var findings []diagnosis.Finding
	reported := map[[7]string]bool{}
	for _, s := range t.leads {
		for _, f := range diagnosis.Of(&s.RunLog, settings) {
			if key := [7]string{f.Kind, f.Severity, f.Title, f.Evidence, f.Change, f.Setting,
				f.Value}; !reported[key] {
				reported[key], findings = true, append(findings, f)
			}
		}
	}
	diagnosis.Sort(findings)
	return weightiest(findings)
}

func weightiest(findings []diagnosis.Finding) []diagnosis.Finding {
	for _, silent := range [][]string{{"healthy", "too_short"}, {"too_short"}} {
		spoken := slices.DeleteFunc(slices.Clone(findings), func(f diagnosis.Finding) bool {
			return slices.Contains(silent, f.Kind)
		})
		if len(spoken) > 0 {
			return spoken
		}
	}
	return findings
}

// chosen are the GPUs whose charts are shown, and those that are behind a fold.
func (t *timeline) chosen(numbers []int) (chosen, others []*gpu, err error) {
	if numbers != nil {
		for _, i := range numbers {
			if i < 0 || i >= len(t.gpus) {
				return nil, nil, fault.New(fault.InvalidArgument, "count from 0",
					"gpus: %d is not one of %d GPUs", i, len(t.gpus))
			}
			chosen = append(chosen, t.gpus[i])
		}
		return chosen, nil, nil
	}
	unknown, order := math.Inf(1), slices.Clone(t.gpus)
	slices.SortStableFunc(order, func(a, b *gpu) int {
		return cmp.Compare(*cmp.Or(a.least(), &unknown), *cmp.Or(b.least(), &unknown))
	})
	for _, g := range t.gpus {
		if slices.Index(order, g) < openGPUs {
			chosen = append(chosen, g)
		} else {
			others = append(others, g)
		}
	}
	return chosen, others, nil
}

// mark places alerts and events on the axis.
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

// Source is what one monitor of a run saw.
type Source struct {
	Name   string     `json:"name"` // "" is the first, else what its file's name adds
	RunLog runlog.Log `json:"run_log"`

	offset float64 // seconds from the run's start to that of the run log
}

// placed checks the run logs and places them on one timeline, which begins with the earliest.
// Errors: Corrupt.
func placed(sources []Source) (start int64, err error) {
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
		sources[i].offset = float64(uint64(sources[i].RunLog.StartUnixNanos)-uint64(start)) / 1e9
	}
	return start, nil
}
