package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// series is a table of a run log: what is known of some moments under some names. Values are
// numbers and texts; NaN and nil are not known.
type series struct {
	name  string
	times []float64
	names []string
	value func(i, k int) any
}

type cell struct {
	name  string
	value any
}

// alertNames are those of what events do not have, too.
var alertNames = []string{"kind", "gpu", "text", "id", "severity", "since_step", "since_s",
	"bytes_per_step", "bytes_per_s", "steps_left", "seconds_left", "advice", "cleared_s"}

// series are everything that a monitor saw.
func (s *Source) series() []series {
	memory, activity, steps := &s.RunLog.Memory, &s.RunLog.Activity, &s.RunLog.Steps
	used, slow := []*runlog.Column{&memory.HostUsed}, activity.Columns()
	usedNames, slowNames := []string{"host_used_bytes"}, runlog.ColumnNames[runlog.ActivitySeries]()
	for g := range s.RunLog.GPUs {
		used, usedNames = append(used, &memory.GPUUsed[g]),
			append(usedNames, fmt.Sprintf("gpu%d_used_bytes", g))
		slow = append(slow, activity.GPUs[g].Columns()...)
		for _, name := range runlog.ColumnNames[runlog.GPUSeries]() {
			slowNames = append(slowNames, fmt.Sprintf("gpu%d_%s", g, name))
		}
	}
	counted := steps.Columns()
	columns := []series{
		{"memory", memory.TimesS, usedNames, func(i, k int) any { return (*used[k])[i] }},
		{"activity", activity.TimesS, slowNames, func(i, k int) any { return (*slow[k])[i] }},
		{"step", steps.TimesS, append([]string{"step", "kind", "gpu", "covers"},
			runlog.ColumnNames[runlog.StepSeries]()...), func(i, k int) any {
			if k < 4 {
				return []any{float64(steps.Number[i]), steps.Kind[i], gpuNumber(steps.GPU[i]),
					float64(steps.Covers[i])}[k]
			}
			return (*counted[k-4])[i]
		}},
		{"event", nil, alertNames[:3], func(i, k int) any {
			e := &s.RunLog.Events[i]
			return []any{e.Kind, gpuNumber(e.GPU), e.Text}[k]
		}},
		{"alert", nil, alertNames, func(i, k int) any {
			return s.alertCells(s.RunLog.Alerts[i])[k]
		}},
	}
	for _, e := range s.RunLog.Events {
		columns[3].times = append(columns[3].times, e.AtS)
	}
	for _, a := range s.RunLog.Alerts {
		columns[4].times = append(columns[4].times, a.AtS)
	}
	return columns
}

// alertCells are in the order of alertNames.
func (s *Source) alertCells(a runlog.Alert) []any {
	cells := []any{a.Kind, gpuNumber(a.GPU), a.Text, float64(a.ID), a.Severity, nil, a.SinceS,
		a.PerStep, a.PerS, a.Steps, a.Seconds, a.Advice, nil}
	if a.Since != nil {
		cells[5] = float64(*a.Since)
	}
	if a.ClearedS != nil {
		cells[12] = rounded(*a.ClearedS+s.offset, 6)
	}
	return cells
}

// gpuNumber is not known of the host.
func gpuNumber(gpu int) float64 {
	if gpu < 0 {
		return math.NaN()
	}
	return float64(gpu)
}

func rounded(x float64, digits int) float64 {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'f', digits, 64), 64)
	return x
}

// names are those of all cells that a row may have, in the order of a table's columns.
func names(sources []Source) []string {
	columns := []string{"time_s", "unix_s", "source", "series"}
	if len(sources) < 2 {
		columns = slices.Delete(columns, 2, 3)
	}
	listed := map[string]bool{}
	for i := range sources {
		for _, series := range sources[i].series() {
			for _, name := range series.names {
				if !listed[name] {
					listed[name], columns = true, append(columns, name)
				}
			}
		}
	}
	return columns
}

// eachRow returns the cells of every moment, those of a source in the order of time.
func eachRow(sources []Source, give func(row []cell)) {
	for n := range sources {
		s := &sources[n]
		all := s.series()
		var places [][2]int // of a moment in all
		for k := range all {
			for i := range all[k].times {
				places = append(places, [2]int{k, i})
			}
		}
		slices.SortStableFunc(places, func(a, b [2]int) int {
			return cmp.Compare(all[a[0]].times[a[1]], all[b[0]].times[b[1]])
		})
		for _, p := range places {
			series, i := &all[p[0]], p[1]
			atS := series.times[i]
			row := []cell{{"time_s", rounded(atS+s.offset, 6)},
				{"unix_s", rounded(float64(s.RunLog.StartUnixNanos)/1e9+atS, 3)},
				{"series", series.name}}
			if len(sources) > 1 {
				row = slices.Insert(row, 2, cell{"source", cmp.Or(s.Name, "first")})
			}
			for k, name := range series.names {
				row = append(row, cell{name, series.value(i, k)})
			}
			give(row)
		}
	}
}
