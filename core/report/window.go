package report

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// cut leaves the figures of some steps: from the end of the step before them to where the last one was first made.
func (s *side) cut(first, last uint64) {
	from, to := -1.0, s.duration
	steps := s.steps(runlog.KindTrain, number)
	for i, n := range steps.values {
		if n < float64(first) {
			from = steps.times[i]
		}
	}
	if i := slices.IndexFunc(steps.values, func(n float64) bool { return n >= float64(last) }); i >= 0 {
		to = steps.times[i]
	}
	var inside []Source
	for _, source := range s.Sources {
		inside = append(inside, source.within(from, to))
	}
	s.figures = newTimeline(inside).figures(0, nil)
	s.errors = slices.DeleteFunc(slices.Clone(s.Guard), func(e GuardEvent) bool { return e.Step < int(first) || e.Step > int(last) })
}

// within is what a monitor saw after one moment of the run and until another, without events and alerts.
func (s Source) within(from, to float64) Source {
	log := &s.RunLog
	rows := func(times []float64) (rows []int) {
		for i, at := range times {
			if at += s.offset; at > from && at <= to {
				rows = append(rows, i)
			}
		}
		return rows
	}
	memory, activity, steps := &log.Memory, &log.Activity, &log.Steps
	fast, slow, marks := rows(memory.TimesS), rows(activity.TimesS), rows(steps.TimesS)
	memory.TimesS, activity.TimesS, steps.TimesS = taken(memory.TimesS, fast), taken(activity.TimesS, slow), taken(steps.TimesS, marks)
	steps.Number, steps.Kind, steps.Covers, steps.GPU = taken(steps.Number, marks), taken(steps.Kind, marks), taken(steps.Covers, marks), taken(steps.GPU, marks)
	memory.GPUUsed, activity.GPUs = slices.Clone(memory.GPUUsed), slices.Clone(activity.GPUs)
	take := func(rows []int, columns ...*runlog.Column) {
		for _, column := range columns {
			*column = taken(*column, rows)
		}
	}
	take(fast, &memory.HostUsed)
	take(slow, activity.Columns()...)
	take(marks, steps.Columns()...)
	for g := range log.GPUs {
		take(fast, &memory.GPUUsed[g])
		take(slow, activity.GPUs[g].Columns()...)
	}
	log.Events, log.Alerts = nil, nil
	return s
}

func taken[S ~[]T, T any](all S, rows []int) S {
	found := make(S, len(rows))
	for i, row := range rows {
		found[i] = all[row]
	}
	return found
}
