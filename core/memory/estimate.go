package memory

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
)

func (m *Model) estimate(p *replay.Player, full *replay.Failure, plan []replay.Segment,
	r Request) peak.Estimate {
	o, s := p.Observer, p.Allocator.Stats()
	e := peak.Estimate{
		Estimator: "trace", PeakAllocated: s.PeakAllocated, PeakRequested: s.PeakRequested,
		PeakReserved: s.PeakReserved, PinnedBytes: m.pinned(r),
		Retries: s.Retries, Fragmentation: o.Fragmentation(),
		AtPeak: m.atPeak(o.Highest(), r.modules()), Phases: o.Phases(),
		Timeline: o.Timeline(m.templates.Components),
	}
	if r.DeviceBytes != nil {
		inAll := s.PeakReserved + *r.DeviceBytes
		e.PeakDevice = &inAll
	}
	if r.LimitBytes != nil || full != nil {
		fits := full == nil
		e.Fits = &fits
	}
	if full != nil {
		e.OutOfMemory = m.outOfMemory(full)
	}
	e.Approximate, e.Notes = m.notes(plan)
	return e
}

func (m *Model) atPeak(highest replay.Moment, rows int) peak.AtPeak {
	t := highest.Segment.Template
	if t == nil { // nothing was allocated at all
		return peak.AtPeak{Components: map[string]uint64{}, Modules: []peak.ModuleBytes{}}
	}
	atPeak := peak.AtPeak{Place: m.place(t, highest.Storage), Components: map[string]uint64{},
		Modules: peak.ModuleRows(m.trace.Modules, highest.Modules, rows)}
	for i, name := range m.templates.Components {
		if highest.Components[i] > 0 {
			atPeak.Components[name] = highest.Components[i]
		}
	}
	return atPeak
}

func (m *Model) outOfMemory(f *replay.Failure) *peak.OutOfMemory {
	return &peak.OutOfMemory{Place: m.place(f.Segment.Template, f.Storage),
		Wanted: f.Cause.Wanted, Reserved: f.Cause.Reserved, Allocated: f.Cause.Allocated}
}

// place is where a storage of a template is allocated.
func (m *Model) place(t *template.Template, storage int32) peak.Place {
	s := t.Storages[storage]
	return peak.Place{Segment: t.Kind, Phase: t.PhaseOf(storage), Op: m.trace.Ops[s.Op],
		Module: m.trace.Modules[s.Module]}
}

// notes counts the sizes of a plan that are not exact, and lists what a reader should know.
func (m *Model) notes(plan []replay.Segment) (approximate int, notes []string) {
	notes = []string{}
	if text, ok := m.trace.About["notes"].(string); ok && text != "" {
		notes = append(notes, text)
	}
	var all template.Inexactness
	composed := false
	for _, s := range computed(plan) {
		if p, err := m.templates.Variables.At(s.Shape); err == nil {
			all.CountAt(s.Template, p)
		}
		composed = composed || s.Template.Base() != s.Template
	}
	if all.Inexact > 0 {
		notes = append(notes, fmt.Sprintf(
			"sizes without an exact formula: %d; they are upper bounds, by up to %.1f %% at the "+
				"traced shapes",
			all.Inexact, 100*all.WorstResidual))
	}
	if all.Ambiguous > 0 {
		notes = append(notes, fmt.Sprintf(
			"sizes with more than one formula at the traced shapes: %d; trace another shape to "+
				"decide between them", all.Ambiguous))
	}
	if composed {
		notes = append(notes, "the first step was traced at another shape; here it is a later "+
			"step plus what the first one allocates")
	}
	return all.Inexact, notes
}
