package timing

import "github.com/asrconfig/asrconfig-go/core/profile"

// Parts of a step, in seconds, as they add up; profile.StepParts has them for others to read.
type Parts struct {
	Compute   Range // matrix products, convolutions and fused attention
	Memory    Range // tensors written and read by everything else
	Launches  Range // what the GPU waits for the CPU's kernel launches beyond both
	Optimizer Range // its step, and gradients added up over micro-batches
	Exchange  Range // gradients between GPUs
	Overhead  Range // the Trainer's own work
}

// Record is the parts as a plan has them.
func (p Parts) Record() profile.StepParts {
	return profile.StepParts{Compute: profile.Range(p.Compute), Memory: profile.Range(p.Memory),
		Launches:  profile.Range(p.Launches),
		Optimizer: profile.Range(p.Optimizer), Exchange: profile.Range(p.Exchange),
		Overhead: profile.Range(p.Overhead)}
}

// Sum is the whole step.
func (p Parts) Sum() Range {
	return p.Compute.Plus(p.Memory).Plus(
		p.Launches).Plus(p.Optimizer).Plus(p.Exchange).Plus(p.Overhead)
}

// Bound names the largest part.
func (p Parts) Bound() string {
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
func (p Parts) Plus(q Parts) Parts {
	return Parts{p.Compute.Plus(q.Compute), p.Memory.Plus(q.Memory), p.Launches.Plus(q.Launches),
		p.Optimizer.Plus(q.Optimizer), p.Exchange.Plus(q.Exchange), p.Overhead.Plus(q.Overhead)}
}

// Times repeats a span.
func (p Parts) Times(x float64) Parts {
	return Parts{p.Compute.Times(x), p.Memory.Times(x), p.Launches.Times(x), p.Optimizer.Times(x),
		p.Exchange.Times(x), p.Overhead.Times(x)}
}
