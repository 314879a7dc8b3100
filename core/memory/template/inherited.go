package template

import "slices"

// Inherited are the storages of an earlier segment that a segment frees.
type Inherited struct {
	Distance Distance  // to the earlier segment
	From     *Template // of the earlier segment
	Frees    []Free
}

// Free is of a storage of an earlier segment, before an event of this one.
type Free struct {
	Event    int32
	Survivor int32 // of the earlier segment's template
}

// Expiry is when survivors are freed at the latest: in a later segment of a kind, so many windows
// or segments on. It applies where a run combines templates that were never adjacent in the trace.
type Expiry struct {
	Survivors []int32
	occasion
}

type occasion struct {
	kind              string
	windows, segments int
}

// IsIn reports whether survivors of a segment at one position expire in a segment at another.
func (e *Expiry) IsIn(from, current Position) bool {
	if e.kind != current.Role.Kind() {
		return false
	}
	if e.segments > 0 {
		return from.Window == current.Window && current.Order-from.Order == e.segments
	}
	return current.Window-from.Window == e.windows
}

// Expiries are those of a segment's survivors. A micro-batch between the first and the last may not
// have been traced.
func (t *Template) Expiries(r Role) []Expiry {
	if len(t.expiries[r]) == 0 && r == Middle {
		r = Last
	}
	return t.expiries[r]
}

// setInherited sorts the frees across segments into the templates: where exactly they were seen,
// and for each survivor where it was first seen to be freed.
func (b *builder) setInherited() {
	type key struct {
		template *Template
		role     Role
		survivor int32
	}
	expires := map[key]bool{}
	for i, c := range b.segments {
		current := b.Positions[i]
		groups := b.earlierSegments(i)
		for _, free := range c.earlier {
			segment, number := b.home(free.storage)
			from, there := b.Of[segment], b.Positions[segment]
			d := current.distanceTo(there)
			if d.tooFar() || b.isTeardown(i, free, segment, number) {
				continue
			}
			survivor := from.Storages[number].Survivor
			group := find(groups, d, from)
			group.Frees = append(group.Frees, Free{free.event, survivor})
			if k := (key{from, there.Role, survivor}); there.Role != Load && !expires[k] {
				expires[k] = true
				from.addExpiry(there.Role, occasion{current.Role.Kind(), d.Windows, d.Segments},
					survivor)
			}
		}
		b.Of[i].addInherited(groups)
	}
	for _, t := range b.Templates {
		t.meetOwn(b.Templates)
	}
	for _, t := range b.Templates {
		// empty ones have done their duty in addInherited: a run looks for the others at every
		// segment
		t.Inherited = slices.DeleteFunc(t.Inherited, func(g Inherited) bool {
			return len(g.Frees) == 0
		})
	}
}

// meetOwn adds what a segment frees of earlier ones of its own shape, where the trace has it behind
// other shapes alone: the same storages at the same events.
func (t *Template) meetOwn(all []*Template) {
	for _, g := range slices.Clone(t.Inherited) {
		for _, own := range all {
			if g.Distance.Windows > 0 && own.Kind == g.From.Kind &&
				find(t.Inherited, g.Distance, own) == nil && t.sharesShape(own) {
				t.Inherited = append(t.Inherited, g.forTemplate(own))
			}
		}
	}
}

// forTemplate returns the same frees of the same storages of another template.
func (g Inherited) forTemplate(own *Template) Inherited {
	same := match(g.From.identities(nil), own.identities(nil))
	inherited := Inherited{Distance: g.Distance, From: own}
	for _, f := range g.Frees {
		if i := same[g.From.Survivors[f.Survivor]]; i >= 0 && own.Storages[i].Survivor >= 0 {
			inherited.Frees = append(inherited.Frees, Free{f.Event, own.Storages[i].Survivor})
		}
	}
	return inherited
}

func (t *Template) sharesShape(other *Template) bool {
	return slices.ContainsFunc(t.Recordings, func(r Recording) bool {
		return r.HasShape && other.traced(r.Shape)
	})
}

// earlierSegments lists those that a segment may free storages of: that it frees none counts too.
func (b *builder) earlierSegments(segment int) []Inherited {
	var groups []Inherited
	for i := segment - 1; i >= 0; i-- {
		d := b.Positions[segment].distanceTo(b.Positions[i])
		if d.tooFar() {
			continue // but loading, the first of all, is within reach
		}
		if find(groups, d, b.Of[i]) == nil {
			groups = append(groups, Inherited{Distance: d, From: b.Of[i]})
		}
	}
	return groups
}

// isTeardown distinguishes the end of the recording from the end of a step: after the last
// allocation of all, storages of earlier windows are freed, and those of model and optimizer.
func (b *builder) isTeardown(segment int, free earlierFree, home, number int) bool {
	allocates := func(e int32) bool { return e >= 0 }
	if segment != len(b.segments)-1 ||
		slices.ContainsFunc(b.Of[segment].Events[free.event:], allocates) {
		return false
	}
	tag := b.trace.Tags[b.Of[home].Storages[number].Tag]
	return b.Positions[home].Window != b.Positions[segment].Window || tag == "parameter" ||
		tag == "buffer" || tag == "optimizer"
}

// addInherited keeps what is new: the first segment that meets another decides, as later ones may
// be followed by something else than training.
func (t *Template) addInherited(groups []Inherited) {
	for _, g := range groups {
		if find(t.Inherited, g.Distance, g.From) == nil {
			t.Inherited = append(t.Inherited, g)
		}
	}
}

func find(groups []Inherited, d Distance, from *Template) *Inherited {
	for i := range groups {
		if groups[i].Distance == d && groups[i].From == from {
			return &groups[i]
		}
	}
	return nil
}

func (t *Template) addExpiry(r Role, when occasion, survivor int32) {
	i := slices.IndexFunc(t.expiries[r], func(e Expiry) bool { return e.occasion == when })
	if i < 0 {
		i = len(t.expiries[r])
		t.expiries[r] = append(t.expiries[r], Expiry{occasion: when})
	}
	e := &t.expiries[r][i]
	e.Survivors = append(e.Survivors, survivor)
}
