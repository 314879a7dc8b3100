package profile

// Plus adds two ranges end by end: what makes one slow makes the other slow too.
func (r Range) Plus(s Range) Range {
	return Range{r.Low + s.Low, r.Likely + s.Likely, r.High + s.High}
}

// Times scales a range by a number that is not negative.
func (r Range) Times(x float64) Range { return Range{r.Low * x, r.Likely * x, r.High * x} }

// Product multiplies two ranges of numbers that are not negative.
func (r Range) Product(s Range) Range {
	return Range{r.Low * s.Low, r.Likely * s.Likely, r.High * s.High}
}

// AtLeast is the larger range, end by end.
func (r Range) AtLeast(s Range) Range {
	return Range{max(r.Low, s.Low), max(r.Likely, s.Likely), max(r.High, s.High)}
}

// Sum is the whole step.
func (p StepParts) Sum() Range {
	return p.Compute.Plus(p.Memory).Plus(
		p.Launches).Plus(p.Optimizer).Plus(p.Exchange).Plus(p.Overhead)
}

// OnGPU is what the step takes without waiting for launches.
func (p StepParts) OnGPU() Range {
	p.Launches = Range{}
	return p.Sum()
}

// Bound names the largest part.
func (p StepParts) Bound() string {
	name, largest := "compute", p.Compute.Likely
	for _, other := range []struct {
		name  string
		value Range
	}{{"memory", p.Memory}, {"launches", p.Launches}, {"optimizer", p.Optimizer},
		{"exchange", p.Exchange}, {"overhead", p.Overhead}} {
		if other.value.Likely > largest {
			name, largest = other.name, other.value.Likely
		}
	}
	return name
}

// Plus adds two spans of time part by part.
func (p StepParts) Plus(q StepParts) StepParts {
	return StepParts{p.Compute.Plus(q.Compute), p.Memory.Plus(q.Memory), p.Launches.Plus(q.Launches),
		p.Optimizer.Plus(q.Optimizer), p.Exchange.Plus(q.Exchange), p.Overhead.Plus(q.Overhead)}
}

// Times repeats a span.
func (p StepParts) Times(x float64) StepParts {
	return StepParts{p.Compute.Times(x), p.Memory.Times(x), p.Launches.Times(x), p.Optimizer.Times(x),
		p.Exchange.Times(x), p.Overhead.Times(x)}
}
