package runlog

import "slices"

// Within is the part of a log at the moments for which inside holds, without events and alerts.
func (s Log) Within(inside func(atS float64) bool) Log {
	rows := func(times []float64) (rows []int) {
		for i, atS := range times {
			if inside(atS) {
				rows = append(rows, i)
			}
		}
		return rows
	}
	take := func(rows []int, columns ...*Column) {
		for _, column := range columns {
			*column = taken(*column, rows)
		}
	}
	memory, activity, steps := &s.Memory, &s.Activity, &s.Steps
	fast, slow, marks := rows(memory.TimesS), rows(activity.TimesS), rows(steps.TimesS)
	memory.TimesS, activity.TimesS, steps.TimesS =
		taken(memory.TimesS, fast), taken(activity.TimesS, slow), taken(steps.TimesS, marks)
	steps.Number, steps.Kind, steps.Covers, steps.GPU = taken(steps.Number, marks),
		taken(steps.Kind, marks), taken(steps.Covers, marks), taken(steps.GPU, marks)
	take(fast, &memory.HostUsed)
	take(slow, activity.Columns()...)
	take(marks, steps.Columns()...)
	memory.GPUUsed, activity.GPUs = slices.Clone(memory.GPUUsed), slices.Clone(activity.GPUs)
	for g := range memory.GPUUsed {
		take(fast, &memory.GPUUsed[g])
	}
	for g := range activity.GPUs {
		take(slow, activity.GPUs[g].Columns()...)
	}
	s.Events, s.Alerts = nil, nil
	return s
}

func taken[S ~[]T, T any](all S, rows []int) S {
	values := make(S, len(rows))
	for i, row := range rows {
		values[i] = all[row]
	}
	return values
}
