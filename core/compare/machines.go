package compare

import (
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// machine is one row's hardware.
type machine struct {
	card   gpus.Entry
	count  int
	traced []plan.Traced
}

// name is "T4", "2xT4".
func (m machine) name() string {
	if m.count == 1 {
		return m.card.Key
	}
	return fmt.Sprintf("%dx%s", m.count, m.card.Key)
}

// machines reads the names. Errors: NotFound with the closest names, InvalidArgument for a count.
func (r Request) machines() ([]machine, error) {
	var out []machine
	for _, name := range r.GPUs {
		card, count, err := gpus.Parse(name)
		if err != nil {
			return nil, err
		}
		out = append(out, machine{card: card, count: count})
	}
	if len(r.GPUs) == 0 {
		for _, card := range gpus.All() {
			out = append(out, machine{card: card, count: 1})
		}
	}
	for i, traced := range r.Traced[:min(len(r.Traced), len(out))] {
		out[i].traced = traced
	}
	return out, nil
}

// Cards are the whole cards of the catalogue, which one might take instead.
func Cards() (all []estimate.Card) {
	for _, card := range gpus.All() {
		if !card.MIG {
			all = append(all, estimate.Card{Key: card.Key, GPU: card.GPU()})
		}
	}
	return all
}

// host is the machine around the GPUs when it is unknown: a plan whose workers are fixed uses it
// only to decide what is cached in RAM.
func host(count int) profile.Hardware {
	return profile.Hardware{CPU: profile.CPU{UsableCores: float64(8 * count)},
		Memory: profile.Memory{TotalBytes: 64 << 30, AvailableBytes: 56 << 30}}
}

// planner asks core/plan about one machine after another.
type planner struct {
	Request
	dataset   profile.Dataset
	durations []float64
	prices    map[string]timing.Price
	factors   map[string]timing.StepCalibration
	cards     []estimate.Card
}

// inputs returns the inputs of core/plan, the same as for one machine alone.
func (p *planner) inputs(m machine, optimizer string) plan.Inputs {
	in := plan.Inputs{Hardware: profile.Or(p.Hardware, host(m.count)), Dataset: p.dataset,
		Model: p.Model, Durations: p.durations, Traced: m.traced,
		Cards: p.cards, WithoutAlternatives: true}
	in.Hardware.GPUs, in.Hardware.NoGPUReason = nil, ""
	for i := range m.count {
		g := m.card.GPU()
		g.Index = i
		in.Hardware.GPUs = append(in.Hardware.GPUs, g)
	}
	in.Options = p.Options
	in.Options.Optimizer, in.Options.DeviceCount, in.Options.Precision =
		optimizer, &m.count, p.precision(m.card.GPU())
	if factor, ok := p.factors[m.card.Key]; ok {
		in.Options.Calibration = &factor
	}
	if price, ok := p.prices[m.card.Key]; ok {
		in.Options.PriceUSDHour = &price.Hour
	}
	return in
}

// precision is the user's; float16 replaces a bfloat16 that the card lacks.
func (p *planner) precision(g profile.GPU) string {
	if p.Precision == "bf16" && !g.BF16 {
		return estimate.Precision(g)
	}
	return p.Precision
}

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
