package kernel

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Dispatch is what PyTorch takes on the CPU for one kernel in eager mode: Python, autograd,
// dispatcher and driver. Published profiles of eager transformers have 5 to 12 µs. Autocast looks
// at every operation, and casts weights: XLS-R-300M in bf16 took 27 µs a kernel on a virtual machine
// with an H100 (benchmarks/gpu/results.md).
var (
	Dispatch         = profile.Range{Low: 5e-6, Likely: 9e-6, High: 30e-6}
	AutocastDispatch = profile.Range{Low: 9e-6, Likely: 18e-6, High: 30e-6}
)

// Span is a part of a step on both sides. The GPU works while the CPU dispatches ahead, so that the
// slower side counts.
type Span struct {
	Products profile.Range // matrix products, convolutions and fused attention
	Others   profile.Range // what reads, changes and writes tensors
	Host     profile.Range
}

// GPU is what its kernels take together.
func (s Span) GPU() profile.Range { return s.Products.Plus(s.Others) }

// Seconds is what the part takes.
func (s Span) Seconds() profile.Range { return s.GPU().AtLeast(s.Host) }

// Step is an iteration by its parts.
type Step map[Phase]Span

// Seconds is the whole iteration: a part begins when the one before has ended, as where a loss is
// read.
func (s Step) Seconds() (sum profile.Range) {
	for _, phase := range Phases {
		sum = sum.Plus(s[phase].Seconds())
	}
	return sum
}

// Step adds up operations. Their bounds add up, too: what makes one slow makes the others slow.
// Errors: InvalidArgument from Operation.Check.
func (m *Model) Step(operations []Operation) (Step, error) {
	step, dispatch := Step{}, m.dispatchOf(operations)
	for _, o := range operations {
		took, err := m.Seconds(o)
		if err != nil {
			return nil, err
		}
		span := step[o.Phase]
		part := &span.Others
		if o.Kind.Product() {
			part = &span.Products
		}
		*part = part.Plus(around(took, m.spreadOf(o)))
		span.Host = span.Host.Plus(dispatch.Times(o.launches() * cmp.Or(o.Times, 1)))
		step[o.Phase] = span
	}
	return step, nil
}

// dispatchOf is what the CPU takes for a kernel: what was measured, or by whether autocast runs.
func (m *Model) dispatchOf(operations []Operation) profile.Range {
	switch {
	case m.dispatch != nil:
		return *m.dispatch
	case slices.ContainsFunc(operations, Operation.isHalf):
		return AutocastDispatch
	}
	return Dispatch
}

// isHalf reports whether it is a product of 16 bits, which speech models have under autocast.
func (o Operation) isHalf() bool {
	return o.Kind.Product() && (o.DType == Float16 || o.DType == BFloat16)
}

// around is a time with the bounds of its kind.
func around(seconds float64, s profile.Range) profile.Range {
	return profile.Range{Low: seconds * min(s.Low, 1), Likely: seconds,
		High: seconds * max(s.High, 1)}
}

func widest(s, t profile.Range) profile.Range {
	return profile.Range{Low: min(s.Low, t.Low), Likely: 1, High: max(s.High, t.High)}
}

// spreadOf is how far the operators of the tables were off that were kept from the fit. Where a
// card has no table, or the tables no such product, it is also as far as one generation's shares
// are off for the other. Kernels that were measured on this card have the spread of that table.
func (m *Model) spreadOf(o Operation) profile.Range {
	if f, measured := m.factors[o.group()]; measured {
		return profile.Range{Low: f.Low / f.Factor, Likely: 1, High: f.High / f.Factor}
	}
	if o.Kind == Transfer {
		return transferSpread
	}
	spread := m.residuals.spreadOf(o)
	if o.Kind.Product() && (o.DType != Float32 || !m.measured && !m.card.sameChip) {
		spread = widest(spread, fitted().Carried[o.table()])
	}
	return spread
}

// transferSpread holds slots of 8 lanes, and hosts that reach more than is assumed.
var transferSpread = profile.Range{Low: 0.9, Likely: 1, High: 2}

// nearest is the fitted card whose residuals are most like this one's: slow clocks under load
// matter more than generations.
func (m *Model) nearest() string {
	if m.card.onSlotPower() {
		return turing
	}
	return m.card.base
}

// table is the operators that a product is bounded by.
func (o Operation) table() string {
	if o.Batch > 1 {
		return "bmm"
	}
	return "linear"
}

func (f *Fit) spreadOf(o Operation) profile.Range {
	switch {
	case o.Kind == Convolution:
		return f.Residuals["conv"]
	case o.Kind.Product():
		return f.Residuals[o.table()]
	}
	if class := o.class(); class != "" {
		return f.Residuals[class]
	}
	return widest(widest(f.Residuals[classElementwise], f.Residuals[classSoftmaxLong]),
		f.Residuals[classNormalization])
}
