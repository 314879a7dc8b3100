package kernel

// Dispatch is what PyTorch takes on the CPU for one kernel in eager mode: Python, autograd, dispatcher and driver. Published profiles of eager
// transformers have 5 to 12 µs (docs/kernel-time.md).
const Dispatch = 9e-6

// Span is a part of a step on both sides. The GPU works while the CPU dispatches ahead, so that the slower side counts.
type Span struct {
	GPU  Spread
	Host float64
}

// Seconds is what the part takes.
func (s Span) Seconds() Spread {
	return Spread{max(s.GPU.Low, s.Host), max(s.GPU.Likely, s.Host), max(s.GPU.High, s.Host)}
}

// Step is an iteration by its parts.
type Step map[Phase]Span

// Seconds is the whole iteration: a part begins when the one before has ended, as where a loss is read.
func (s Step) Seconds() Spread {
	var sum Spread
	for _, phase := range []Phase{Forward, Recomputation, Backward, OptimizerUpdate} { // in a fixed order, so that sums are the same each time
		sum = sum.plus(s[phase].Seconds())
	}
	return sum
}

// Step adds up operations. Their bounds add up, too: what makes one slow makes the others slow. waits are further seconds of the CPU by phase, such as
// those of cudaMalloc. Errors: InvalidArgument from Operation.Check.
func (m Model) Step(operations []Operation, waits map[Phase]float64) (Step, error) {
	step := Step{}
	for _, o := range operations {
		took, err := m.Seconds(o)
		if err != nil {
			return nil, err
		}
		span := step[o.Phase]
		span.GPU = span.GPU.plus(m.spreadOf(o).around(took))
		if !m.without.NoHost {
			span.Host += Dispatch * o.launches() * o.repeats()
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
