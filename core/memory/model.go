package memory

import (
	"math"
	"slices"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Model is a trace made ready for questions. It may be used by several goroutines at once.
type Model struct {
	about   map[string]any
	ops     []string
	modules []string
	parts   []string // names of components
	vars    variables
	classes []*class
	of      []*class // of each segment of the trace
	where   []place  // likewise
	loop    string   // KindMicro or KindIteration: what training windows are made of; "" without any
	state   *class   // what an evaluation finds on the device, as one segment; nil without an evaluation
	grafts  sync.Map // [2]*class -> *class
}

// New fits a checked trace (of ReadFile or Decode).
func New(t *Trace) (*Model, error) {
	a := align(t)
	m := &Model{about: t.About, ops: t.Ops, modules: t.Modules, vars: variables{t.Lengths}, classes: a.classes, of: a.of, where: a.where}
	m.parts, _ = components(t.Tags)
	if err := fitAll(m.classes, m.vars); err != nil {
		return nil, fault.Wrap(err, fault.Corrupt, recordAgain, "the ladder of lengths does not hold at a traced shape")
	}
	for _, s := range t.Segments {
		if s.Kind == KindMicro || s.Kind == KindIteration && m.loop == "" {
			m.loop = s.Kind
		}
	}
	m.state = a.stateBetween()
	return m, m.borrowForms()
}

// borrowForms gives the classes of the first window the formulas of the later ones.
func (m *Model) borrowForms() error {
	for i, c := range m.of {
		at := m.where[i]
		onlyFirst := !slices.ContainsFunc(c.members, func(x member) bool { return x.place.window != 0 })
		if !m.trains(at.role) || !onlyFirst || c.like != nil || !c.shaped() {
			continue
		}
		later, err := m.later(at, c.members[0].shape)
		if err != nil || later == c || !later.shaped() {
			continue // nothing to borrow from
		}
		if err := c.borrow(later, m.vars); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) trains(r role) bool {
	switch r.kind() {
	case KindMicro, KindAccumulate, KindStep, KindIteration:
		return true
	}
	return false
}

// slotOf makes the places alike that share a class: every accumulated micro-batch from the second on.
func (p place) slotOf() int {
	if p.role.kind() == KindAccumulate {
		return min(p.order, 2)
	}
	return 0
}

// at lists the classes of the trace's segments in such a place, in the first window or in later ones.
func (m *Model) at(p place, first bool) []*class {
	var found []*class
	for i, where := range m.where {
		if where.role.kind() == p.role.kind() && where.slotOf() == p.slotOf() && (where.window == 0) == first && !slices.Contains(found, m.of[i]) {
			found = append(found, m.of[i])
		}
	}
	return found
}

// later gives the class of a segment in any window but the first. A trace of one window has only that.
func (m *Model) later(p place, shape Shape) (*class, error) {
	known := m.at(p, false)
	if len(known) == 0 {
		known = m.at(p, true)
	}
	if len(known) == 0 && p.slotOf() == 2 {
		p.order = 1
		return m.later(p, shape)
	}
	var best *class
	for _, c := range known {
		if c.answers(shape) && (best == nil || c.suits(shape) > best.suits(shape)) {
			best = c
		}
	}
	if best == nil {
		return nil, cannotAnswer(p.role.kind(), known, shape)
	}
	return best, nil
}

// traces tells whether a segment of the class has the shape, or none has one.
func (c *class) traces(s Shape) bool {
	return slices.ContainsFunc(c.members, func(m member) bool { return !m.shaped || m.shape == s })
}

// suits orders classes that answer for a shape: one that was traced at it, else the one with more shapes.
func (c *class) suits(s Shape) int {
	if c.traces(s) {
		return math.MaxInt
	}
	shapes, _ := c.shapes()
	return len(shapes)
}

// class gives the class of a segment in a place. A first window whose shapes were not traced is put together from later
// windows and from what the traced first one made to stay.
func (m *Model) class(p place, shape Shape) (*class, error) {
	later, err := m.later(p, shape)
	if err != nil || p.window != 0 || !m.trains(p.role) {
		return later, err
	}
	firsts := m.at(p, true)
	for _, c := range firsts {
		if c == later || c.like == later && !c.foreign || c.traces(shape) {
			return c, nil
		}
	}
	if len(firsts) == 0 || firsts[0].like == nil {
		return later, nil
	}
	return m.graft(firsts[0], later), nil
}

func (m *Model) graft(first, later *class) *class {
	key := [2]*class{first, later}
	if known, ok := m.grafts.Load(key); ok {
		return known.(*class)
	}
	made, _ := m.grafts.LoadOrStore(key, graft(first, later))
	return made.(*class)
}

// accumulation is how many micro-batches a traced window has.
func (m *Model) accumulation() int {
	n := 1
	for _, p := range m.where {
		if p.role.kind() == KindAccumulate {
			n = max(n, p.order+1)
		}
	}
	return n
}

// stateBetween gathers what the first evaluation finds on the device: the model, the optimizer's state, workspaces. Their
// sizes are those of the trace. It is nil for a trace without an evaluation.
func (a *alignment) stateBetween() *class {
	alive := []bool{} // by storage
	for i := range a.segments {
		if kind := a.segments[i].Kind; kind == KindEvaluate || kind == KindGenerate {
			return a.stateOf(alive)
		}
		for _, e := range a.segments[i].Events {
			if e >= 0 {
				alive = append(alive, true)
			} else {
				alive[-(e + 1)] = false
			}
		}
	}
	return nil
}

func (a *alignment) stateOf(alive []bool) *class {
	state, sizes := &class{kind: KindLoad, phases: []phaseStart{{0, "load"}}}, []int64{}
	for storage, lives := range alive {
		if !lives {
			continue
		}
		segment, birth := a.home(int64(storage))
		from, number := a.of[segment], int32(len(state.op))
		state.events = append(state.events, number)
		state.op, state.module, state.tag = append(state.op, from.op[birth]), append(state.module, from.module[birth]), append(state.tag, from.tag[birth])
		state.part, state.slot = append(state.part, from.part[birth]), append(state.slot, number)
		state.columns = append(state.columns, from.columns[birth])
		state.outlive = append(state.outlive, number)
		sizes = append(sizes, a.views[segment].sizes[birth])
	}
	state.members = []member{{sizes: sizes}}
	return state
}
