package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// result is one point: seconds of an iteration, measured and predicted.
type result struct {
	group, model, name, detail string
	truth                      float64
	ours                       profile.Range
	others                     map[string]float64
	backward                   *result // of a training: its backward pass alone
}

type results []result

// errors are how far predictions are off, in percent, without their sign, smallest first.
func (r results) errors(of func(result) float64) []float64 {
	off := make([]float64, len(r))
	for i, point := range r {
		off[i] = 100 * math.Abs(of(point)/point.truth-1)
	}
	slices.Sort(off)
	return off
}

func at(sorted []float64, share float64) float64 {
	place := share * float64(len(sorted)-1)
	below := int(place)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (place-float64(below))*(sorted[above]-sorted[below])
}

func summary(errors []float64) string {
	return fmt.Sprintf("%.1f / %.1f / %.1f", at(errors, 0.5), at(errors, 0.9), errors[len(errors)-1])
}

func ours(p result) float64 { return p.ours.Likely }

func (r results) summary() string { return summary(r.errors(ours)) }

// grouped sorts points by what a function names them.
func (r results) grouped(by func(result) string) map[string]results {
	groups := map[string]results{}
	for _, point := range r {
		groups[by(point)] = append(groups[by(point)], point)
	}
	return groups
}

func group(p result) string { return p.group }

// beside is the table of our and the others' errors, by group.
func (r results) beside(others ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Median / 90th percentile / worst error in percent.\n\n| | points | ours | %s |\n| --- | --- | --- |%s\n", strings.Join(others, " | "), strings.Repeat(" --- |", len(others)))
	groups := r.grouped(group)
	groups["all"] = r
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&b, "| %s | %d | %s |", name, len(groups[name]), groups[name].summary())
		for _, other := range others {
			fmt.Fprintf(&b, " %s |", summary(groups[name].errors(func(p result) float64 { return p.others[other] })))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// bounds tells how many points lie within the quoted range, and how wide it is.
func (r results) bounds() string {
	inside, widths := 0, make([]float64, len(r))
	for i, p := range r {
		if p.truth >= p.ours.Low && p.truth <= p.ours.High {
			inside++
		}
		widths[i] = p.ours.High / p.ours.Low
	}
	slices.Sort(widths)
	return fmt.Sprintf("%d of %d within the quoted range, which is ×%.2f wide (median)", inside, len(r), at(widths, 0.5))
}

// transferred is how far each point is off when a point of another model on the same card sets a factor, in percent.
func (r results) transferred() []float64 {
	var off []float64
	for _, points := range r.grouped(group) {
		for _, known := range points {
			for _, asked := range points {
				if known.model != asked.model {
					off = append(off, 100*math.Abs(asked.ours.Likely*known.truth/known.ours.Likely/asked.truth-1))
				}
			}
		}
	}
	slices.Sort(off)
	return off
}

// backwards are the backward passes of the trainings, alone.
func (r results) backwards() (all results) {
	for _, p := range r {
		if p.backward != nil {
			all = append(all, *p.backward)
		}
	}
	return all
}

// transfers is a table of what one measured model says of others, by card; of passes in float32 without what a host does between them, too.
func (r results) transfers() string {
	var b strings.Builder
	b.WriteString("Median / 90th percentile / worst error in percent.\n\n| | pairs | iterations | pairs | backward passes |\n| --- | --- | --- | --- | --- |\n")
	row := func(name string, iterations, backwards results) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, of := range []results{iterations, backwards} {
			if off := of.transferred(); len(off) > 0 {
				fmt.Fprintf(&b, " %d | %s |", len(off), summary(off))
			} else {
				b.WriteString(" | |")
			}
		}
		b.WriteString("\n")
	}
	cards := r.grouped(group)
	for _, name := range slices.Sorted(maps.Keys(cards)) {
		row(name, cards[name], cards[name].backwards())
	}
	row("all", r, r.backwards())
	return b.String()
}

func (r results) print() {
	for _, p := range r {
		fmt.Printf("%-32s %-28s measured %8.1f ms, ours %8.1f, %+5.1f %%  %s\n", p.group, p.name, 1e3*p.truth, 1e3*p.ours.Likely, 100*(p.ours.Likely/p.truth-1), p.detail)
	}
}
