package memory

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
)

// Estimate is the memory of a run. Sizes are bytes.
type Estimate struct {
	Estimator     string       `json:"estimator"`      // "trace"
	PeakAllocated uint64       `json:"peak_allocated"` // in blocks of live storages, with their rounding
	PeakRequested uint64       `json:"peak_requested"` // the same without rounding
	PeakReserved  uint64       `json:"peak_reserved"`  // taken from the device by the allocator
	PeakDevice    *uint64      `json:"peak_device"`    // reserved and device_bytes; null without them
	Fits          *bool        `json:"fits"`           // whether every allocation found room; null without a limit
	Retries       uint64       `json:"retries"`        // how often the cache was given back to find room
	OutOfMemory   *OutOfMemory `json:"out_of_memory"`  // where the run ends; null when it does not
	Fragmentation float64      `json:"fragmentation"`  // share of the reserved memory without a storage when it was most, 0 to 1
	AtPeak        AtPeak       `json:"at_peak"`        // when most was allocated
	Phases        []PhasePeak  `json:"phases"`         // by kind of segment and phase, in order of appearance
	Timeline      *Timeline    `json:"timeline"`       // null unless asked for
	Approximate   int          `json:"approximate"`    // storages of the played segments whose size has no exact formula
	Notes         []string     `json:"notes"`
}

// OutOfMemory is an allocation that found no room.
type OutOfMemory struct {
	Segment   string `json:"segment"`
	Phase     string `json:"phase"`
	Op        string `json:"op"`
	Module    string `json:"module"`
	Wanted    uint64 `json:"wanted"`
	Reserved  uint64 `json:"reserved"`  // after the cache was given back
	Allocated uint64 `json:"allocated"` // of that
}

// AtPeak tells what the highest moment consists of.
type AtPeak struct {
	Segment    string            `json:"segment"`
	Phase      string            `json:"phase"`
	Op         string            `json:"op"` // whose result raised it
	Module     string            `json:"module"`
	Components map[string]uint64 `json:"components"`
	Modules    []ModuleBytes     `json:"modules"`
}

// PhasePeak is the highest moment of a phase, over all segments of its kind.
type PhasePeak struct {
	Segment       string `json:"segment"`
	Phase         string `json:"phase"`
	PeakAllocated uint64 `json:"peak_allocated"`
	PeakReserved  uint64 `json:"peak_reserved"`
}

// estimate sums a watched run up.
func (m *Model) estimate(p *player, full *failure, plan []planned, r Request) Estimate {
	w, s := p.watch, p.alloc.Stats()
	e := Estimate{
		Estimator: "trace", PeakAllocated: s.PeakAllocated, PeakRequested: s.PeakRequested, PeakReserved: s.PeakReserved,
		PeakDevice: plus(s.PeakReserved, r.DeviceBytes), Retries: s.Retries, AtPeak: m.atPeak(w, r.modules()), Phases: w.phases(),
	}
	if w.densest > 0 {
		e.Fragmentation = float64(w.sparse) / float64(w.densest)
	}
	if r.LimitBytes != nil || full != nil {
		fits := full == nil
		e.Fits = &fits
	}
	if full != nil {
		e.OutOfMemory = m.outOfMemory(full)
	}
	if w.timeline != nil {
		e.Timeline = w.timeline.timeline(m.parts)
	}
	e.Approximate, e.Notes = m.remarks(plan)
	return e
}

func plus(bytes uint64, device *uint64) *uint64 {
	if device == nil {
		return nil
	}
	sum := bytes + *device
	return &sum
}

func (m *Model) atPeak(w *watcher, rows int) AtPeak {
	c, birth := w.peak.segment.class, w.peak.birth
	if c == nil { // nothing was allocated at all
		return AtPeak{Components: map[string]uint64{}, Modules: []ModuleBytes{}}
	}
	at := AtPeak{Segment: c.kind, Phase: c.phaseOf(int(birth)), Op: m.ops[c.op[birth]], Module: m.modules[c.module[birth]],
		Components: map[string]uint64{}, Modules: moduleRows(m.modules, w.peak.modules, rows)}
	for i, name := range m.parts {
		if w.peak.parts[i] > 0 {
			at.Components[name] = w.peak.parts[i]
		}
	}
	return at
}

func (m *Model) outOfMemory(f *failure) *OutOfMemory {
	c := f.segment.class
	return &OutOfMemory{Segment: c.kind, Phase: c.phaseOf(int(f.birth)), Op: m.ops[c.op[f.birth]], Module: m.modules[c.module[f.birth]],
		Wanted: f.cause.Wanted, Reserved: f.cause.Reserved, Allocated: f.cause.Allocated}
}

// remarks counts what is not exact in the classes of a plan, and says what a reader should know.
func (m *Model) remarks(plan []planned) (approximate int, notes []string) {
	notes = []string{}
	if text, ok := m.about["notes"].(string); ok && text != "" {
		notes = append(notes, text)
	}
	var all fitted
	grafted := false
	seen := map[*class]bool{}
	for _, p := range plan {
		if !seen[p.class] && p.exact == nil {
			seen[p.class] = true
			all = all.plus(p.class.fitted())
			grafted = grafted || p.class.graftedOn != nil
		}
	}
	if all.inexact > 0 {
		notes = append(notes, fmt.Sprintf("sizes without an exact formula: %d; they are taken from above, by up to %.1f %% at the traced shapes", all.inexact, 100*all.worst))
	}
	if all.ambiguous > 0 {
		notes = append(notes, fmt.Sprintf("sizes with more than one formula at the traced shapes: %d; a further shape would tell which holds", all.ambiguous))
	}
	if grafted {
		notes = append(notes, "the first step was traced at another shape; here it is a later step with what the first one leaves")
	}
	return all.inexact, notes
}

func settingsOf(text string, limit, device *uint64) (allocator.Settings, error) {
	s, err := allocator.ParseSettings(text)
	if err != nil {
		return s, err
	}
	if limit != nil {
		s.Limit, s.DeviceTotal = *limit, *limit
		if device != nil {
			s.DeviceTotal += *device
		}
	}
	return s, nil
}
