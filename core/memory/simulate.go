package memory

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Simulate replays a few steps.
func (m *Model) Simulate(r Request) (peak.Estimate, error) {
	settings, err := settingsOf(r.Settings, r.LimitBytes, r.DeviceBytes)
	if err != nil {
		return peak.Estimate{}, err
	}
	settings.KeepCache = r.KeepCache
	plan, err := m.plan(r)
	if err != nil {
		return peak.Estimate{}, err
	}
	p := replay.New(m.templates.Variables, settings, r.GPU)
	p.Observer = replay.NewObserver(len(m.modules), r.Timeline, replay.Events(plan))
	full, err := p.PlayAll(plan)
	if err != nil {
		return peak.Estimate{}, err
	}
	return m.estimate(p, full, plan, r), nil
}

// plan checks a request and lists the segments that answer it.
func (m *Model) plan(r Request) ([]replay.Segment, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	steps, kind := orElse(r.Steps, defaultSteps), orDefault(r.Kind, "train")
	switch {
	case r.Batch == nil && (m.templates.HasShapes() || m.templates.Loop == "" || kind != "train"):
		return nil, fault.New(fault.InvalidArgument, "give batch and length of a micro-batch",
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
		orElse(r.Accumulation, m.templates.Accumulation())))
}
