// Package estimate asks the analytic estimator about one model on many cards and at many shapes, and remembers the answers:
// what a micro-batch takes of memory, and of time.
package estimate

import (
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/memory/device"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Setup is what a plan may change to make a training fit.
type Setup struct {
	Checkpointing profile.Checkpointing
	Frozen        bool // the convolutional feature encoder
	Optimizer     string
	Rank          int64 // of LoRA; 0, all parameters train
}

// Question asks about one micro-batch. Cards of a class share the answers.
type Question struct {
	Setup
	Class, Precision string
	Batch            int
	Accumulating     bool
	Seconds          float64 // the longest clip
	Labels           int64   // tokens of the longest transcript; 0 for as many as are usual
}

// Estimator answers questions about a model and remembers the answers. It is not safe for concurrent use.
type Estimator struct {
	works       map[Question]kernel.Work
	models      map[bool]*analytic.Model // by whether the feature encoder is frozen
	source      func(frozen bool) (*analytic.Model, error)
	predictions map[Question]analytic.Prediction
	estimates   map[Question]analytic.Estimate
}

// Of is an estimator for a model.
func Of(r model.Request) *Estimator {
	source := func(frozen bool) (*analytic.Model, error) {
		named := r
		named.FreezeFeatureEncoder = named.FreezeFeatureEncoder || frozen
		return analytic.Read(named)
	}
	return &Estimator{map[Question]kernel.Work{}, map[bool]*analytic.Model{}, source, map[Question]analytic.Prediction{}, map[Question]analytic.Estimate{}}
}

// Model is the model itself. Errors: those of analytic.Read.
func (o *Estimator) Model(frozen bool) (*analytic.Model, error) {
	if m, known := o.models[frozen]; known {
		return m, nil
	}
	m, err := o.source(frozen)
	if err == nil {
		o.models[frozen] = m
	}
	return m, err
}

// AllocatorSettings is what a plan sets PYTORCH_CUDA_ALLOC_CONF to, and so what every answer here is simulated with: in
// batches of many lengths fixed segments keep gaps, growing ones do not.
const AllocatorSettings = "expandable_segments:True"

// Request is the question for a model.
func (q Question) Request() analytic.Request {
	r := analytic.Request{Batch: int64(q.Batch), Seconds: q.Seconds, Precision: q.Precision, Checkpointing: q.Checkpointing.On(),
		EveryNLayers: int64(q.Checkpointing.EveryN), OffloadCheckpoints: q.Checkpointing.Offload, Accumulation: 1, Optimizer: q.Optimizer, LoRARank: q.Rank, ComputeCapability: q.Class, Settings: AllocatorSettings}
	if q.Accumulating {
		r.Accumulation = 2 // each further one is like the second
	}
	if q.Labels > 0 {
		r.Labels = &q.Labels
	}
	return r
}

// remembered is the answer to a question, asked of the model once.
func remembered[A any](o *Estimator, known map[Question]A, q Question, r analytic.Request, ask func(*analytic.Model, analytic.Request) (A, error)) (A, error) {
	if a, found := known[q]; found {
		return a, nil
	}
	m, err := o.Model(q.Frozen)
	if err != nil {
		return *new(A), err
	}
	a, err := ask(m, r)
	if err == nil {
		known[q] = a
	}
	return a, err
}

// Predict gives memory by the rule. Errors: those of Model.Predict.
func (o *Estimator) Predict(q Question) (analytic.Prediction, error) {
	return remembered(o, o.predictions, q, q.Request(), (*analytic.Model).Predict)
}

// Peak is the reserved memory of a micro-batch by simulation, in bytes. Errors: those of Model.Estimate.
func (o *Estimator) Peak(q Question) (uint64, error) {
	e, err := o.Estimate(q)
	return e.PeakReserved, err
}

// Estimate is the whole account of a micro-batch, simulated. Errors: those of Model.Estimate.
func (o *Estimator) Estimate(q Question) (analytic.Estimate, error) {
	r := q.Request()
	r.Simulate = true
	return remembered(o, o.estimates, q, r, (*analytic.Model).Estimate)
}

// Class is the compute capability that stands for all cards with the same kernels and workspaces.
func Class(g profile.GPU) string {
	if g.ComputeCapability == "" {
		return "8.0"
	}
	switch g.ComputeCapability[0] {
	case '3', '5', '6', '7':
		return "7.5"
	case '8':
		return "8.0"
	}
	return "9.0" // and newer: the largest workspaces
}

// Precision is what suits a card: bfloat16 where it has it, float16 where that is fast.
func Precision(g profile.GPU) string {
	switch {
	case g.BF16:
		return "bf16"
	case g.TensorTFLOPS != nil:
		return "fp16"
	}
	return "fp32"
}

// Outside is what a process holds beside PyTorch's allocator, in bytes: context and NCCL's buffers.
func Outside(g profile.GPU, devices int) (uint64, error) {
	r := device.Request{NCCL: devices > 1}
	r.GPU.GPU = g
	if devices > 1 {
		r.GPUs = &devices
	}
	terms, err := device.Describe(r)
	return terms.ContextBytes + terms.NCCLBytes, err
}
