package memory

import "slices"

// carry is a group of deaths in a class's segments: of storages that an earlier segment of a class left alive.
type carry struct {
	link   link
	from   *class
	deaths []deathAt
}

// deathAt ends the storage in a slot of the earlier segment, before an event of this one.
type deathAt struct {
	pos  int32
	slot int32
}

// fate is when storages that outlive a segment die: in a later segment of a kind, so many windows on, or so many segments
// on. It is the way out when a run brings classes together that never met in the trace.
type fate struct {
	kind    string
	windows int
	back    int
	slots   []int32
}

// A storage that outlives its own window by more than farthest ones counts as there to stay: a later death is the end of
// the recording, or nothing that repeats. Likewise within a window, by micro-batches.
const (
	farthest      = 2
	farthestMicro = 3
)

func (l link) far() bool { return l.windows > farthest || l.back > farthestMicro }

// settleCarries sorts the deaths that cross segments into the classes.
func (a *alignment) settleCarries() {
	type slotKey struct {
		class *class
		role  role
		slot  int32
	}
	known := map[slotKey]bool{}
	for i, v := range a.views {
		here := a.where[i]
		groups := a.groups(i)
		for _, death := range v.carried {
			home, birth := a.home(death.storage)
			from, there := a.of[home], a.where[home]
			l := here.linkTo(there)
			if l.far() || a.isTeardown(i, death, home, birth) {
				continue
			}
			slot := from.slot[birth]
			group := groupOf(groups, l, from)
			group.deaths = append(group.deaths, deathAt{death.pos, slot})
			if key := (slotKey{from, there.role, slot}); there.role != roleLoad && !known[key] {
				known[key] = true
				from.addFate(there.role, fate{kind: here.role.kind(), windows: l.windows, back: l.back}, slot)
			}
		}
		a.of[i].addCarries(groups)
	}
	for _, c := range a.classes { // those without a death have done their duty: a run looks for the others at every segment
		c.carries = slices.DeleteFunc(c.carries, func(g carry) bool { return len(g.deaths) == 0 })
	}
}

// groups lists the earlier segments that a segment may end storages of: that it ends none counts too.
func (a *alignment) groups(segment int) []carry {
	var groups []carry
	for i := segment - 1; i >= 0; i-- {
		l := a.where[segment].linkTo(a.where[i])
		if l.far() {
			continue // but loading, the first of all, is within reach
		}
		if groupOf(groups, l, a.of[i]) == nil {
			groups = append(groups, carry{link: l, from: a.of[i]})
		}
	}
	return groups
}

// isTeardown tells the end of the recording from the end of a step: behind the last birth of all, storages of earlier
// windows die, and those of model and optimizer.
func (a *alignment) isTeardown(segment int, death carried, home, birth int) bool {
	if segment != len(a.views)-1 || int(death.pos) <= a.of[segment].lastBirth() {
		return false
	}
	return a.where[home].window != a.where[segment].window || a.resident[a.of[home].tag[birth]]
}

func (c *class) lastBirth() int {
	for at := len(c.events) - 1; at >= 0; at-- {
		if c.events[at] >= 0 {
			return at
		}
	}
	return -1
}

// addCarries keeps what is new: the first segment that meets another decides, as later ones may be followed by something
// else than training.
func (c *class) addCarries(groups []carry) {
	for _, g := range groups {
		if groupOf(c.carries, g.link, g.from) == nil {
			c.carries = append(c.carries, g)
		}
	}
}

func groupOf(groups []carry, l link, from *class) *carry {
	for i := range groups {
		if groups[i].link == l && groups[i].from == from {
			return &groups[i]
		}
	}
	return nil
}

func (c *class) addFate(r role, f fate, slot int32) {
	for i := range c.fates[r] {
		known := &c.fates[r][i]
		if known.kind == f.kind && known.windows == f.windows && known.back == f.back {
			known.slots = append(known.slots, slot)
			return
		}
	}
	f.slots = []int32{slot}
	c.fates[r] = append(c.fates[r], f)
}
