package timing

import (
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Parts of a step, in seconds, as they add up.
type Parts struct {
	Compute   Range `json:"compute"`   // matrix products and convolutions
	Memory    Range `json:"memory"`    // tensors written and read by everything else
	Launches  Range `json:"launches"`  // what the GPU waits for the CPU's kernel launches beyond both
	Optimizer Range `json:"optimizer"` // its step, and gradients added up over micro-batches
	Exchange  Range `json:"exchange"`  // gradients between GPUs
	Overhead  Range `json:"overhead"`  // the Trainer's own work
}

// Record is the parts as a plan has them.
func (p Parts) Record() profile.StepParts {
	return profile.StepParts{Compute: profile.Range(p.Compute), Memory: profile.Range(p.Memory), Launches: profile.Range(p.Launches),
		Optimizer: profile.Range(p.Optimizer), Exchange: profile.Range(p.Exchange), Overhead: profile.Range(p.Overhead)}
}

// Sum is the whole step.
func (p Parts) Sum() Range {
	return p.Compute.Plus(p.Memory).Plus(p.Launches).Plus(p.Optimizer).Plus(p.Exchange).Plus(p.Overhead)
}

// Bound names the largest part.
func (p Parts) Bound() string {
	name, most := "compute", p.Compute.Likely
	for _, other := range []struct {
		name  string
		value Range
	}{{"memory", p.Memory}, {"launches", p.Launches}, {"optimizer", p.Optimizer}, {"exchange", p.Exchange}, {"overhead", p.Overhead}} {
		if other.value.Likely > most {
			name, most = other.name, other.value.Likely
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
	return Parts{p.Compute.Times(x), p.Memory.Times(x), p.Launches.Times(x), p.Optimizer.Times(x), p.Exchange.Times(x), p.Overhead.Times(x)}
}

// Micro is a micro-batch with its forward and backward pass. Kernels run one after another, so that arithmetic and memory
// traffic add up; where the CPU launches more slowly than the GPU works, the GPU waits.
func (r Rates) Micro(all analytic.Amount) Parts {
	p := Parts{Overhead: microTime, Memory: Takes(all.MovedBytes, r.bandwidth)}
	p.Compute = Takes(all.Products, r.products).Plus(Takes(all.WideProducts, r.wideProducts)).
		Plus(Takes(all.Convolutions, r.convolutions)).Plus(Takes(all.WideConvolutions, r.wideConvolutions))
	busy, launching := p.Compute.Plus(p.Memory), launchTime.Times(all.Kernels)
	p.Launches = Range{max(0, launching.Low-busy.Low), max(0, launching.Likely-busy.Likely), max(0, launching.High-busy.High)}
	return p
}

// optimizerTraffic is the bytes that a step reads and writes for each trained parameter, gradient clipping (12 B) and
// unscaling (8 B) included: torch/optim/adam.py has ten passes over float32 tensors in its foreach form and one when fused.
var optimizerTraffic = map[string]float64{
	"adamw_torch": 100, "adamw_torch_fused": 48, "adamw_8bit": 36, "adamw_bnb_8bit": 36, "adafactor": 100, "sgd": 40, "adagrad": 68, "rmsprop": 68,
}

// gradientBytes is one float32 gradient; adding it to what is there reads both and writes one.
const gradientBytes, addedBytes = 4, 12

// Finish is what an optimizer step takes beside its micro-batches.
func (r Rates) Finish(trained int64, optimizer string, accumulation, devices int) Parts {
	traffic, known := optimizerTraffic[optimizer]
	if !known {
		traffic = optimizerTraffic["adamw_torch"]
	}
	bytes := float64(trained) * (traffic + addedBytes*float64(max(0, accumulation-1)))
	p := Parts{Optimizer: Takes(bytes, r.bandwidth), Overhead: stepTime}
	if devices > 1 { // a ring: each GPU sends and receives its share of the gradients twice
		p.Exchange = Takes(2*float64(devices-1)/float64(devices)*gradientBytes*float64(trained), r.link)
	}
	return p
}

// Step is an optimizer step of equal micro-batches.
func (r Rates) Step(w analytic.Work, optimizer string, accumulation, devices int) Parts {
	return r.Micro(w.Sum()).Times(float64(accumulation)).Plus(r.Finish(w.TrainedParameters, optimizer, accumulation, devices))
}
