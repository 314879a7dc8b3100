package compare

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Wanted is what to trace before there is a comparison.
type Wanted struct {
	Machines []MachineTrace `json:"machines"` // one for each, in the order asked for
	// durations that hold the shortest and the longest clip
	Seconds []float64 `json:"seconds"`
}

// MachineTrace is what plan.next wants for one machine.
type MachineTrace struct {
	GPU   string             `json:"gpu"`   // "T4", "2xT4"
	Trace *plan.TraceRequest `json:"trace"` // absent when nothing more is wanted of it
}

// wanted is what the planner wants traced of the machines; nil for nothing.
func (p *planner) wanted(machines []machine, traces []*plan.TraceRequest) *Wanted {
	if !slices.ContainsFunc(traces, func(t *plan.TraceRequest) bool { return t != nil }) {
		return nil
	}
	out := Wanted{Seconds: p.durations}
	if p.Data.Profile != nil { // whoever scanned it has them
		out.Seconds = []float64{p.dataset.MinS, p.dataset.MaxS}
	}
	for i, m := range machines {
		out.Machines = append(out.Machines, MachineTrace{m.name(), traces[i]})
	}
	return &out
}

// tracedLargest is the largest micro-batch of clips of the given seconds in the trace of a row's
// settings; 0 without one.
func (row Row) tracedLargest(m machine, limit *float64, seconds float64) int {
	for _, t := range m.traced {
		if t.Precision == row.Precision && t.Optimizer == row.Optimizer &&
			t.Recomputed() == profile.CheckpointingOf(row.Checkpointing, row.EveryNLayers, row.Offload) {
			return min(maxMicro, t.Largest(min(seconds, profile.Or(limit, seconds))))
		}
	}
	return 0
}
