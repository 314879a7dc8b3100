package template

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Live is the most that a segment holds at once of its own storages at a point, and how much of
// that may be off.
func (t *Template) Live(p formula.Point, rules reduction.Rules) (bytes, doubt uint64) {
	sizes, doubts := t.sizesAt(p, rules)
	var live, uncertain uint64
	for _, e := range t.Events {
		if e < 0 {
			f := t.Storages[^e].Formula
			live, uncertain = live-sizes[f], uncertain-doubts[f]
			continue
		}
		f := t.Storages[e].Formula
		live, uncertain = live+sizes[f], uncertain+doubts[f]
		bytes, doubt = max(bytes, live), max(doubt, uncertain)
	}
	return bytes, doubt
}

// sizesAt returns for each formula the bytes at a point, and by how many they may be off.
func (t *Template) sizesAt(p formula.Point, rules reduction.Rules) (sizes, doubts []uint64) {
	sizes, doubts = make([]uint64, len(t.Formulas)), make([]uint64, len(t.Formulas))
	for i := range t.Formulas {
		f := &t.Formulas[i]
		sizes[i] = rules.Bytes(f.Size(p), f.Unit)
		if f.Unit.Count == trace.Bytes {
			doubts[i] = f.Doubt(p)
		}
	}
	return sizes, doubts
}

// IsCertain reports whether every size is exact at every point, as far as the traced shapes show.
func (t *Template) IsCertain() bool {
	return !slices.ContainsFunc(t.Formulas, func(f formula.Formula) bool { return f.IsDoubtful() })
}

// ExactnessAt counts formulas as Exactness does, by what they are at one point: what was traced
// there is exact.
func (t *Template) ExactnessAt(p formula.Point) Exactness {
	var n Exactness
	for _, s := range t.Storages {
		switch f := &t.Formulas[s.Formula]; {
		case f.Inexact && (f.Varies || f.Doubt(p) > 0):
			n = n.Plus(Exactness{Inexact: 1, WorstResidual: f.Residual})
		case f.Ambiguous && f.Doubt(p) > 0:
			n = n.Plus(Exactness{Exact: 1, Ambiguous: 1})
		default:
			n.Exact++
		}
	}
	return n
}
