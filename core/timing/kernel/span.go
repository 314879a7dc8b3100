package kernel

import (
	"cmp"

	"github.com/asrconfig/asrconfig-go/core/timing"
)

// Dispatch is what PyTorch takes on the CPU for one kernel in eager mode: Python, autograd,
// dispatcher and driver. Published profiles of eager transformers have 5 to 12 µs (docs/timing.md).
const Dispatch = 9e-6

// Span is a part of a step on both sides. The GPU works while the CPU dispatches ahead, so that the
// slower side counts.
type Span struct {
	Products timing.Range // matrix products, convolutions and fused attention
	Others   timing.Range // what reads, changes and writes tensors
	Host     float64
}

// GPU is what its kernels take together.
func (s Span) GPU() timing.Range { return s.Products.Plus(s.Others) }

// Seconds is what the part takes.
func (s Span) Seconds() timing.Range {
	return s.GPU().AtLeast(timing.Range{Low: s.Host, Likely: s.Host, High: s.Host})
}

// Step is an iteration by its parts.
type Step map[Phase]Span

// Seconds is the whole iteration: a part begins when the one before has ended, as where a loss is
// read.
func (s Step) Seconds() (sum timing.Range) {
	for _, phase := range Phases {
		sum = sum.Plus(s[phase].Seconds())
	}
	return sum
}

// Step adds up operations. Their bounds add up, too: what makes one slow makes the others slow.
// waits are further seconds of the CPU by phase, such as those of cudaMalloc. Errors:
// InvalidArgument from Operation.Check.
func (m *Model) Step(operations []Operation, waits map[Phase]float64) (Step, error) {
	step := Step{}
	for _, o := range operations {
		took, err := m.Seconds(o)
		if err != nil {
			return nil, err
		}
		span := step[o.Phase]
		part := &span.Others
		if o.product() {
			part = &span.Products
		}
		*part = part.Plus(around(took, m.spreadOf(o)))
		if !m.without.NoHost {
			span.Host += m.dispatch * o.launches() * cmp.Or(o.Times, 1)
		}
		step[o.Phase] = span
	}
	for phase, wait := range waits {
		span := step[phase]
		span.Host += wait
		step[phase] = span
	}
	return step, nil
}
