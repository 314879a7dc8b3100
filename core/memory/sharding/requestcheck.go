package sharding

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

const (
	maxDevices = 1 << 16
	// elements or bytes: a thousand times the largest models, and small enough to multiply
	maxSize = 1 << 50
)

// widths are bytes of an element of the computation.
var widths = map[string]int64{"fp32": 4, "fp16": 2, "bf16": 2}

func (r Request) check() error {
	if _, ok := strategies[r.Strategy]; !ok {
		return fault.New(fault.Unsupported, "choose none, "+strings.Join(Strategies(), ", "),
			"strategy %q", fault.Shorten(r.Strategy))
	}
	if _, ok := widths[r.Precision]; !ok {
		return fault.New(fault.Unsupported, "choose fp32, fp16 or bf16", "precision %q",
			fault.Shorten(r.Precision))
	}
	if r.Devices < 1 || r.Devices > maxDevices {
		return fault.New(fault.InvalidArgument, fmt.Sprintf("give 1 to %d processes", maxDevices),
			"%d devices share a model", r.Devices)
	}
	return r.checkSizes()
}

func (r Request) checkSizes() error {
	for _, size := range []struct {
		name  string
		value int64
		low   int64
		high  int64
	}{
		{"parameters", r.Parameters, 1, maxSize}, {"trainable", r.Trainable, 0, r.Parameters},
		{"parameter_bytes", r.ParameterBytes, 1, maxSize},
		{"gradient_bytes", r.GradientBytes, min(1, r.Trainable), maxSize},
		{"optimizer_bytes", r.OptimizerBytes, 0, maxSize}, {"cast_bytes", r.CastBytes, 0, maxSize},
		{"largest_block", r.LargestBlock, 0, r.Parameters}, {"outside", r.Outside, 0, r.Parameters},
	} {
		if size.value < size.low || size.value > size.high {
			return fault.New(fault.InvalidArgument,
				"give the sizes of one process without sharding, as a profile of the model has "+
					"them",
				"%s = %d is not between %d and %d", size.name, size.value, size.low, size.high)
		}
	}
	return nil
}
