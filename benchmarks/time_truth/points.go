package main

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// card tells which card of the catalogue a name of the truths means; Entry is for those that it lacks.
type card struct {
	Catalogue string      `json:"catalogue"`
	Entry     *gpus.Entry `json:"entry"`
}

// open is the card's row in the catalogue, and its kernel-time model.
func (c card) open() (entry gpus.Entry, model *kernel.Model, err error) {
	if c.Entry != nil {
		entry = *c.Entry
	} else if entry, _, err = gpus.Parse(c.Catalogue); err != nil {
		return entry, nil, err
	}
	known, err := kernel.CardOf(entry)
	return entry, kernel.New(known), err
}

// roofline is seconds at the published rates: the longer of arithmetic and bytes of each operation.
func roofline(entry gpus.Entry, operations []kernel.Operation) float64 {
	sum := 0.0
	for _, o := range operations {
		rate := *entry.FP32TFLOPS
		if o.DType == kernel.Float16 && entry.TensorTFLOPS != nil {
			rate = *entry.TensorTFLOPS
		} else if o.DType == kernel.TF32 && entry.TF32TFLOPS != nil {
			rate = *entry.TF32TFLOPS
		}
		sum += max(1, o.Times) * max(o.FLOPs()/rate/1e12, o.Bytes()/(*entry.BandwidthGBs)/1e9)
	}
	return sum
}

// library is what both sets of points refer to.
type library struct {
	models map[string]shape
	cards  map[string]card
}

// transformers are NeuSight's points.
type transformers struct {
	library
	Points []struct {
		GPU        string  `json:"gpu"`
		Model      string  `json:"model"`
		Mode       string  `json:"mode"`
		Sequence   int64   `json:"sequence"`
		Batch      int64   `json:"batch"`
		MS         float64 `json:"ms"`
		ForwardMS  float64 `json:"forward_ms"`
		BackwardMS float64 `json:"backward_ms"`
		NeuSightMS float64 `json:"neusight_ms"`
		HabitatMS  float64 `json:"habitat_ms"`
		RooflineMS float64 `json:"roofline_ms"`
	} `json:"points"`
}

// NeuSight empties the allocator's cache before each iteration, so that a training's forward pass waits for cudaMalloc: seconds a call and a byte on the host of
// the A100, where it is what five of eight points wait for; the other hosts hide it. Chosen on these points. [dev]
const mallocHost, mallocCall, mallocByte = "NVIDIA_A100_80GB_PCIe", 0.15e-3, 15e-12

func (t transformers) predict() (results, error) {
	var all results
	for _, p := range t.Points {
		_, model, err := t.cards[p.GPU].open()
		if err != nil {
			return nil, fmt.Errorf("the card %s: %w", p.GPU, err)
		}
		train := p.Mode == "train"
		recorded := record(t.models[p.Model], p.Batch, p.Sequence, kernel.Float32, train, false)
		step, err := model.Step(recorded.operations)
		if err != nil {
			return nil, err
		}
		if train && p.GPU == mallocHost {
			bytes, calls := recorded.reserved()
			wait := mallocCall*calls + mallocByte*bytes
			forward := step[kernel.Forward]
			forward.Host = forward.Host.Plus(profile.Range{Low: wait, Likely: wait, High: wait})
			step[kernel.Forward] = forward
		}
		point := result{group: p.GPU, model: p.Model, name: fmt.Sprintf("%s %s %d×%d", p.Model, p.Mode, p.Batch, p.Sequence), truth: p.MS / 1e3, ours: step.Seconds(), detail: fmt.Sprintf(
			"forward %.0f of %.0f ms (GPU %.0f, CPU %.0f), backward %.0f of %.0f", 1e3*step[kernel.Forward].Seconds().Likely, p.ForwardMS, 1e3*step[kernel.Forward].GPU().Likely, 1e3*step[kernel.Forward].Host.Likely, 1e3*step[kernel.Backward].Seconds().Likely, p.BackwardMS),
			others: map[string]float64{"NeuSight": p.NeuSightMS / 1e3, "Habitat": p.HabitatMS / 1e3, "roofline": p.RooflineMS / 1e3}}
		if train {
			point.backward = &result{group: p.GPU, model: p.Model, truth: p.BackwardMS / 1e3, ours: step[kernel.Backward].Seconds()}
		}
		all = append(all, point)
	}
	return all, nil
}

// questionAnswering are throughputs of NVIDIA's BERT-base.
type questionAnswering struct {
	library
	Sequence int64 `json:"sequence"`
	Points   []struct {
		GPU       string  `json:"gpu"`
		Precision string  `json:"precision"`
		Batch     int64   `json:"batch_total"`
		Rate      float64 `json:"sequences_per_s"`
	} `json:"points"`
}

// The benchmark divides 100 batches by the time of 101 steps, the first of them slow, from a loader without workers: seconds a step and a clip. [dev]
const warmUp, loading, steps = 2.5 / 100, 0.015e-3, 1.01

func (q questionAnswering) predict() (results, error) {
	var all results
	for _, p := range q.Points {
		entry, model, err := q.cards[p.GPU].open()
		if err != nil {
			return nil, fmt.Errorf("the card %s: %w", p.GPU, err)
		}
		dtype := kernel.TF32 // float32 where the card has no TF32
		if p.Precision == "fp16" {
			dtype = kernel.Float16
		}
		recorded := record(q.models["bert_base"], p.Batch, q.Sequence, dtype, true, true)
		operations := append(recorded.operations, recorded.adam())
		step, err := model.Step(operations)
		if err != nil {
			return nil, err
		}
		took := step.Seconds()
		for _, bound := range []*float64{&took.Low, &took.Likely, &took.High} {
			*bound = steps*(*bound+loading*float64(p.Batch)) + warmUp
		}
		all = append(all, result{group: p.Precision + " " + generation(entry), name: p.GPU, truth: float64(p.Batch) / p.Rate, ours: took, others: map[string]float64{"roofline": roofline(entry, operations)},
			detail: fmt.Sprintf("forward %.0f, backward %.0f ms, optimizer %.0f", 1e3*step[kernel.Forward].Seconds().Likely, 1e3*step[kernel.Backward].Seconds().Likely, 1e3*step[kernel.OptimizerUpdate].Seconds().Likely)})
	}
	return all, nil
}

// generation is a card's, by its compute capability.
func generation(entry gpus.Entry) string {
	return map[string]string{"7.0": "Volta", "7.5": "Turing", "8.0": "A100", "8.6": "GA10x", "8.9": "Ada", "9.0": "Hopper", "10.0": "Blackwell"}[entry.ComputeCapability]
}

// adam is the optimizer's step: apex's fused one on float32 copies of the parameters with fp16, else BertAdam's fourteen kernels for each tensor.
func (r *recorder) adam() kernel.Operation {
	bytes, kernels := 114.0, 14*r.tensors
	if r.dtype == kernel.Float16 {
		bytes, kernels = 44, 30
	}
	return kernel.Operation{Name: "adam", Kind: kernel.Optimizer, Phase: kernel.OptimizerUpdate, DType: kernel.Float32, Read: 0.6 * bytes * r.parameters,
		Written: 0.4 * bytes * r.parameters, Kernels: kernels}
}
