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

// events are everything that happened, in order: of all run logs, and what the guard did and the callback has not reported.
func (t *timeline) events(guard []GuardEvent) []view.Moment {
	found := t.observed()
	texts := map[string]bool{}
	for _, m := range found {
		texts[m.Text] = true
	}
	steps := t.steps(runlog.KindTrain, number)
	for _, e := range guard {
		if len(steps.times) > 0 && !texts[e.Text] {
			i := slices.IndexFunc(steps.values, func(number float64) bool { return number >= float64(e.Step) })
			if i < 0 {
				i = len(steps.times) - 1
			}
			found = append(found, view.Moment{AtS: steps.times[i], Kind: "guard", Text: e.Kind + ": " + e.Text})
		}
	}
	slices.SortStableFunc(found, byTime)
	return found
}

func byTime(a, b view.Moment) int { return cmp.Compare(a.AtS, b.AtS) }

// observed are the events of all run logs; what several monitors of one machine saw at about the same time is there once.
func (t *timeline) observed() []view.Moment {
	all, kept := []view.Moment{}, []view.Moment{}
	for _, s := range t.sources {
		for _, e := range s.RunLog.Events {
			all = append(all, view.Moment{AtS: e.AtS + s.offset, Kind: e.Kind, Where: t.label(s, e.GPU), Text: e.Text})
		}
	}
	slices.SortStableFunc(all, byTime)
	last := map[view.Moment]float64{}
	for _, m := range all {
		what := view.Moment{Kind: m.Kind, Where: m.Where, Text: m.Text}
		if before, again := last[what]; len(t.sources) == 1 || !again || m.AtS-before > 2 {
			kept = append(kept, m)
		}
		last[what] = m.AtS
	}
	return kept
}

// bands are evaluations and checkpoints by their steps, and gaps in the samples.
func (t *timeline) bands() []view.Band {
	found := []view.Band{}
	for _, kind := range []string{runlog.KindEvaluation, runlog.KindCheckpoint} {
		found = append(found, lasting(t.steps(kind, spent), kind)...)
	}
	for _, s := range t.leads {
		times := s.moved(s.RunLog.Memory.TimesS)
		_, limit := paces(times)
		for i := 1; i < len(times); i++ {
			if times[i]-times[i-1] > limit {
				found = append(found, view.Band{BeginS: times[i-1], EndS: times[i], Kind: "gap"})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b view.Band) int { return cmp.Compare(a.BeginS, b.BeginS) })
	return found
}

// lasting makes one band of entries that follow one another.
func lasting(l line, kind string) (found []view.Band) {
	for i, end := range l.times {
		spent := l.values[i]
		if math.IsNaN(spent) {
			spent = 0
		}
		if n := len(found); n > 0 && end-spent <= found[n-1].EndS+0.5*spent+0.05 {
			found[n-1].EndS = end
		} else {
			found = append(found, view.Band{BeginS: end - spent, EndS: end, Kind: kind})
		}
	}
	return found
}
