package template

import (
	"slices"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Set are the templates of a trace. It may be used by several goroutines at once.
type Set struct {
	Variables  formula.Variables
	Components []string    // names
	Templates  []*Template // in the order of their first segments
	Of         []*Template // the template of each segment of the trace
	Positions  []Position  // the position of each segment of the trace
	// trace.KindMicro or trace.KindIteration: what training windows are made of; "" without any
	Loop string
	// what an evaluation finds on the device, as one segment; nil without an evaluation
	State    *Template
	composed sync.Map // [2]*Template, a first and a later window's -> *Template, see For
}

// builder makes the Set of a trace.
type builder struct {
	*Set
	trace    *trace.Trace
	segments []*canonical
	first    []int64 // the number in the trace of each segment's first storage
}

// New finds the templates of a checked trace.
func New(t *trace.Trace) (*Set, error) {
	b := builder{Set: &Set{Variables: t.Lengths, Positions: positions(t.Segments)}, trace: t}
	for _, s := range t.Segments {
		if shape, has := s.Shape(); has {
			if _, err := b.Variables.At(shape); err != nil {
				return nil, fault.Wrap(err, fault.Corrupt, "record the trace again",
					"the lengths do not hold at a traced shape")
			}
		}
		if s.Kind == trace.KindMicro || s.Kind == trace.KindIteration && b.Loop == "" {
			b.Loop = s.Kind
		}
	}
	b.sort()
	b.setInherited()
	b.State = b.stateBeforeEvaluation()
	if err := b.fit(); err != nil {
		return nil, err
	}
	b.borrowFormulas()
	return b.Set, nil
}

// sort assigns each segment to the template of its structure, which it makes for the first one.
func (b *builder) sort() {
	names, ofTag := components(b.trace.Tags)
	b.Components = names
	ops, _ := trace.ParseOps(b.trace.Ops) // without an error: they were checked with the trace
	byHash := map[uint64][]*Template{}
	storages := int64(0)
	for i := range b.trace.Segments {
		c := canonicalOf(&b.trace.Segments[i], storages)
		h := c.hash()
		place := slices.IndexFunc(byHash[h], func(t *Template) bool { return t.structure.same(c) })
		if place < 0 {
			place = len(byHash[h])
			byHash[h] = append(byHash[h], newTemplate(c, ofTag, ops))
			byHash[h][place].countInputs(slices.Index(names, inputs))
			b.Templates = append(b.Templates, byHash[h][place])
		}
		t := byHash[h][place]
		shape, has := c.segment.Shape()
		t.Recordings = append(t.Recordings, Recording{Segment: i, Position: b.Positions[i],
			Shape: shape, HasShape: has, Sizes: c.sizes})
		b.Of, b.segments, b.first =
			append(b.Of, t), append(b.segments, c), append(b.first, storages)
		storages += int64(len(c.sizes))
	}
}

// home returns the segment that allocated a storage of the trace, and the storage's number in it.
func (b *builder) home(storage int64) (segment, number int) {
	next, _ := slices.BinarySearch(b.first, storage+1)
	return next - 1, int(storage - b.first[next-1])
}

// stateBeforeEvaluation makes a template that allocates what the first evaluation finds on the
// device: the model, the optimizer's state, workspaces. Their sizes are those of the trace. It is
// nil for a trace without an evaluation.
func (b *builder) stateBeforeEvaluation() *Template {
	alive := []bool{} // by the number of the storage in the trace
	for _, s := range b.trace.Segments {
		if s.Kind == trace.KindEvaluate || s.Kind == trace.KindGenerate {
			return b.stateOf(alive)
		}
		for _, e := range s.Events {
			if e >= 0 {
				alive = append(alive, true)
			} else {
				alive[-(e + 1)] = false
			}
		}
	}
	return nil
}

// stateOf makes the template that allocates the storages which are alive and frees none.
func (b *builder) stateOf(alive []bool) *Template {
	state, sizes := &Template{Kind: trace.KindLoad, Phases: []Phase{{0, "load"}}}, []int64{}
	for storage, lives := range alive {
		if !lives {
			continue
		}
		segment, number := b.home(int64(storage))
		sizes = append(sizes, b.segments[segment].sizes[number])
		kept := state.allocate(b.Of[segment].Storages[number])
		state.Survivors = append(state.Survivors, kept)
	}
	state.numberSurvivors()
	state.Recordings = []Recording{{Sizes: sizes}}
	return state
}

// canonical is a segment in the form in which segments are compared: its own storages are numbered
// from 0, the frees between two allocations are sorted, and the frees of earlier segments' storages
// are kept apart. The order of frees carries no information: caches of the framework free in the
// order of addresses.
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

// canonicalOf brings a segment into that form; first is the number of its first storage in the
// trace.
func canonicalOf(s *trace.Segment, first int64) *canonical {
	c := &canonical{segment: s, events: make([]int32, 0, len(s.Events)),
		sizes: make([]int64, 0, len(s.Op)), phases: phasesOf(s)}
	start := 0 // where in c.events the frees since the last allocation begin
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

// sortFrees sorts frees, which are ^storage, by the order in which the storages were allocated.
func sortFrees(frees []int32) {
	if len(frees) > 1 {
		slices.SortFunc(frees, func(a, b int32) int { return int(b) - int(a) })
	}
}

// phasesOf returns the phases of a segment, each with its first storage in place of its first
// event.
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

// hash is equal for segments that are the same.
func (c *canonical) hash() uint64 {
	h := uint64(14695981039346656037) // FNV-1a, by number instead of by byte
	for _, column := range [][]int32{c.events, c.segment.Op, c.segment.Module, c.segment.Tag} {
		for _, n := range column {
			h = (h ^ uint64(uint32(n))) * 1099511628211
		}
	}
	return h
}
