package memory

import (
	"cmp"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Request is a question about a few steps at one shape.
type Request struct {
	// 1 to 65536; the shape is absent for a trace without shapes
	Batch *int64 `json:"batch"`
	// of the longest input, 1 to 2^32, in the trace's units
	Length *int64 `json:"length"`
	// of the longest transcript, 0 to 2^20; 0 when absent
	Labels *int64 `json:"labels"`
	// micro-batches of an optimizer step, 1 to 65536; as traced when absent
	Accumulation *int `json:"accumulation"`
	// optimizer steps or evaluation batches, 1 to 1000; 3
	Steps *int `json:"steps"`
	Device
	// memory has run out where PyTorch would give cached memory back and try again
	KeepCache bool `json:"keep_cache"`
	// most points of the timeline, up to 100 000; 0: none
	Timeline int    `json:"timeline"`
	Modules  *int   `json:"modules"` // most rows of modules at the peak, 1 to 10 000; 12
	Kind     string `json:"kind"`    // "train", "evaluate" or "generate"; "train"
}

// Device is what the allocator may use of a GPU, and how.
type Device struct {
	Settings string `json:"settings"` // text of PYTORCH_CUDA_ALLOC_CONF
	// what the allocator may reserve in all; no limit when absent
	LimitBytes *uint64 `json:"limit_bytes"`
	// what the process takes besides the allocator: added to what is reserved
	DeviceBytes *uint64 `json:"device_bytes"`
	reduction.GPU
}

const (
	maxAccumulation = 1 << 16
	maxSteps        = 1000
	maxPoints       = 100_000
	maxModules      = 10_000
	maxDevice       = 1 << 50 // bytes

	// the first makes the optimizer's state, the second is the usual one, the third repeats it
	defaultSteps   = 3
	defaultModules = 12
)

// shape of a request that has one.
func (r Request) shape() trace.Shape {
	return trace.Shape{Batch: *r.Batch, Length: *r.Length, Labels: profile.Or(r.Labels, 0)}
}

func (r Request) modules() int { return profile.Or(r.Modules, defaultModules) }

func (r Request) check() error {
	if err := cmp.Or(
		fault.InRange("accumulation", profile.Or(r.Accumulation, 1), 1, maxAccumulation),
		fault.InRange("steps", profile.Or(r.Steps, 1), 1, maxSteps),
		fault.InRange("timeline", r.Timeline, 0, maxPoints),
		fault.InRange("modules", r.modules(), 1, maxModules), r.Device.check()); err != nil {
		return err
	}
	switch r.Kind {
	case "", "train", trace.KindEvaluate, trace.KindGenerate:
	default:
		return fault.New(fault.InvalidArgument, `give "train", "evaluate" or "generate"`,
			"kind %q is not known", fault.Shorten(r.Kind))
	}
	if (r.Batch == nil) != (r.Length == nil) || r.Batch == nil && r.Labels != nil {
		return outOfRange("a shape needs both batch and length")
	}
	if r.Batch != nil {
		if err := r.shape().Check(); err != nil {
			return outOfRange("%s", err)
		}
	}
	return nil
}

func (d Device) check() error {
	if limit := profile.Or(d.LimitBytes, 1); limit < 1 || limit > maxDevice {
		return outOfRange("limit_bytes is %d; the range is 1 to %d", limit, int64(maxDevice))
	}
	if other := profile.Or(d.DeviceBytes, 0); other > maxDevice {
		return outOfRange("device_bytes is %d; the range is 0 to %d", other, int64(maxDevice))
	}
	return d.GPU.Check()
}

func outOfRange(format string, args ...any) error {
	return fault.New(fault.InvalidArgument,
		"see the operation's arguments in capi/operations.json", format, args...)
}

// settings of the allocator, with its limit.
func (d Device) settings() (allocator.Settings, error) {
	s, err := allocator.ParseSettings(d.Settings)
	if d.LimitBytes != nil {
		s.Limit, s.DeviceTotal = *d.LimitBytes, *d.LimitBytes+profile.Or(d.DeviceBytes, 0)
	}
	return s, err
}
