package template

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/formula"
)

// firstWindow is how a template of the first window relates to later ones. Libraries take their workspaces in it, and the
// optimizer makes its state. It is traced at one shape only, so its formulas are those of the same storages in later windows.
type firstWindow struct {
	later     *Template // for whose shapes it answers, too; nil of another template
	matches   []int32   // of each storage the same one in later, or -1
	unrelated bool      // too little is the same for that
}

// A first window that differs from a later one by more storages than these few, and by more than a twentieth, is not a later
// one with additions: its sizes at other shapes are not known.
const (
	fewUnmatched   = 8
	unmatchedShare = 20
)

// borrowFormulas gives the templates of the first window the formulas of later ones.
func (b *builder) borrowFormulas() error {
	for i, t := range b.Of {
		p := b.Positions[i]
		onlyFirst := !slices.ContainsFunc(t.Recordings, func(r Recording) bool { return r.Position.Window != 0 })
		if !p.Role.trains() || !onlyFirst || t.first.later != nil || !t.HasShapes() {
			continue
		}
		later, err := b.later(p, t.Recordings[0].Shape)
		if err != nil || later == t || !later.HasShapes() {
			continue // nothing to borrow from
		}
		if err := t.borrow(later, b.Variables); err != nil {
			return err
		}
	}
	return nil
}

// borrow gives storages the formulas of the same ones in later windows.
func (t *Template) borrow(later *Template, vars formula.Variables) error {
	point, err := vars.At(t.Recordings[0].Shape)
	if err != nil {
		return err
	}
	matches := match(t.identities(&point), later.identities(&point))
	taken := map[int32]int32{} // formulas of later, in t
	unmatched := len(matches) + len(later.Storages)
	for i, other := range matches {
		if other < 0 {
			continue
		}
		unmatched -= 2
		index := later.Storages[other].Formula
		if _, known := taken[index]; !known {
			taken[index] = t.addFormula(later.Formulas[index])
		}
		t.Storages[i].Formula = taken[index]
	}
	t.first = firstWindow{later, matches, !later.isConstant() && unmatched > max(fewUnmatched, len(matches)/unmatchedShare)}
	return nil
}

// identity is how storages of two templates are recognized as the same.
type identity struct {
	phase           string
	op, module, tag int32
	size            uint64 // at the shape of the first window; 0 where templates of other shapes are compared
}

// identities of all storages, with their sizes at a point if there is one.
func (t *Template) identities(at *formula.Point) []identity {
	all := make([]identity, len(t.Storages))
	for i, s := range t.Storages {
		all[i] = identity{phase: t.PhaseOf(int32(i)), op: s.Op, module: s.Module, tag: s.Tag}
		if at != nil {
			all[i].size = t.Formulas[s.Formula].Size(*at)
		}
	}
	return all
}

// match gives for each of a the same one of b, in order, or -1.
func match(a, b []identity) []int32 {
	places := map[identity][]int32{}
	for i, id := range b {
		places[id] = append(places[id], int32(i))
	}
	found := make([]int32, len(a))
	for i, id := range a {
		found[i] = -1
		if left := places[id]; len(left) > 0 {
			found[i], places[id] = left[0], left[1:]
		}
	}
	return found
}
