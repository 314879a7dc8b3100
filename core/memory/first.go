package memory

import "slices"

// The first window of a run differs from the others: libraries take their workspaces, the optimizer makes its state. It is
// traced at one shape only, so its sizes are told by the births of later windows that they correspond to.

// birthKey is how births of two classes are recognized as the same.
type birthKey struct {
	phase      string
	op, module int32
	tag        int32
	size       uint64 // at the shape of the first window; 0 where classes of other shapes are compared
}

func (c *class) phaseOf(birth int) string {
	name := c.phases[0].name
	for _, p := range c.phases {
		if int(p.birth) <= birth {
			name = p.name
		}
	}
	return name
}

// keys gives the key of every birth, with sizes if given, by form.
func (c *class) keys(sizes []uint64) []birthKey {
	keys := make([]birthKey, len(c.op))
	for birth := range keys {
		keys[birth] = birthKey{phase: c.phaseOf(birth), op: c.op[birth], module: c.module[birth], tag: c.tag[birth]}
		if sizes != nil {
			keys[birth].size = sizes[c.form[birth]]
		}
	}
	return keys
}

// match gives for each birth of a its counterpart among those of b, in order, or -1.
func match(a, b []birthKey) []int32 {
	places := map[birthKey][]int32{}
	for i, key := range b {
		places[key] = append(places[key], int32(i))
	}
	found := make([]int32, len(a))
	for i, key := range a {
		found[i] = -1
		if left := places[key]; len(left) > 0 {
			found[i], places[key] = left[0], left[1:]
		}
	}
	return found
}

// borrow gives the births of a first window's class the forms of their counterparts in later windows.
func (c *class) borrow(later *class, vars variables) error {
	shape := c.members[0].shape
	v, err := vars.values(shape, nil)
	if err != nil {
		return err
	}
	counterparts := match(c.keys(sizesOf(c.forms, shape, v)), later.keys(sizesOf(later.forms, shape, v)))
	forms := map[int32]int32{} // of later, in c
	for birth, other := range counterparts {
		if other < 0 {
			continue
		}
		index, known := forms[later.form[other]]
		if !known {
			index = c.addForm(later.forms[later.form[other]])
			forms[later.form[other]] = index
		}
		c.form[birth] = index
	}
	c.like, c.counterparts = later, counterparts
	c.foreign = !later.isConstant() && strangers(counterparts, later) > max(fewStrangers, len(counterparts)/foreignShare)
	return nil
}

// A first window that differs from a later one by more births than these few, and by more than a twentieth, is not a later
// one with additions: its sizes cannot be told at other shapes.
const (
	fewStrangers = 8
	foreignShare = 20
)

// strangers counts the births that only one of two classes has.
func strangers(counterparts []int32, later *class) int {
	found := 0
	for _, other := range counterparts {
		if other >= 0 {
			found++
		}
	}
	return len(counterparts) + len(later.op) - 2*found
}

func sizesOf(forms []form, shape Shape, v []int64) []uint64 {
	sizes := make([]uint64, len(forms))
	for i := range forms {
		sizes[i] = forms[i].size(shape, v)
	}
	return sizes
}

// graft makes the class of a first window for shapes whose first window was not traced: the later windows' class with
// what the traced first window made to stay.
func graft(first, onto *class) *class {
	inserts := map[int32][]int32{} // births of first, by the birth of onto that they come before; the last comes after all
	anchors := match(first.keys(nil), onto.keys(nil))
	before := int32(len(onto.op))
	for birth := len(first.op) - 1; birth >= 0; birth-- {
		if first.counterparts[birth] < 0 && first.slot[birth] >= 0 && !first.fated(birth) {
			inserts[before] = slices.Insert(inserts[before], 0, int32(birth))
		} else if anchors[birth] >= 0 {
			before = anchors[birth]
		}
	}
	g := grafting{class: &class{kind: onto.kind, members: onto.members, fates: onto.fates, graftedOn: onto}, first: first, onto: onto}
	g.class.forms = slices.Clone(onto.forms)
	g.run(inserts)
	return g.class
}

// fated tells whether a birth that outlives its segment dies later, in any role.
func (c *class) fated(birth int) bool {
	for _, fates := range c.fates {
		for _, f := range fates {
			if slices.Contains(f.slots, c.slot[birth]) {
				return true
			}
		}
	}
	return false
}

type grafting struct {
	class       *class
	first, onto *class
	moved       []int32 // births of onto in the new class
	added       []int32 // births of the new class that come from first
}

func (g *grafting) run(inserts map[int32][]int32) {
	at := make([]int32, len(g.onto.events)+1) // where events of onto went
	for i, e := range g.onto.events {
		at[i] = int32(len(g.class.events))
		if e < 0 {
			g.class.events = append(g.class.events, ^g.moved[^e])
			continue
		}
		g.addAll(inserts[e])
		at[i] = int32(len(g.class.events))
		g.moved = append(g.moved, g.copyBirth(g.onto, e, g.onto.form[e], g.onto.part[e]))
	}
	g.addAll(inserts[int32(len(g.onto.op))])
	at[len(g.onto.events)] = int32(len(g.class.events))
	for _, c := range g.onto.carries {
		deaths := slices.Clone(c.deaths)
		for i := range deaths {
			deaths[i].pos = at[deaths[i].pos]
		}
		g.class.carries = append(g.class.carries, carry{c.link, c.from, deaths})
	}
	for _, p := range g.onto.phases {
		birth := int32(len(g.class.op))
		if int(p.birth) < len(g.moved) {
			birth = g.moved[p.birth]
		}
		g.class.phases = append(g.class.phases, phaseStart{birth, p.name})
	}
	g.class.phases[0].birth = 0
	for _, p := range g.onto.pads {
		p.copied, p.length, p.copy = g.moved[p.copied], g.moved[p.length], g.moved[p.copy]
		g.class.pads = append(g.class.pads, p)
	}
	g.class.placePads()
	g.setSlots()
}

func (g *grafting) addAll(births []int32) {
	for _, birth := range births {
		form := g.class.addForm(g.first.forms[g.first.form[birth]])
		g.added = append(g.added, g.copyBirth(g.first, birth, form, g.first.part[birth]))
	}
}

func (g *grafting) copyBirth(from *class, birth, form int32, part uint8) int32 {
	c, number := g.class, int32(len(g.class.op))
	c.events = append(c.events, number)
	c.op, c.module, c.tag = append(c.op, from.op[birth]), append(c.module, from.module[birth]), append(c.tag, from.tag[birth])
	c.form, c.part = append(c.form, form), append(c.part, part)
	c.columns = append(c.columns, from.columns[birth])
	return number
}

// setSlots keeps the slots of the later class, which other classes' deaths name, and puts the added births behind them.
func (g *grafting) setSlots() {
	c := g.class
	c.slot = make([]int32, len(c.op))
	for i := range c.slot {
		c.slot[i] = -1
	}
	for _, birth := range g.onto.outlive {
		c.outlive = append(c.outlive, g.moved[birth])
	}
	c.outlive = append(c.outlive, g.added...)
	for slot, birth := range c.outlive {
		c.slot[birth] = int32(slot)
	}
}
