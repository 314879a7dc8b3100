package analytic

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/asrconfig/asrconfig-go/core/memory/peak"
)

// Estimate is the answer of every estimator with the terms of this one.
type Estimate struct {
	peak.Estimate
	Terms []Term `json:"terms"` // what lives at the peak, largest first
}

// Term is one row of the sum: storages of one purpose and size.
type Term struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	Formula string `json:"formula"` // with its numbers; each storage is then rounded up to a multiple of 512 bytes
	Source  string `json:"source"`  // where PyTorch or transformers makes it; "" for what the name says
}

// phases of a step.
const phases = 3

func (m *Model) describe(r Request, set settings, t *tracker, peaks [phases]*highWater) Estimate {
	segment := "micro"
	if set.accumulating {
		segment = "accumulate"
	}
	names := [phases][2]string{{segment, "forward"}, {segment, "backward"}, {"step", "optimizer"}}
	e := Estimate{Estimate: peak.Estimate{Estimator: "analytic", Notes: m.notes(r, set)}}
	pinned := uint64(t.pinned)
	e.PinnedBytes = &pinned
	highest := 0
	for i, w := range peaks {
		if w.peak.total > peaks[highest].peak.total {
			highest = i
		}
		e.Phases = append(e.Phases, peak.Phase{Segment: names[i][0], Phase: names[i][1],
			PeakAllocated: uint64(w.peak.total), PeakReserved: t.reserved(w.peak.total)})
	}
	w := peaks[highest]
	e.Terms = t.terms(&w.peak)
	e.AtPeak = peak.AtPeak{Segment: names[highest][0], Phase: names[highest][1], Op: w.op, Module: w.module,
		Components: w.peak.components(), Modules: t.modules(&w.peak)}
	e.PeakAllocated, e.PeakRequested = uint64(w.peak.total), t.requested(&w.peak)
	e.reserve(r, t.reserved(w.peak.total))
	return e
}

// reserve fills in what follows from the peak of reserved memory.
func (e *Estimate) reserve(r Request, bytes uint64) {
	e.PeakReserved, e.Fragmentation = bytes, 0
	if bytes > 0 { // nothing is reserved where not even the first storage fits
		e.Fragmentation = 1 - float64(e.PeakAllocated)/float64(bytes)
	}
	if r.DeviceBytes != nil {
		device := bytes + uint64(*r.DeviceBytes)
		e.PeakDevice = &device
	}
	if r.LimitBytes != nil {
		fits := bytes <= uint64(*r.LimitBytes)
		e.Fits = &fits
	}
}

func (m *Model) notes(r Request, set settings) []string {
	notes := []string{}
	if r.Labels == nil {
		notes = append(notes, fmt.Sprintf("transcripts of %d tokens assumed", m.labels(r.Seconds)))
	}
	if !r.Simulate {
		notes = append(notes, "reserved memory by a rule: "+set.reservedRule())
	}
	return notes
}

// terms lists the rows that live in an account, largest first.
func (t *tracker) terms(a *account) []Term {
	out := make([]Term, 0, 64)
	for i, bytes := range a.rows {
		if bytes != 0 {
			r := &t.rows[i]
			out = append(out, Term{r.key.name(), bytes, r.formula(bytes / r.key.bytes), r.source})
		}
	}
	slices.SortStableFunc(out, func(x, y Term) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return out
}

func (k rowKey) name() string {
	name := k.what
	switch {
	case k.pass == backward && k.what != parameterGradients:
		name = "gradient of the input of " + k.what
	case k.pass == recomputed:
		name += ", recomputed"
	case k.pass == scratch:
		name += ", in backward"
	}
	if k.module != "" {
		name = k.module + ": " + name
	}
	return name
}

func (r *row) formula(count int64) string {
	one := r.shape.formula(r.kind)
	if count == 1 {
		return one
	}
	return strconv.FormatInt(count, 10) + " × (" + one + ")"
}

// requested is an account without rounding.
func (t *tracker) requested(a *account) (sum uint64) {
	for i, bytes := range a.rows {
		r := &t.rows[i]
		sum += uint64(bytes / r.key.bytes * r.bytes())
	}
	return sum
}

// bytes is the size of one storage before rounding.
func (r *row) bytes() int64 { return r.shape.elements() * r.kind.bytes() }

func (t *tracker) modules(a *account) []peak.ModuleBytes {
	out := []peak.ModuleBytes{}
	for i, bytes := range a.rows {
		if bytes == 0 {
			continue
		}
		place := t.rows[i].key.module
		at := slices.IndexFunc(out, func(m peak.ModuleBytes) bool { return m.Module == place })
		if at < 0 {
			out = append(out, peak.ModuleBytes{Module: place})
			at = len(out) - 1
		}
		out[at].Bytes += uint64(bytes)
	}
	slices.SortStableFunc(out, func(x, y peak.ModuleBytes) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return out
}

func (a *account) components() map[string]uint64 {
	out := make(map[string]uint64, parts)
	for p, bytes := range a.parts {
		if bytes > 0 {
			out[partNames[p]] = uint64(bytes)
		}
	}
	return out
}

// reservedRule is the rule in words, reserved the rule: a tenth for segments and the holes in them, a hundredth where
// segments grow, and room for the largest tensor, which finds no free piece of its size between what the cache has cut up
// for others. docs/memory-model.md has its error against a simulation of the allocator.
func (s settings) reservedRule() string {
	if s.allocator.ExpandableSegments {
		return "1.01 × allocated + the largest tensor"
	}
	return "1.1 × allocated + the largest tensor"
}

func (t *tracker) reserved(allocated int64) uint64 {
	between := allocated / 10
	if t.allocator.ExpandableSegments {
		between = allocated / 100
	}
	return uint64(allocated + between + t.largestStorage)
}
