package compare

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Wanted is what to trace before there is a comparison.
type Wanted struct {
	Machines []MachineTrace `json:"machines"` // one for each, in the order asked for
	Seconds  []float64      `json:"seconds"`  // durations that hold the shortest and the longest clip
}

// MachineTrace is what plan.next wants for one machine.
type MachineTrace struct {
	GPU     string             `json:"gpu"`     // "T4", "2xT4"
	Count   int                `json:"count"`   // GPUs that share a step
	Trained int64              `json:"trained"` // parameters
	Trace   *plan.TraceRequest `json:"trace"`   // absent when nothing more is wanted of it
}

// tracing tells whether rows rest on traces: always, never, or where the config does not tell what a step takes.
func (p *planner) tracing() bool { return profile.Or(p.Trace, p.undescribed != nil) }

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
		out.Machines = append(out.Machines, MachineTrace{m.name(), m.count, p.model.TrainableParameters, traces[i]})
	}
	return &out
}

// read finds the model's sizes, and whether its config tells what a step takes.
func (p *planner) read() error {
	m, err := estimate.Of(p.Model).Model(p.FreezeFeatureEncoder)
	if err == nil {
		p.model, p.longestS = m.Profile(), m.LongestSeconds()
		return nil
	}
	if fault.From(err).Code != fault.Unsupported {
		return err
	}
	p.undescribed = err
	named := p.Model
	named.FreezeFeatureEncoder = named.FreezeFeatureEncoder || p.FreezeFeatureEncoder
	p.model, err = model.Profile(named)
	return err
}

// checkTraced refuses to compare what nothing is to be known of. Errors: Unsupported, and InvalidArgument for traces of other machines.
func (p *planner) checkTraced(machines []machine) error {
	if p.undescribed != nil && !p.tracing() {
		return p.undescribed
	}
	if len(p.Traced) != 0 && len(p.Traced) != len(machines) {
		return fault.New(fault.InvalidArgument, "give what was wanted of each", "traces of %d machines for %d", len(p.Traced), len(machines))
	}
	return nil
}

// tracedLargest is the largest micro-batch of clips of so many seconds by the trace of a row's settings; 0 without one.
func (row Row) tracedLargest(m machine, seconds float64) int {
	for _, t := range m.traced {
		if t.Precision == row.Precision && t.Optimizer == row.Optimizer &&
			profile.CheckpointingOf(t.Checkpointing, t.EveryNLayers, t.Offload) == profile.CheckpointingOf(row.Checkpointing, row.EveryNLayers, row.Offload) {
			return min(maxMicro, t.Largest(seconds))
		}
	}
	return 0
}
