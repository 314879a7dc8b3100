package memory

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// planned is a segment to play.
type planned struct {
	class *class
	place place
	shape Shape
	exact *member // play these sizes instead of the forms'
}

// load is the segment that a run begins with, if the trace has one.
func (m *Model) load() []planned {
	if m.where[0].role != roleLoad {
		return nil
	}
	return []planned{{class: m.of[0], place: m.where[0], exact: &m.of[0].members[0]}}
}

// window plans one optimizer step over micro-batches of these shapes.
func (m *Model) window(number int, shapes []Shape) ([]planned, error) {
	if m.loop == "" {
		return nil, fault.New(fault.Unsupported, "record a training step, or ask for the evaluation", "the trace holds no training")
	}
	if m.loop == KindIteration {
		return m.iteration(number, shapes)
	}
	plan := make([]planned, 0, len(shapes)+1)
	for i, shape := range shapes {
		p := place{window: number, order: i, role: roleMiddle}
		switch i {
		case 0:
			p.role = roleMicro
		case len(shapes) - 1:
			p.role = roleLast
		}
		if i > 2 && shape == shapes[i-1] { // there may be thousands
			plan = append(plan, planned{class: plan[i-1].class, place: p, shape: shape})
			continue
		}
		c, err := m.class(p, shape)
		if err != nil {
			return nil, err
		}
		plan = append(plan, planned{class: c, place: p, shape: shape})
	}
	step := place{window: number, order: len(shapes), role: roleStep}
	if len(m.at(step, true)) == 0 && len(m.at(step, false)) == 0 {
		return plan, nil // a loop that was traced without its optimizer
	}
	shape := shapes[len(shapes)-1]
	c, err := m.class(step, shape)
	if err != nil {
		return nil, err
	}
	return append(plan, planned{class: c, place: step, shape: shape}), nil
}

// iteration plans one step of a user's own loop, which holds all its micro-batches.
func (m *Model) iteration(number int, shapes []Shape) ([]planned, error) {
	if len(shapes) > 1 {
		return nil, fault.New(fault.InvalidArgument, "leave accumulation out", "the trace is of whole iterations, with the accumulation that they had")
	}
	p := place{window: number, role: roleIteration}
	c, err := m.class(p, shapes[0])
	if err != nil {
		return nil, err
	}
	return []planned{{class: c, place: p, shape: shapes[0]}}, nil
}

// asRecorded plans the iterations of a trace without shapes, the last one again and again.
func (m *Model) asRecorded(steps int) []planned {
	var plan []planned
	for i, c := range m.of {
		if m.where[i].role != roleIteration || len(plan) == steps {
			continue
		}
		for k := range c.members {
			if c.members[k].segment == i {
				plan = append(plan, planned{class: c, place: place{window: len(plan), role: roleIteration}, exact: &c.members[k]})
			}
		}
	}
	for len(plan) < steps {
		again := plan[len(plan)-1]
		again.place.window++
		plan = append(plan, again)
	}
	return plan
}

// repeated plans the load and a number of windows of equal micro-batches.
func (m *Model) repeated(shape Shape, accumulation, steps int) ([]planned, error) {
	plan := m.load()
	shapes := make([]Shape, accumulation)
	for i := range shapes {
		shapes[i] = shape
	}
	for number := range steps {
		window, err := m.window(number, shapes)
		if err != nil {
			return nil, err
		}
		if number == 0 && eventsOf(window) > maxPlayed/steps {
			return nil, tooMuch()
		}
		plan = append(plan, window...)
	}
	return plan, nil
}

// evaluation plans some batches of an evaluation after training.
func (m *Model) evaluation(kind string, shape Shape, batches int) ([]planned, error) {
	p := place{window: 1, role: roleOf(kind)}
	c, err := m.later(p, shape)
	if err != nil {
		return nil, err
	}
	if len(c.events) > maxPlayed/batches {
		return nil, tooMuch()
	}
	plan := []planned{{class: m.state, place: place{window: -1}, exact: &m.state.members[0]}}
	for range batches {
		plan = append(plan, planned{class: c, place: p, shape: shape})
		p.window++
	}
	return plan, nil
}

// maxPlayed bounds the events of one simulation: about ten seconds.
const maxPlayed = 1 << 27

func eventsOf(plan []planned) int {
	n := 0
	for _, p := range plan {
		n += len(p.class.events)
	}
	return n
}

func tooMuch() error {
	return fault.New(fault.InvalidArgument, "ask for fewer steps or a smaller accumulation: three steps already repeat themselves",
		"more than %d events to play", maxPlayed)
}
