// Package memory answers from a recorded training step what the same step needs at another shape. A
// trace (package trace) holds the allocations and frees of a few segments; their common structure
// and a formula for each size (package template) make a segment of any shape, which is replayed
// (package replay) through a simulation of PyTorch's caching allocator. README.md
// follows one storage through all of it.
package memory

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Model is a trace made ready for questions. It may be used by several goroutines at once.
type Model struct {
	trace     *trace.Trace
	templates *template.Set
}

// New fits a checked trace (of trace.ReadFile or trace.Decode).
func New(t *trace.Trace) (*Model, error) {
	set, err := template.New(t)
	return &Model{trace: t, templates: set}, err
}

// Simulate replays a few steps.
func (m *Model) Simulate(r Request) (peak.Estimate, error) {
	p, plan, err := m.player(r)
	if err != nil {
		return peak.Estimate{}, err
	}
	p.Observer = replay.NewObserver(len(m.trace.Modules), r.Timeline, replay.Events(plan))
	full, err := p.PlayAll(plan)
	if err != nil {
		return peak.Estimate{}, err
	}
	return m.estimate(p, full, plan, r), nil
}

// player checks a request, and lists the segments that answer it for a fresh player.
func (m *Model) player(r Request) (*replay.Player, []replay.Segment, error) {
	plan, err := m.plan(r)
	if err != nil {
		return nil, nil, err
	}
	settings, err := r.settings()
	settings.KeepCache = r.KeepCache
	return replay.New(m.templates.Variables, settings, r.GPU), plan, err
}

// plan checks a request and lists the segments that answer it.
func (m *Model) plan(r Request) ([]replay.Segment, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	steps, kind := profile.Or(r.Steps, defaultSteps), cmp.Or(r.Kind, "train")
	switch {
	case r.Batch == nil && (m.templates.HasShapes() || m.templates.Loop == "" || kind != "train"):
		return nil, fault.New(fault.InvalidArgument, "pass batch and length of a micro-batch",
			"batch and length are missing")
	case r.Batch == nil:
		return append(m.load(), m.asRecorded(steps)...), nil
	case !m.templates.HasShapes():
		return nil, fault.New(fault.InvalidArgument,
			"leave batch, length and labels out, or name them in step() when you record",
			"the trace names no shapes, so it holds only for the recorded ones")
	case kind != "train":
		return m.evaluation(kind, r.shape(), steps)
	}
	return m.windows(steps, slices.Repeat([]trace.Shape{r.shape()},
		profile.Or(r.Accumulation, m.templates.Accumulation())))
}

// Determined reports whether a trace's formulas answer a question exactly. Where they do not, the
// shape is to be traced itself.
type Determined struct {
	Exactly bool `json:"exactly"`
	// largest share of a segment's memory by which formulas may be off, 0 to 1
	Doubt float64 `json:"doubt"`
	Why   string  `json:"why"` // not exactly, as a sentence; "" otherwise
}

// negligible is the share of memory that may be uncertain in an answer that counts as exact:
// workspaces that follow a kernel's rounding, and what depends on values.
const negligible = 0.002

// Determined looks at the formulas of the segments that Simulate would play. Errors:
// InvalidArgument, not Unsupported.
func (m *Model) Determined(r Request) (Determined, error) {
	plan, err := m.plan(r)
	if err != nil {
		if failure := fault.From(err); failure.Code == fault.Unsupported {
			return Determined{Doubt: 1, Why: failure.Message}, nil
		}
		return Determined{}, err
	}
	result, model := Determined{}, uint64(0)
	if plan[0].Template.Kind == trace.KindLoad {
		for _, n := range plan[0].Recorded {
			model += uint64(n)
		}
	}
	for _, s := range computed(plan) {
		if s.Template.IsCertain() {
			continue
		}
		p, err := m.templates.Variables.At(s.Shape)
		if err != nil {
			return Determined{}, err
		}
		bytes, open := s.Template.Live(p, r.GPU.Rules())
		share := float64(open) / float64(max(1, bytes+model))
		result.Doubt = max(result.Doubt, min(1, share))
	}
	if result.Exactly = result.Doubt <= negligible; !result.Exactly {
		result.Why = "no formula of batch, length and labels gives the sizes at all traced shapes"
	}
	return result, nil
}

// computed lists a segment of each template whose sizes formulas give.
func computed(plan []replay.Segment) (segments []replay.Segment) {
	seen := map[*template.Template]bool{}
	for _, s := range plan {
		if s.Recorded == nil && !seen[s.Template] {
			seen[s.Template] = true
			segments = append(segments, s)
		}
	}
	return segments
}

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
	if m.trace.About["loop"] == "trainer" {
		plan[0].Ahead = plan[1:]
		plan = withoutRepeats(plan)
	}
	p := template.Position{Window: number, Order: len(shapes), Role: template.Step}
	if !m.templates.Has(p) {
		return plan, nil // a loop that was traced without its optimizer
	}
	step, err := m.segment(p, shapes[len(shapes)-1])
	return append(plan, step), err
}

// mostReplayed micro-batches of one shape are replayed of a step.
const mostReplayed = 32

// withoutRepeats lists the micro-batches of a step without those that are like the ones before
// them. Their inputs, which the first one places, are all that they would add.
func withoutRepeats(step []replay.Segment) []replay.Segment {
	other := func(s replay.Segment) bool { return s.Shape != step[0].Shape }
	if len(step) <= mostReplayed || slices.ContainsFunc(step, other) {
		return step
	}
	return append(step[:mostReplayed-1:mostReplayed-1], step[len(step)-1])
}

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
