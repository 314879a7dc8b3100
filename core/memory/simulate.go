package memory

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Request is a question about a few steps at one shape.
type Request struct {
	Batch        *int64  `json:"batch"`        // 1 to 65536; the shape is absent for a trace without shapes
	Length       *int64  `json:"length"`       // of the longest input, 1 to 2^32, in the trace's units
	Labels       *int64  `json:"labels"`       // of the longest transcript, 0 to 2^20; 0 when absent
	Accumulation *int    `json:"accumulation"` // micro-batches of an optimizer step, 1 to 65536; as traced when absent
	Steps        *int    `json:"steps"`        // optimizer steps or evaluation batches, 1 to 1000; 3
	Settings     string  `json:"settings"`     // text of PYTORCH_CUDA_ALLOC_CONF
	LimitBytes   *uint64 `json:"limit_bytes"`  // what the allocator may reserve in all; no limit when absent
	DeviceBytes  *uint64 `json:"device_bytes"` // what the process takes beside the allocator: added to what is reserved
	Timeline     int     `json:"timeline"`     // most points of the timeline, up to 100 000; 0: none
	Modules      *int    `json:"modules"`      // most rows of modules at the peak, 1 to 10 000; 12
	Kind         string  `json:"kind"`         // "train", "evaluate" or "generate"; "train"
	GPU
}

const (
	maxAccumulation = 1 << 16
	maxSteps        = 1000
	maxPoints       = 100_000
	maxModules      = 10_000
	maxDevice       = 1 << 50 // bytes

	defaultSteps   = 3 // the first makes the optimizer's state, the second is the usual one, the third repeats it
	defaultModules = 12
)

// Simulate plays a few steps through an allocator.
func (m *Model) Simulate(r Request) (Estimate, error) {
	settings, err := settingsOf(r.Settings, r.LimitBytes, r.DeviceBytes)
	if err != nil {
		return Estimate{}, err
	}
	plan, err := m.plan(r)
	if err != nil {
		return Estimate{}, err
	}
	var timeline *sampler
	if r.Timeline > 0 {
		timeline = newSampler(r.Timeline, eventsOf(plan))
	}
	p := newPlayer(m, settings, r.GPU)
	p.watch = newWatcher(m, timeline)
	full, err := p.playAll(plan)
	if err != nil {
		return Estimate{}, err
	}
	return m.estimate(p, full, plan, r), nil
}

// playAll plays segments until one runs out of memory.
func (p *player) playAll(plan []planned) (*failure, error) {
	for _, s := range plan {
		if full, err := p.play(s); full != nil || err != nil {
			return full, err
		}
	}
	return nil, nil
}

// plan checks a request and lists the segments that answer it.
func (m *Model) plan(r Request) ([]planned, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	steps := orElse(r.Steps, defaultSteps)
	if r.Batch == nil {
		return m.planAsRecorded(r, steps)
	}
	if !m.hasShapes() {
		return nil, fault.New(fault.InvalidArgument, "leave batch, length and labels out, or name them in step() when you record",
			"the trace says no shapes, so it answers only for what was recorded")
	}
	shape := Shape{*r.Batch, *r.Length, orElse(r.Labels, 0)}
	if kind := orDefault(r.Kind, "train"); kind != "train" {
		return m.evaluation(kind, shape, steps)
	}
	return m.repeated(shape, orElse(r.Accumulation, m.accumulation()), steps)
}

func (m *Model) planAsRecorded(r Request, steps int) ([]planned, error) {
	if m.hasShapes() || m.loop == "" || orDefault(r.Kind, "train") != "train" {
		return nil, fault.New(fault.InvalidArgument, "give batch and length of a micro-batch", "batch and length are missing")
	}
	return append(m.load(), m.asRecorded(steps)...), nil
}

// hasShapes tells whether training, or what else there is, was traced with its shapes.
func (m *Model) hasShapes() bool {
	for i, where := range m.where {
		if where.role == roleIteration && !m.of[i].shaped() {
			return false
		}
	}
	return true
}

func orElse[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func (r Request) modules() int { return orElse(r.Modules, defaultModules) }

func (r Request) check() error {
	for _, f := range []struct {
		name        string
		value       int
		least, most int
	}{
		{"accumulation", orElse(r.Accumulation, 1), 1, maxAccumulation},
		{"steps", orElse(r.Steps, 1), 1, maxSteps},
		{"timeline", r.Timeline, 0, maxPoints},
		{"modules", r.modules(), 1, maxModules},
	} {
		if f.value < f.least || f.value > f.most {
			return outOfRange("%s is %d; the range is %d to %d", f.name, f.value, f.least, f.most)
		}
	}
	if err := r.GPU.Check(); err != nil {
		return err
	}
	switch r.Kind {
	case "", "train", KindEvaluate, KindGenerate:
	default:
		return fault.New(fault.InvalidArgument, `give "train", "evaluate" or "generate"`, "kind %q is not known", fault.Shorten(r.Kind))
	}
	if (r.Batch == nil) != (r.Length == nil) || r.Batch == nil && r.Labels != nil {
		return outOfRange("a shape needs both batch and length")
	}
	if r.Batch != nil {
		if err := (Shape{*r.Batch, *r.Length, orElse(r.Labels, 0)}).check(); err != nil {
			return outOfRange("%s", err)
		}
	}
	return checkDevice(r.LimitBytes, r.DeviceBytes)
}

func checkDevice(limit, device *uint64) error {
	if limit != nil && (*limit == 0 || *limit > maxDevice) {
		return outOfRange("limit_bytes is %d; the range is 1 to %d", *limit, int64(maxDevice))
	}
	if device != nil && *device > maxDevice {
		return outOfRange("device_bytes is %d; the range is 0 to %d", *device, int64(maxDevice))
	}
	return nil
}

func outOfRange(format string, args ...any) error {
	return fault.New(fault.InvalidArgument, "see the operation's arguments in docs/memory-model.md", format, args...)
}
