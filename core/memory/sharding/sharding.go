// Package sharding computes what one process keeps of a model when several train it together: the
// parameters, gradients and optimizer state that each strategy leaves on a GPU, and the buffers
// that it needs beside them.
//
// Sizes follow from what the engines do by default under the Trainer, with the bucket sizes that
// launch.DeepSpeed asks for; benchmarks/sharding_truth.py counts them in real processes.
// Activations are not the matter of this package, nor are NCCL's buffers (core/memory/device).
//
// Sources: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models" (arXiv:1910.02054, section 3.1 and figure 1: 2 B of parameters, 2 B of gradients and 12 B
// of optimizer state for each trained parameter, the last, the last two, or all of them divided by
// the number of processes); DeepSpeed 0.19, runtime/zero/stage_1_and_2.py and stage3.py; PyTorch
// 2.15, csrc/distributed/c10d/reducer.cpp and distributed/fsdp/_fully_shard; Accelerate 1.15,
// accelerator.py and utils/fsdp_utils.py.
package sharding

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Request describes one process's model without sharding, and how it is to be shared. Counts are
// elements.
type Request struct {
	Strategy string `json:"strategy"` // one of Strategies, or "none"
	// processes that share, 1..65536; one alone keeps everything
	Devices int `json:"devices"`
	// "fp32", "fp16" or "bf16"; the last two are mixed: float32 weights under autocast
	Precision string `json:"precision"`

	Parameters int64 `json:"parameters"` // > 0
	Trainable  int64 `json:"trainable"`  // 0..Parameters

	ParameterBytes int64 `json:"parameter_bytes"` // of a process alone
	GradientBytes  int64 `json:"gradient_bytes"`  // of a process alone
	// of a process alone, without a float32 copy of the parameters
	OptimizerBytes int64 `json:"optimizer_bytes"`

	// parameters of a transformer layer, which FSDP gathers at once; 0: unknown, see Block
	LargestBlock int64 `json:"largest_block"`
	// parameters outside of the layers, which FSDP keeps gathered; 0: unknown, as many as a layer
	Outside int64 `json:"outside"`
	// 16-bit copies of weights that autocast holds through a step; 0: none, or not known
	CastBytes int64 `json:"cast_bytes"`

	// the Trainer's name, "" where it does not matter: Adafactor cannot factor flat shards
	Optimizer string `json:"optimizer"`
	// FSDP reduces gradients once an optimizer step, not with each micro-batch
	DeferredSends bool `json:"deferred_sends"`
}

// States is what a process keeps between two operations, in bytes.
type States struct {
	Parameters int64 `json:"parameters"`
	Gradients  int64 `json:"gradients"` // at the end of a backward pass
	// with the float32 copy of the parameters, where the engine makes one
	Optimizer int64 `json:"optimizer"`
	Buffers   int64 `json:"buffers"` // buckets, gathered layers, autocast's copies
	Total     int64 `json:"total"`   // of the four
	// besides Total, for the time of the optimizer's step: gradients in float32
	Step int64 `json:"step"`
}

// Strategies are those that share work between processes, in the order in which one would try them:
// each needs less memory than the one before and sends more. "none" is not among them.
func Strategies() []string { return []string{"ddp", "zero1", "zero2", "zero3", "fsdp"} }

// Elements of the buffers that the emitted DeepSpeed configuration asks for. DeepSpeed's own
// defaults (5e8, 1e9) are larger than most speech models: nothing would be saved. 25 M are 50 MB in
// 16 bits, twice DDP's bucket.
const (
	ReduceBucket   = 25_000_000 // zero_optimization.reduce_bucket_size and allgather_bucket_size
	PrefetchBucket = 25_000_000 // zero_optimization.stage3_prefetch_bucket_size
	// zero_optimization.stage3_max_live_parameters and stage3_max_reuse_distance
	LiveParameters = 50_000_000
)

// Of returns what one process keeps. Errors: InvalidArgument for what cannot be, Unsupported for an
// unknown strategy or precision.
func Of(r Request) (States, error) {
	if err := r.check(); err != nil {
		return States{}, err
	}
	s := &States{
		Parameters: r.ParameterBytes, Gradients: r.GradientBytes, Optimizer: r.OptimizerBytes,
		Buffers: r.CastBytes,
	}
	if r.Devices > 1 {
		strategies[r.Strategy](r, s)
	}
	s.Total = s.Parameters + s.Gradients + s.Optimizer + s.Buffers
	return *s, nil
}

// Difference is what is to be added to the peak predicted for a process alone on its GPU; negative
// where sharding saves. It is meant for a peak in the backward pass, where all states are there.
// The true peak is the larger one of that sum and of the optimizer's step, Total + Step and what
// the optimizer takes for the moment.
func Difference(r Request) (int64, error) {
	shared, err := Of(r)
	if err != nil {
		return 0, err
	}
	r.Strategy = "none"
	alone, err := Of(r)
	return shared.Total - alone.Total, err
}

// strategies are the changes that each strategy makes to a process alone.
var strategies = map[string]func(Request, *States){
	"none":  func(Request, *States) {},
	"ddp":   ddp,
	"zero1": func(r Request, s *States) { zero(r, s, 1) },
	"zero2": func(r Request, s *States) { zero(r, s, 2) },
	"zero3": func(r Request, s *States) { zero(r, s, 3) },
	"fsdp":  fsdp,
}

const maxDevices = 1 << 16

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
		return fault.New(fault.InvalidArgument, fmt.Sprintf("pass 1 to %d processes", maxDevices),
			"%d devices share a model", r.Devices)
	}
	return nil
}
