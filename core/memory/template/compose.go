package template

import "slices"

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

// keepAll makes every storage a survivor.
func (t *Template) keepAll() {
	for i := range t.Storages {
		t.Survivors = append(t.Survivors, int32(i))
	}
	t.numberSurvivors()
}

func (t *Template) numberSurvivors() {
	for number, storage := range t.Survivors {
		t.Storages[storage].Survivor = int32(number)
	}
}
