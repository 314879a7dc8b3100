package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// result is one point: seconds of an iteration, measured and predicted.
type result struct {
	group, name, detail string
	truth, ours         float64
	others              map[string]float64
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

func ours(p result) float64 { return p.ours }

func (r results) summary() string { return summary(r.errors(ours)) }

func (r results) grouped() map[string]results {
	groups := map[string]results{}
	for _, point := range r {
		groups[point.group] = append(groups[point.group], point)
	}
	return groups
}

// beside is the table of ours and the others' errors, by group.
func (r results) beside() string {
	var b strings.Builder
	b.WriteString("Median / 90th percentile / worst error in percent.\n\n| | points | ours | NeuSight | Habitat | roofline |\n| --- | --- | --- | --- | --- | --- |\n")
	groups := r.grouped()
	groups["all"] = r
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&b, "| %s | %d | %s |", name, len(groups[name]), groups[name].summary())
		for _, other := range []string{"NeuSight", "Habitat", "roofline"} {
			fmt.Fprintf(&b, " %s |", summary(groups[name].errors(func(p result) float64 { return p.others[other] })))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// byGroup is the table of ours alone.
func (r results) byGroup() string {
	var b strings.Builder
	b.WriteString("Median / 90th percentile / worst error in percent.\n\n| | points | ours |\n| --- | --- | --- |\n")
	groups := r.grouped()
	groups["all"] = r
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&b, "| %s | %d | %s |\n", name, len(groups[name]), groups[name].summary())
	}
	return b.String()
}

func (r results) print() {
	for _, p := range r {
		fmt.Printf("%-32s %-28s measured %8.1f ms, ours %8.1f, %+5.1f %%  %s\n", p.group, p.name, 1e3*p.truth, 1e3*p.ours, 100*(p.ours/p.truth-1), p.detail)
	}
}
