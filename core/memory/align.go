package memory

import "sort"

// alignment is the work of sorting a trace's segments into classes.
type alignment struct {
	segments []Segment
	where    []place
	views    []view
	of       []*class // of each segment
	classes  []*class // in the order of their first segments
	first    []int64  // number of each segment's first storage
	resident []bool   // by tag: parameters, buffers, the optimizer's state
}

// align sorts the segments of a checked trace into classes.
func align(t *Trace) *alignment {
	a := &alignment{segments: t.Segments, where: places(t.Segments)}
	for _, tag := range t.Tags {
		a.resident = append(a.resident, tag == "parameter" || tag == "buffer" || tag == "optimizer")
	}
	_, tagParts := components(t.Tags)
	rules := rulesOf(t.Ops)
	known := map[uint64][]*class{}
	births := int64(0)
	for i := range t.Segments {
		v := canonical(&t.Segments[i], births)
		c := find(known, &v.class)
		if len(c.members) == 0 {
			c.settle(tagParts, rules)
			a.classes = append(a.classes, c)
		}
		shape, shaped := t.Segments[i].shape()
		c.members = append(c.members, member{segment: i, place: a.where[i], shape: shape, shaped: shaped, sizes: v.sizes})
		a.of, a.views, a.first = append(a.of, c), append(a.views, v), append(a.first, births)
		births += int64(len(v.sizes))
	}
	a.settleCarries()
	return a
}

// find gives the known class of the same structure, or makes this one known.
func find(known map[uint64][]*class, c *class) *class {
	h := c.hash()
	for _, other := range known[h] {
		if other.same(c) {
			return other
		}
	}
	fresh := *c
	known[h] = append(known[h], &fresh)
	return &fresh
}

// home gives the segment in which a storage was born, and its number there.
func (a *alignment) home(storage int64) (segment, birth int) {
	segment = sort.Search(len(a.first), func(i int) bool { return a.first[i] > storage }) - 1
	return segment, int(storage - a.first[segment])
}
