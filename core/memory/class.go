package memory

import "slices"

// class is the structure that segments share: the same births by the same operations, the same deaths between them.
// Segments of one class differ in sizes, and in which storages of earlier segments die in them.
type class struct {
	kind    string
	events  []int32 // e >= 0: birth number e; e < 0: birth -e-1 dies. Between two births the deaths are in order
	op      []int32 // of each birth, as in Segment
	module  []int32
	tag     []int32
	phases  []phaseStart
	part    []uint8 // of each birth: component, an index into Model.components
	columns []int64 // of each birth: those of a column sum, whose size counts rows; 0 where it is bytes; or countOnly
	pads    []pad
	slot    []int32 // of each birth: its place among those that outlive the segment, or -1
	outlive []int32 // the births that no event of the segment ends

	members []member
	carries []carry
	fates   [roleGenerate + 1][]fate

	forms []form  // distinct ones
	form  []int32 // of each birth
	like  *class  // the class of later windows whose shapes this one, of the first window, answers for too

	counterparts []int32 // with like: of each birth the one in like that it corresponds to, or -1
	foreign      bool    // with like: too little corresponds to play it at another shape
	graftedOn    *class  // the class that this one is made of, which stands for it where storages are named
}

// phaseStart is where a phase begins: before a birth, counted within the segment.
type phaseStart struct {
	birth int32
	name  string
}

// member is one segment of the trace that has the class's structure.
type member struct {
	segment int
	place   place
	shape   Shape
	shaped  bool
	sizes   []int64 // of its births: bytes, or rows of a column sum
}

// view is a segment as classes see it.
type view struct {
	class   class
	sizes   []int64
	carried []carried
}

// carried is the death of an earlier segment's storage, before event pos.
type carried struct {
	pos     int32
	storage int64
}

// canonical sorts the deaths between births and tells those of earlier segments apart. Their order says nothing: caches of
// the framework free in the order of addresses. first is the number of the segment's first storage.
func canonical(s *Segment, first int64) view {
	v := view{class: class{kind: s.Kind, op: s.Op, module: s.Module, tag: s.Tag}}
	v.class.events = make([]int32, 0, len(s.Events))
	v.sizes = make([]int64, 0, len(s.Op))
	start := 0 // of the deaths since the last birth
	for _, e := range s.Events {
		switch storage := -(e + 1); {
		case e >= 0:
			sortDeaths(v.class.events[start:])
			v.class.events = append(v.class.events, int32(len(v.sizes)))
			v.sizes = append(v.sizes, e)
			start = len(v.class.events)
		case storage >= first:
			v.class.events = append(v.class.events, ^int32(storage-first))
		default:
			v.carried = append(v.carried, carried{int32(start), storage})
		}
	}
	sortDeaths(v.class.events[start:])
	v.class.phases = phaseStarts(s)
	return v
}

// sortDeaths puts the storage that was born first first.
func sortDeaths(deaths []int32) {
	if len(deaths) > 1 {
		slices.SortFunc(deaths, func(a, b int32) int { return int(b) - int(a) })
	}
}

func phaseStarts(s *Segment) []phaseStart {
	starts := make([]phaseStart, len(s.Phases))
	births, next := int32(0), 0
	for i := 0; next < len(s.Phases); i++ {
		for ; next < len(s.Phases) && s.Phases[next].Event <= i; next++ {
			starts[next] = phaseStart{births, s.Phases[next].Name}
		}
		if i < len(s.Events) && s.Events[i] >= 0 {
			births++
		}
	}
	return starts
}

func (c *class) same(d *class) bool {
	return c.kind == d.kind && slices.Equal(c.events, d.events) && slices.Equal(c.op, d.op) &&
		slices.Equal(c.module, d.module) && slices.Equal(c.tag, d.tag) && slices.Equal(c.phases, d.phases)
}

func (c *class) hash() uint64 {
	h := uint64(14695981039346656037) // FNV-1a, by number instead of by byte
	for _, column := range [][]int32{c.events, c.op, c.module, c.tag} {
		for _, n := range column {
			h = (h ^ uint64(uint32(n))) * 1099511628211
		}
	}
	return h
}

// settle finds what outlives the segment and what each birth is for. tagParts gives the component of a tag, rules what
// operations say.
func (c *class) settle(tagParts []uint8, rules []rule) {
	c.findPads(rules)
	born, died := c.lives()
	c.slot, c.part, c.columns = make([]int32, len(c.op)), make([]uint8, len(c.op)), make([]int64, len(c.op))
	phase := 0
	for birth := range c.slot {
		for phase+1 < len(c.phases) && int(c.phases[phase+1].birth) <= birth {
			phase++
		}
		c.slot[birth], c.columns[birth] = -1, rules[c.op[birth]].columns
		if died[birth] < 0 {
			c.slot[birth] = int32(len(c.outlive))
			c.outlive = append(c.outlive, int32(birth))
		}
		c.part[birth] = tagParts[c.tag[birth]]
		if c.part[birth] == partUntagged {
			c.part[birth] = partTemporaries
			if c.phases[phase].name == "forward" && (died[birth] < 0 || died[birth] > c.phaseEnd(phase, born)) {
				c.part[birth] = partActivations
			}
		}
	}
}

// phaseEnd is the event with which the next phase begins.
func (c *class) phaseEnd(phase int, born []int32) int32 {
	if phase+1 == len(c.phases) || int(c.phases[phase+1].birth) == len(born) {
		return int32(len(c.events))
	}
	return born[c.phases[phase+1].birth]
}

// lives gives the events with which each birth begins and ends, -1 for no end.
func (c *class) lives() (born, died []int32) {
	born, died = make([]int32, len(c.op)), make([]int32, len(c.op))
	for i := range died {
		died[i] = -1
	}
	for at, e := range c.events {
		if e >= 0 {
			born[e] = int32(at)
		} else {
			died[^e] = int32(at)
		}
	}
	return born, died
}
