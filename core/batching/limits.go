// Package batching decides which clips make up an optimizer step and how a step is split into
// micro-batches, and computes what that costs in padding, memory and time. Pure: durations, a table
// of what fits and a seed in, orders and figures out.
package batching

import (
	"math"
	"sort"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Fit means that micro-batches of up to Batch clips fit when none is longer than Seconds.
type Fit struct {
	Seconds float64 `json:"seconds"`
	Batch   int     `json:"batch"`
}

// Limits is what fits for ever longer clips. Clips longer than the last row are not known to fit.
type Limits []Fit

const maxRows = 4096

// Check returns what is wrong with the table.
func (m Limits) Check() error {
	const hint = "pass rows of increasing seconds, each with the largest micro-batch that fits, " +
		"which never increases"
	if len(m) == 0 || len(m) > maxRows {
		return fault.New(fault.InvalidArgument, hint, "memory has %d rows, not 1 to %d", len(m),
			maxRows)
	}
	for i, row := range m {
		switch {
		case !(row.Seconds > 0) || math.IsInf(row.Seconds, 0) || row.Batch < 0 ||
			row.Batch > MaxStep:
			return fault.New(fault.InvalidArgument, hint, "memory row %d: %d clips of %g s", i,
				row.Batch, row.Seconds)
		case i > 0 && (row.Seconds <= m[i-1].Seconds || row.Batch > m[i-1].Batch):
			return fault.New(fault.InvalidArgument, hint,
				"memory row %d: %d clips of %g s after %d of %g s", i, row.Batch, row.Seconds,
				m[i-1].Batch, m[i-1].Seconds)
		}
	}
	return nil
}

// Largest is the largest micro-batch of clips of up to this length, 0 when not even one is known to
// fit.
func (m Limits) Largest(seconds float64) int {
	i := sort.Search(len(m), func(i int) bool { return m[i].Seconds >= seconds })
	if i == len(m) {
		return 0
	}
	return m[i].Batch
}

// largestOf returns Largest of every one of the sorted durations.
func (m Limits) largestOf(sorted []float64) []int32 {
	all, from := make([]int32, len(sorted)), 0
	for _, row := range m {
		for from < len(sorted) && sorted[from] <= row.Seconds {
			all[from] = int32(row.Batch)
			from++
		}
	}
	return all
}

// checkAll is an error when a clip is too long to fit at all.
func (m Limits) checkAll(sorted []float64) error {
	over := sort.Search(len(sorted), func(i int) bool { return m.Largest(sorted[i]) == 0 })
	if over == len(sorted) {
		return nil
	}
	count := len(sorted) - over
	problem := "are too long to fit even alone; the shortest of them"
	if count == 1 {
		problem = "is too long to fit even alone; it"
	}
	return fault.New(fault.Infeasible,
		"drop or shorten them, enable gradient checkpointing, or use a larger GPU",
		"%d of %s %s lasts %.4g s", count, fault.Plural(len(sorted), "clip"), problem, sorted[over])
}
