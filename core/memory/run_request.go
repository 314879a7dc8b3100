package memory

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// RunRequest is a question about a whole training over known micro-batches.
type RunRequest struct {
	// 1 to 100 000 optimizer steps, each of 1 to 65536 micro-batches of batch, length and labels
	Windows [][][3]int64 `json:"windows"`

	// what a micro-batch costs besides batch × length, in units of length; 0 or more
	Overhead float64 `json:"overhead"`
	Device
}

const (
	maxRunSteps  = 100_000
	maxRunEvents = 1 << 31 // some minutes
)

// checkWindows counts the micro-batches of a request that is in range, and finds the largest.
func (m *Model) checkWindows(r RunRequest) (largest trace.Shape, micros int, err error) {
	if err := r.Device.check(); err != nil {
		return largest, 0, err
	}
	switch {
	case !(r.Overhead >= 0 && r.Overhead <= 1e15):
		return largest, 0, outOfRange("overhead is %g; pass 0 to 1e15", r.Overhead)
	case !m.templates.HasShapes():
		return largest, 0, fault.New(fault.Unsupported,
			"name batch, length and labels in step() when you record",
			"the trace names no shapes, so it holds only for the recorded ones")
	case len(r.Windows) == 0 || len(r.Windows) > maxRunSteps:
		return largest, 0, outOfRange("%d windows; the range is 1 to %d", len(r.Windows),
			maxRunSteps)
	}
	for number, window := range r.Windows {
		if len(window) == 0 || len(window) > maxAccumulation {
			return largest, 0, outOfRange("window %d has %d micro-batches; the range is 1 to %d",
				number, len(window), maxAccumulation)
		}
		micros += len(window)
		for i, dims := range window {
			shape := shapeOf(dims)
			if err := shape.Check(); err != nil {
				return largest, 0, outOfRange("window %d, micro-batch %d: %s", number, i, err)
			}
			if shape.Batch*shape.Length > largest.Batch*largest.Length {
				largest = shape
			}
		}
	}
	return largest, micros, nil
}

// shapeOf names batch, length and labels.
func shapeOf(dims [3]int64) trace.Shape {
	return trace.Shape{Batch: dims[0], Length: dims[1], Labels: dims[2]}
}
