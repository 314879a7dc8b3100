package memory

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// load is the segment that a run begins with, if the trace has one.
func (m *Model) load() []replay.Segment {
	set := m.templates
	if set.Positions[0].Role != template.Load {
		return nil
	}
	return []replay.Segment{recorded(set.Of[0], set.Positions[0])}
}

// recorded is a segment as its template's first recording has it.
func recorded(t *template.Template, p template.Position) replay.Segment {
	return replay.Segment{Template: t, Position: p, Recorded: t.Recordings[0].Sizes}
}

// window lists the segments of one optimizer step over micro-batches of these shapes.
func (m *Model) window(number int, shapes []trace.Shape) ([]replay.Segment, error) {
	if m.templates.Loop == "" {
		return nil, fault.New(fault.Unsupported,
			"record a training step, or ask for the evaluation", "the trace has no training step")
	}
	if m.templates.Loop == trace.KindIteration {
		return m.iteration(number, shapes)
	}
	plan := make([]replay.Segment, 0, len(shapes)+1)
	for i, shape := range shapes {
		p := template.Position{Window: number, Order: i, Role: microRole(i, len(shapes))}
		if i > 2 && shape == shapes[i-1] { // there may be thousands
			plan = append(plan, replay.Segment{Template: plan[i-1].Template, Position: p,
				Shape: shape})
			continue
		}
		s, err := m.segment(p, shape)
		if err != nil {
			return nil, err
		}
		plan = append(plan, s)
	}
	if m.about["loop"] == "trainer" {
		plan[0].Ahead = plan[1:]
	}
	p := template.Position{Window: number, Order: len(shapes), Role: template.Step}
	if !m.templates.Has(p) {
		return plan, nil // a loop that was traced without its optimizer
	}
	step, err := m.segment(p, shapes[len(shapes)-1])
	return append(plan, step), err
}

// microRole is the role of a micro-batch among those of a window.
func microRole(i, count int) template.Role {
	switch i {
	case 0:
		return template.Micro
	case count - 1:
		return template.Last
	}
	return template.Middle
}

func (m *Model) segment(p template.Position, shape trace.Shape) (replay.Segment, error) {
	t, err := m.templates.For(p, shape)
	return replay.Segment{Template: t, Position: p, Shape: shape}, err
}

// iteration is one step of a user's own loop, which holds all its micro-batches.
func (m *Model) iteration(number int, shapes []trace.Shape) ([]replay.Segment, error) {
	if len(shapes) > 1 {
		return nil, fault.New(fault.InvalidArgument, "leave accumulation out",
			"the trace is of whole iterations, whose accumulation is fixed")
	}
	s, err := m.segment(template.Position{Window: number, Role: template.Iteration}, shapes[0])
	return []replay.Segment{s}, err
}

// asRecorded lists the iterations of a trace without shapes, the last one again and again.
func (m *Model) asRecorded(steps int) []replay.Segment {
	var plan []replay.Segment
	for i, t := range m.templates.Of {
		if m.templates.Positions[i].Role != template.Iteration || len(plan) == steps {
			continue
		}
		for _, r := range t.Recordings {
			if r.Segment == i {
				plan = append(plan, replay.Segment{Template: t,
					Position: template.Position{Window: len(plan), Role: template.Iteration},
					Recorded: r.Sizes})
			}
		}
	}
	for len(plan) < steps {
		again := plan[len(plan)-1]
		again.Position.Window++
		plan = append(plan, again)
	}
	return plan
}

// windows lists the load and some equal optimizer steps.
func (m *Model) windows(count int, shapes []trace.Shape) ([]replay.Segment, error) {
	plan := m.load()
	for number := range count {
		window, err := m.window(number, shapes)
		if err != nil {
			return nil, err
		}
		if number == 0 && replay.Events(window) > maxEvents/count {
			return nil, tooMuch()
		}
		plan = append(plan, window...)
	}
	return plan, nil
}

// evaluation lists some batches of an evaluation after training.
func (m *Model) evaluation(kind string, shape trace.Shape, batches int) ([]replay.Segment, error) {
	s, err := m.segment(template.Position{Window: 1, Role: template.RoleOf(kind)}, shape)
	if err != nil {
		return nil, err
	}
	if len(s.Template.Events) > maxEvents/batches {
		return nil, tooMuch()
	}
	plan := []replay.Segment{recorded(m.templates.State, template.Position{Window: -1})}
	for range batches {
		plan = append(plan, s)
		s.Position.Window++
	}
	return plan, nil
}

// maxEvents bounds one simulation: about ten seconds.
const maxEvents = 1 << 27

func tooMuch() error {
	return fault.New(fault.InvalidArgument,
		"ask for fewer steps or a smaller accumulation: steps repeat after the third",
		"more than %d events to simulate", maxEvents)
}
