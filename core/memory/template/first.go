package template

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/formula"
)

// firstWindow is how a template of the first window relates to later ones. Libraries take their
// workspaces in it, and the optimizer makes its state. It is traced at one shape only, so its
// formulas are those of the same storages in later windows.
type firstWindow struct {
	later     *Template // for whose shapes it answers, too; nil of another template
	matches   []int32   // of each storage the same one in later, or -1
	unrelated bool      // too little is the same for that
}

// A first window that differs from a later one by more storages than these few, and by more than a
// twentieth, is not a later one with additions: its sizes at other shapes are not known.
const (
	fewUnmatched   = 8
	unmatchedShare = 20
)

// borrowFormulas returns the templates of the first window the formulas of later ones.
func (b *builder) borrowFormulas() error {
	for i, t := range b.Of {
		p := b.Positions[i]
		onlyFirst := !slices.ContainsFunc(t.Recordings, func(r Recording) bool {
			return r.Position.Window != 0
		})
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

// borrow returns storages the formulas of the same ones in later windows.
func (t *Template) borrow(later *Template, vars formula.Variables) error {
	point, err := vars.At(t.Recordings[0].Shape)
	if err != nil {
		return err
	}
	matches := match(t.identities(&point), later.identities(&point))
	borrowed := map[int32]int32{} // formulas of later, in t
	unmatched := len(matches) + len(later.Storages)
	for i, other := range matches {
		if other < 0 {
			continue
		}
		unmatched -= 2
		index := later.Storages[other].Formula
		if _, ok := borrowed[index]; !ok {
			borrowed[index] = t.addFormula(later.Formulas[index])
		}
		t.Storages[i].Formula = borrowed[index]
	}
	t.first = firstWindow{later, matches, !later.isConstant() &&
		unmatched > max(fewUnmatched, len(matches)/unmatchedShare)}
	return nil
}

// identity is how storages of two templates are recognized as the same.
type identity struct {
	phase           string
	op, module, tag int32
	// at the shape of the first window; 0 where templates of other shapes are compared
	size uint64
}

// identities of all storages, with their sizes at a point if there is one.
func (t *Template) identities(point *formula.Point) []identity {
	all := make([]identity, len(t.Storages))
	for i, s := range t.Storages {
		all[i] = identity{phase: t.PhaseOf(int32(i)), op: s.Op, module: s.Module, tag: s.Tag}
		if point != nil {
			all[i].size = t.Formulas[s.Formula].Size(*point)
		}
	}
	return all
}

// match returns for each of a the same one of b, in order, or -1.
func match(a, b []identity) []int32 {
	places := map[identity][]int32{}
	for i, id := range b {
		places[id] = append(places[id], int32(i))
	}
	matches := make([]int32, len(a))
	for i, id := range a {
		matches[i] = -1
		if unused := places[id]; len(unused) > 0 {
			matches[i], places[id] = unused[0], unused[1:]
		}
	}
	return matches
}
