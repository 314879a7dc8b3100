package template

import (
	"slices"
	"sort"
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
	b.sort()
	b.setInherited()
	if err := b.fit(); err != nil {
		return nil, fault.Wrap(err, fault.Corrupt, "record the trace again",
			"the lengths do not hold at a traced shape")
	}
	for _, s := range t.Segments {
		if s.Kind == trace.KindMicro || s.Kind == trace.KindIteration && b.Loop == "" {
			b.Loop = s.Kind
		}
	}
	b.State = b.stateBeforeEvaluation()
	return b.Set, b.borrowFormulas()
}

// sort returns each segment the template of its structure.
func (b *builder) sort() {
	names, tagComponents := components(b.trace.Tags)
	b.Components = names
	ops := trace.ParseOps(b.trace.Ops)
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
	segment = sort.Search(len(b.first), func(i int) bool { return b.first[i] > storage }) - 1
	return segment, int(storage - b.first[segment])
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
		state.allocate(b.Of[segment].Storages[number])
	}
	state.keepAll()
	state.Recordings = []Recording{{Sizes: sizes}}
	return state
}
