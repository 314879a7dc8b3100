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
	Of         []*Template // of each segment
	Positions  []Position  // likewise
	// trace.KindMicro or trace.KindIteration: what training windows are made of; "" without any
	Loop string
	// what an evaluation finds on the device, as one segment; nil without an evaluation
	State    *Template
	composed sync.Map // [2]*Template -> *Template
}

// builder sorts the segments of a trace.
type builder struct {
	*Set
	trace    *trace.Trace
	segments []*canonical
	first    []int64 // number of each segment's first storage
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

// sort returns each segment the template of its structure.
func (b *builder) sort() {
	names, tagComponents := components(b.trace.Tags)
	b.Components = names
	ops, _ := trace.ParseOps(b.trace.Ops) // which were checked
	byHash := map[uint64][]*Template{}
	storages := int64(0)
	for i := range b.trace.Segments {
		c := canonicalOf(&b.trace.Segments[i], storages)
		h := c.hash()
		place := slices.IndexFunc(byHash[h], func(t *Template) bool { return t.structure.same(c) })
		if place < 0 {
			place = len(byHash[h])
			byHash[h] = append(byHash[h], newTemplate(c, tagComponents, ops))
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

// home returns the segment that allocated a storage of the trace, and its number there.
func (b *builder) home(storage int64) (segment, number int) {
	next, _ := slices.BinarySearch(b.first, storage+1)
	return next - 1, int(storage - b.first[next-1])
}

// stateBeforeEvaluation gathers what the first evaluation finds on the device: the model, the
// optimizer's state, workspaces. Their sizes are those of the trace. It is nil for a trace without
// an evaluation.
func (b *builder) stateBeforeEvaluation() *Template {
	alive := []bool{} // by storage
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
