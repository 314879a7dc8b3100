package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

// GuardEvent is something that the guard did at a step.
type GuardEvent struct {
	Step int    `json:"step"`
	Kind string `json:"kind"` // "guard", "restart" or "bad clips"
	Text string `json:"text"`
}

// events are everything that happened, in order: of all run logs, and what the guard did and the
// callback has not reported.
func (t *timeline) events(guard []GuardEvent) []view.Moment {
	moments := t.observed()
	texts := map[string]bool{}
	for _, m := range moments {
		texts[m.Text] = true
	}
	steps := t.steps(runlog.KindTrain, number)
	for _, e := range guard {
		if len(steps.times) > 0 && !texts[e.Text] {
			i := slices.IndexFunc(steps.values, func(number float64) bool {
				return number >= float64(e.Step)
			})
			if i < 0 {
				i = len(steps.times) - 1
			}
			moments = append(moments, view.Moment{AtS: steps.times[i], Kind: "guard", Text: e.Kind +
				": " + e.Text})
		}
	}
	slices.SortStableFunc(moments, byTime)
	return moments
}

func byTime(a, b view.Moment) int { return cmp.Compare(a.AtS, b.AtS) }

// observed are the events of all run logs; what several monitors of one machine saw at about the
// same time is there once.
func (t *timeline) observed() []view.Moment {
	all, unique := []view.Moment{}, []view.Moment{}
	for _, s := range t.sources {
		for _, e := range s.RunLog.Events {
			all = append(all, view.Moment{AtS: e.AtS + s.offset, Kind: e.Kind,
				Where: t.label(s, e.GPU), Text: e.Text})
		}
	}
	slices.SortStableFunc(all, byTime)
	last := map[view.Moment]float64{}
	for _, m := range all {
		moment := view.Moment{Kind: m.Kind, Where: m.Where, Text: m.Text}
		if before, again := last[moment]; len(t.sources) == 1 || !again || m.AtS-before > 2 {
			unique = append(unique, m)
		}
		last[moment] = m.AtS
	}
	return unique
}

// bands are evaluations and checkpoints by their steps, and gaps in the samples.
func (t *timeline) bands() []view.Band {
	bands := []view.Band{}
	for _, kind := range []string{runlog.KindEvaluation, runlog.KindCheckpoint} {
		bands = append(bands, lasting(t.steps(kind, at(spentS)), kind)...)
	}
	for _, s := range t.leads {
		times := s.moved(s.RunLog.Memory.TimesS)
		_, limit := paces(times)
		for i := 1; i < len(times); i++ {
			if times[i]-times[i-1] > limit {
				bands = append(bands, view.Band{BeginS: times[i-1], EndS: times[i], Kind: "gap"})
			}
		}
	}
	slices.SortStableFunc(bands, func(a, b view.Band) int {
		return cmp.Compare(a.BeginS, b.BeginS)
	})
	return bands
}

// lasting makes one band of entries that follow one another.
func lasting(l line, kind string) (bands []view.Band) {
	for i, end := range l.times {
		spent := l.values[i]
		if math.IsNaN(spent) {
			spent = 0
		}
		if n := len(bands); n > 0 && end-spent <= bands[n-1].EndS+0.5*spent+0.05 {
			bands[n-1].EndS = end
		} else {
			bands = append(bands, view.Band{BeginS: end - spent, EndS: end, Kind: kind})
		}
	}
	return bands
}

// alerts are all of them in order, with what became of each; their times are of the run.
func (t *timeline) alerts() []view.Alert {
	alerts := []view.Alert{}
	for _, s := range t.sources {
		for _, a := range s.RunLog.Alerts {
			alert := view.Alert{Alert: a, Where: t.label(s, a.GPU)}
			alert.Outcome, alert.AfterS = s.RunLog.Outcome(a)
			alert.AtS += s.offset
			for _, field := range []**float64{&alert.SinceS, &alert.ClearedS} {
				if *field != nil {
					*field = when(true, **field+s.offset)
				}
			}
			alerts = append(alerts, alert)
		}
	}
	slices.SortStableFunc(alerts, func(a, b view.Alert) int { return cmp.Compare(a.AtS, b.AtS) })
	return alerts
}

// cut leaves the figures of some steps: from the end of the step before them to where the last one
// was first made.
func (s *side) cut(first, last uint64) {
	from, to := -1.0, s.duration
	steps := s.steps(runlog.KindTrain, number)
	for i, n := range steps.values {
		if n < float64(first) {
			from = steps.times[i]
		}
	}
	if i := slices.IndexFunc(steps.values, func(n float64) bool {
		return n >= float64(last)
	}); i >= 0 {
		to = steps.times[i]
	}
	var inside []Source
	for _, source := range s.Sources {
		source.RunLog = source.RunLog.Within(func(atS float64) bool {
			return atS+source.offset > from && atS+source.offset <= to
		})
		inside = append(inside, source)
	}
	s.figures = newTimeline(inside).figures(0, nil)
	s.errors = slices.DeleteFunc(slices.Clone(s.Guard), func(e GuardEvent) bool {
		return e.Step < int(first) || e.Step > int(last)
	})
}
