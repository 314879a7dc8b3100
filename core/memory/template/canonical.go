package template

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// canonical is a segment with its own storages numbered from 0, the frees between two allocations
// in order, and the frees of earlier segments' storages apart. The order of frees carries no
// information: caches of the framework free in the order of addresses.
type canonical struct {
	segment *trace.Segment
	events  []int32 // as Template.Events
	sizes   []int64
	phases  []Phase
	earlier []earlierFree
}

// earlierFree frees a storage of an earlier segment, before an event.
type earlierFree struct {
	event   int32
	storage int64 // its number in the trace
}

// canonicalOf sorts a segment's events; first is the number of its first storage.
func canonicalOf(s *trace.Segment, first int64) *canonical {
	c := &canonical{segment: s, events: make([]int32, 0, len(s.Events)),
		sizes: make([]int64, 0, len(s.Op)), phases: phasesOf(s)}
	start := 0 // of the frees since the last allocation
	for _, e := range s.Events {
		switch storage := -(e + 1); {
		case e >= 0:
			sortFrees(c.events[start:])
			c.events = append(c.events, int32(len(c.sizes)))
			c.sizes = append(c.sizes, e)
			start = len(c.events)
		case storage >= first:
			c.events = append(c.events, ^int32(storage-first))
		default:
			c.earlier = append(c.earlier, earlierFree{int32(start), storage})
		}
	}
	sortFrees(c.events[start:])
	return c
}

// sortFrees puts the storage that was allocated first first.
func sortFrees(frees []int32) {
	if len(frees) > 1 {
		slices.SortFunc(frees, func(a, b int32) int { return int(b) - int(a) })
	}
}

// phasesOf counts the storages before each phase.
func phasesOf(s *trace.Segment) []Phase {
	phases := make([]Phase, 0, len(s.Phases))
	storages, event := int32(0), 0
	for _, p := range s.Phases {
		for ; event < p.Event; event++ {
			if s.Events[event] >= 0 {
				storages++
			}
		}
		phases = append(phases, Phase{storages, p.Name})
	}
	return phases
}

// same reports whether two segments differ in nothing but sizes and in what they free of earlier
// segments.
func (c *canonical) same(d *canonical) bool {
	return c.segment.Kind == d.segment.Kind && slices.Equal(c.events, d.events) &&
		slices.Equal(c.segment.Op, d.segment.Op) &&
		slices.Equal(c.segment.Module, d.segment.Module) &&
		slices.Equal(c.segment.Tag, d.segment.Tag) && slices.Equal(c.phases, d.phases)
}

func (c *canonical) hash() uint64 {
	h := uint64(14695981039346656037) // FNV-1a, by number instead of by byte
	for _, column := range [][]int32{c.events, c.segment.Op, c.segment.Module, c.segment.Tag} {
		for _, n := range column {
			h = (h ^ uint64(uint32(n))) * 1099511628211
		}
	}
	return h
}
