package analytic

import (
	"cmp"
	"fmt"
	"slices"
)

// Estimate is the answer, in the form that the other estimators give it too. Sizes are bytes.
type Estimate struct {
	Estimator     string  `json:"estimator"`      // "analytic"
	PeakAllocated int64   `json:"peak_allocated"` // what tensors take at the highest moment, in blocks of 512
	PeakRequested int64   `json:"peak_requested"` // the same without rounding
	PeakReserved  int64   `json:"peak_reserved"`  // what the allocator holds: allocated and its rounding and holes
	PeakDevice    *int64  `json:"peak_device"`    // reserved and device_bytes; null without them
	Fits          *bool   `json:"fits"`           // reserved within limit_bytes; null without a limit
	Retries       int64   `json:"retries"`        // always 0: the allocator is not simulated
	OutOfMemory   *string `json:"out_of_memory"`  // always null, for the same reason
	Fragmentation float64 `json:"fragmentation"`  // share of reserved that is not allocated

	AtPeak      Peak     `json:"at_peak"`
	Phases      []Phase  `json:"phases"`
	Timeline    *string  `json:"timeline"`    // always null
	Approximate int64    `json:"approximate"` // always 0
	Notes       []string `json:"notes"`
	Terms       []Term   `json:"terms"` // what lives at the peak, largest first
}

// Peak says where the highest moment is and what lives then.
type Peak struct {
	Segment    string           `json:"segment"`
	Phase      string           `json:"phase"`
	Op         string           `json:"op"`
	Module     string           `json:"module"`
	Components map[string]int64 `json:"components"`
	Modules    []ModuleBytes    `json:"modules"`
}

// ModuleBytes is what a part of the model holds at the peak.
type ModuleBytes struct {
	Module string `json:"module"`
	Bytes  int64  `json:"bytes"`
}

// Phase is the highest moment of one phase.
type Phase struct {
	Segment       string `json:"segment"`
	Phase         string `json:"phase"`
	PeakAllocated int64  `json:"peak_allocated"`
	PeakReserved  int64  `json:"peak_reserved"`
}

// Term is one row of the sum: storages of one purpose and size.
type Term struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	Formula string `json:"formula"`
	Source  string `json:"source"`
}

// terms lists the rows that live in an account, largest first, and what they asked for before rounding.
func (t *tape) terms(a *account) (out []Term, requested int64) {
	for i, bytes := range a.rows {
		if bytes == 0 {
			continue
		}
		r := &t.rows[i]
		count := bytes / r.key.bytes
		requested += count * r.shape.elements() * r.kind.bytes()
		name := r.key.place + ": " + r.key.what
		if r.key.place == "" {
			name = r.key.what
		}
		formula := r.shape.formula(r.kind)
		if count != 1 {
			formula = fmt.Sprintf("%d × (%s)", count, formula)
		}
		out = append(out, Term{name, bytes, formula, r.source})
	}
	slices.SortStableFunc(out, func(x, y Term) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return out, requested
}

func (t *tape) modules(a *account) []ModuleBytes {
	out := []ModuleBytes{}
	for i, bytes := range a.rows {
		if bytes == 0 {
			continue
		}
		place := t.rows[i].key.place
		at := slices.IndexFunc(out, func(m ModuleBytes) bool { return m.Module == place })
		if at < 0 {
			out = append(out, ModuleBytes{Module: place})
			at = len(out) - 1
		}
		out[at].Bytes += bytes
	}
	slices.SortStableFunc(out, func(x, y ModuleBytes) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return out
}

func (a *account) components() map[string]int64 {
	out := make(map[string]int64, parts)
	for p, bytes := range a.parts {
		out[partNames[p]] = bytes
	}
	return out
}
