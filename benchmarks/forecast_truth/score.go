package main

import (
	"fmt"
	"io"
	"slices"
)

type result struct {
	kinds       []string
	by          map[string][]outcome
	normalHours float64
	alarms      int
	broken      int // trainings in order that ran out of memory all the same: the generator's fault, not counted
}

func summed(outcomes []outcome) *result {
	r := &result{by: map[string][]outcome{}}
	for _, o := range outcomes {
		if o.kind == "" && o.ran {
			r.broken++
			continue
		}
		if !slices.Contains(r.kinds, o.kind) {
			r.kinds = append(r.kinds, o.kind)
		}
		r.by[o.kind] = append(r.by[o.kind], o)
		if o.kind == "" {
			r.normalHours += o.hours
			r.alarms += len(o.falseAlarms)
		}
	}
	return r
}

func (r *result) perDay() float64 { return 24 * float64(r.alarms) / max(r.normalHours, 1e-9) }

// warned is the share of all trainings that ran out of memory.
func (r *result) warned() (share float64, of int) {
	yes := 0
	for kind, outcomes := range r.by {
		for _, o := range outcomes {
			if kind != "" && o.ran {
				of++
				if o.warned {
					yes++
				}
			}
		}
	}
	return float64(yes) / float64(max(of, 1)), of
}

func (r *result) good() bool {
	share, of := r.warned()
	return (of == 0 || share >= aimWarned) && (r.normalHours == 0 || r.perDay() <= aimFalse)
}

func (r *result) print(out io.Writer, verbose bool) {
	fmt.Fprintln(out, "| kind | trainings | warned in time | late | missed | median lead, steps | median lead, s | right kind named | alarms before it began |")
	fmt.Fprintln(out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, kind := range r.kinds {
		if kind != "" {
			r.row(out, kind)
		}
	}
	share, of := r.warned()
	fmt.Fprintf(out, "\nwarned in time: %.1f %% of %d, aim %.0f %%\n", 100*share, of, 100*aimWarned)
	fmt.Fprintf(out, "in order: %.0f h, %d false alarms, %.2f in 24 h, aim %.0f (%d trainings ran out of memory and are not counted)\n",
		r.normalHours, r.alarms, r.perDay(), aimFalse, r.broken)
	if verbose {
		r.details(out)
	}
}

func (r *result) row(out io.Writer, kind string) {
	var n, warned, late, right, early, ended int
	var steps, seconds []float64
	for _, o := range r.by[kind] {
		early += len(o.falseAlarms)
		if !o.ran {
			ended++
			continue
		}
		n++
		if o.warned {
			warned++
			steps, seconds = append(steps, o.leadSteps), append(seconds, o.leadS)
		}
		if o.late {
			late++
		}
		if o.right {
			right++
		}
	}
	fmt.Fprintf(out, "| %s | %d | %d | %d | %d | %.0f | %.0f | %d | %d |\n", kind, n, warned, late, n-warned-late, middle(steps), middle(seconds), right, early)
	if ended > 0 {
		fmt.Fprintf(out, "| %s that did not run out, or at once | %d | | | | | | | |\n", kind, ended)
	}
}

func (r *result) details(out io.Writer) {
	for _, kind := range r.kinds {
		for _, o := range r.by[kind] {
			if o.ran && !o.warned || o.ran && !o.right && kind != "" {
				fmt.Fprintf(out, "%s, seed %d: warned %v, lead %.0f steps, %.0f s, right %v\n", kind, o.seed, o.warned, o.leadSteps, o.leadS, o.right)
			}
			for _, text := range o.falseAlarms {
				fmt.Fprintf(out, "false: %s seed %d at %s\n", kind, o.seed, text)
			}
		}
	}
}

func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}
