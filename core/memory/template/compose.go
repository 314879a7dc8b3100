package template

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/formula"
)

// compose makes the template of a first window at shapes at which it was not traced: the one of
// later windows, with the storages that the traced first window left for good.
func compose(first, base *Template) *Template {
	c := composer{Template: &Template{Kind: base.Kind, Recordings: base.Recordings,
		Formulas: slices.Clone(base.Formulas), expiries: base.expiries, base: base},
		first: first, additions: additions(first, base)}
	events := c.copyEvents()
	if n := base.Inputs; n > 0 && c.moved[n-1] == n-1 { // nothing comes between them
		c.Inputs = n
	}
	c.copyInherited(events)
	c.copyPhases()
	for _, p := range base.Pads {
		p.Copied, p.Length, p.Copy = c.moved[p.Copied], c.moved[p.Length], c.moved[p.Copy]
		c.Pads = append(c.Pads, p)
	}
	c.placePads()
	c.setSurvivors()
	return c.Template
}

type composer struct {
	*Template
	first *Template
	// storages of first, by the storage of base that they come before; the last come after all
	additions map[int32][]int32
	moved     []int32 // storages of base in the new template
	added     []int32 // storages of the new template that come from first
}

// additions are the storages of a first window that stay and that later windows do not have, where
// to put them in base.
func additions(first, base *Template) map[int32][]int32 {
	added := map[int32][]int32{}
	anchors := match(first.identities(nil), base.identities(nil))
	before := int32(len(base.Storages))
	for i := len(first.Storages) - 1; i >= 0; i-- {
		if first.first.matches[i] < 0 && first.staysForGood(first.Storages[i].Survivor) {
			added[before] = slices.Insert(added[before], 0, int32(i))
		} else if anchors[i] >= 0 {
			before = anchors[i]
		}
	}
	return added
}

// staysForGood reports whether a survivor expires in no role.
func (t *Template) staysForGood(survivor int32) bool {
	if survivor < 0 {
		return false
	}
	for _, expiries := range t.expiries {
		if slices.ContainsFunc(expiries, func(e Expiry) bool {
			return slices.Contains(e.Survivors, survivor)
		}) {
			return false
		}
	}
	return true
}

// copyEvents copies the events of base with the additions between them, and returns the new place
// of each and of the end.
func (c *composer) copyEvents() (places []int32) {
	for _, e := range c.base.Events {
		if e < 0 {
			places = append(places, int32(len(c.Events)))
			c.Events = append(c.Events, ^c.moved[^e])
			continue
		}
		c.add(c.additions[e])
		places = append(places, int32(len(c.Events)))
		c.moved = append(c.moved, c.allocate(c.base.Storages[e]))
	}
	c.add(c.additions[int32(len(c.base.Storages))])
	return append(places, int32(len(c.Events)))
}

func (c *composer) add(storages []int32) {
	for _, i := range storages {
		s := c.first.Storages[i]
		s.Formula = c.addFormula(c.first.Formulas[s.Formula])
		c.added = append(c.added, c.allocate(s))
	}
}

// allocate appends a storage and its event.
func (t *Template) allocate(s Storage) int32 {
	number := int32(len(t.Storages))
	t.Storages, t.Events = append(t.Storages, s), append(t.Events, number)
	return number
}

func (c *composer) copyInherited(places []int32) {
	for _, g := range c.base.Inherited {
		g.Frees = slices.Clone(g.Frees)
		for i := range g.Frees {
			g.Frees[i].Event = places[g.Frees[i].Event]
		}
		c.Inherited = append(c.Inherited, g)
	}
}

func (c *composer) copyPhases() {
	for _, p := range c.base.Phases {
		storage := int32(len(c.Storages))
		if int(p.Storage) < len(c.moved) {
			storage = c.moved[p.Storage]
		}
		c.Phases = append(c.Phases, Phase{storage, p.Name})
	}
	c.Phases[0].Storage = 0
}

// setSurvivors keeps the order of the survivors of base, by which other templates free them, and
// puts the added ones behind.
func (c *composer) setSurvivors() {
	for i := range c.Storages {
		c.Storages[i].Survivor = -1
	}
	for _, storage := range c.base.Survivors {
		c.Survivors = append(c.Survivors, c.moved[storage])
	}
	c.Survivors = append(c.Survivors, c.added...)
	c.numberSurvivors()
}

func (t *Template) numberSurvivors() {
	for number, storage := range t.Survivors {
		t.Storages[storage].Survivor = int32(number)
	}
}

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
func (b *builder) borrowFormulas() {
	for i, t := range b.Of {
		p := b.Positions[i]
		onlyFirst := !slices.ContainsFunc(t.Recordings, func(r Recording) bool {
			return r.Position.Window != 0
		})
		if !p.Role.trains() || !onlyFirst || t.first.later != nil || !t.HasShapes() {
			continue
		}
		later, err := b.later(p, t.Recordings[0].Shape)
		if err == nil && later != t && later.HasShapes() { // there is something to borrow from
			t.borrow(later, b.Variables)
		}
	}
}

// borrow returns storages the formulas of the same ones in later windows.
func (t *Template) borrow(later *Template, vars formula.Variables) {
	point := vars.AtTraced(t.Recordings[0].Shape)
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

// Pad is a padded copy that is not made where the length is a multiple: then its source is kept
// instead.
type Pad struct {
	Multiple             int64
	Copied, Length, Copy int32 // storages

	CopiedFreed      int32 // event; -1: it survives
	allocated, freed int32 // events of the copy, likewise
}

// placePads finds the events of padded copies. A copy that outlives the segment, while its source
// does not, stays one.
func (t *Template) placePads() {
	if len(t.Pads) == 0 {
		return
	}
	allocated, freed := t.lifetimes()
	for i := range t.Pads {
		p := &t.Pads[i]
		p.allocated, p.freed, p.CopiedFreed = allocated[p.Copy], freed[p.Copy], freed[p.Copied]
	}
	t.Pads = slices.DeleteFunc(t.Pads, func(p Pad) bool {
		return p.freed < 0 && p.CopiedFreed >= 0
	})
}

// LeaveOut takes the copy out of a segment's events: its allocation becomes nothing, and its source
// is freed when the last of both would have been. The events keep their places. freed is the event
// that frees the source so far, -1 for none; it returns the one that does now.
func (p *Pad) LeaveOut(events []int32, freed int32) int32 {
	events[p.allocated] = ^p.Copy // frees nothing
	if freed >= 0 && p.freed > freed {
		events[freed], events[p.freed] = ^p.Copy, ^p.Copied
		return p.freed
	}
	return freed
}
