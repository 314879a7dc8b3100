package estimate

import (
	"maps"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// sweep is one go over all trained parameters: float32 tensors that it reads and writes, or parts
// of them in states of fewer bytes.
type sweep struct {
	name          string
	reads, writes float64
}

// sweeps of the optimizers' steps, as PyTorch 2.x has them without capturable and amsgrad.
var (
	fusedAdamW   = []sweep{{"AdamW", 4, 3}}
	foreachAdamW = []sweep{{"weight decay", 1, 1}, {"first moment", 2, 1},
		{"second moment, decayed", 1, 1}, {"second moment", 2, 1}, {"square root", 1, 1},
		{"bias correction", 1, 1}, {"epsilon", 1, 1}, {"update", 3, 1}}
	eightBitAdamW = []sweep{{"AdamW, 8-bit", 2.5, 1.5}} // either moment is a byte an element
	foreachSGD    = []sweep{{"update", 2, 1}}
	foreachSum    = []sweep{{"squares", 2, 1}, {"rate", 1, 1}, {"square root", 1, 1},
		{"epsilon", 1, 1}, {"update", 3, 1}}
	foreachMean = []sweep{{"squares, decayed", 1, 1}, {"squares", 2, 1}, {"square root", 1, 1},
		{"epsilon", 1, 1}, {"update", 3, 1}}
	adafactor = []sweep{{"squares", 1, 1}, {"epsilon", 1, 1}, {"means of rows", 1, 0},
		{"means of columns", 1, 0}, {"estimate of squares", 0, 1}, {"update", 2, 1},
		{"norm of update", 1, 0}, {"clipped update", 1, 1}, {"learning rate", 1, 1},
		{"negative", 1, 1}, {"parameters", 2, 1}}
	// torch.nn.utils.clip_grad_norm_, max_grad_norm of the Trainer
	clipping = []sweep{{"norm of gradients", 1, 0}, {"clipping", 1, 1}}
	unscaled = []sweep{{"unscaling", 1, 1}} // torch.amp.GradScaler
)

// rules of the optimizers' steps by the Trainer's names, with weight decay for AdamW alone, as
// plans have it.
var rules = map[string]struct {
	sweeps    []sweep
	eachAlone bool // parameters are updated one after the other
}{
	"adamw_torch":       {foreachAdamW, false},
	"adamw_torch_fused": {fusedAdamW, false},
	"adamw_8bit":        {eightBitAdamW, true},
	EightBit:            {eightBitAdamW, true},
	"adafactor":         {adafactor, true},
	"sgd":               {foreachSGD, false},
	"adagrad":           {foreachSum, false},
	"rmsprop":           {foreachMean, false},
}

// OptimizerNames are those whose time is known.
func OptimizerNames() []string { return slices.Sorted(maps.Keys(rules)) }

const float32Bytes = 4

// A launch of PyTorch's foreach and fused kernels covers a limited number of chunks and of tensors
// (aten/src/ATen/native/cuda/MultiTensorApply.cuh).
const chunkElements, chunksInLaunch, tensorsInLaunch = 65536, 320, 36

// update returns the operations of an optimizer step besides its micro-batches, gradient clipping
// and float16's unscaling included. Errors: Unsupported for an unknown optimizer.
func update(optimizer, precision string, parameters, tensors int64) ([]kernel.Operation, error) {
	rule, ok := rules[optimizer]
	if !ok {
		return nil, fault.New(fault.Unsupported, "choose one of "+
			strings.Join(OptimizerNames(), ", "),
			"the time of optimizer %q is not known", fault.Shorten(optimizer))
	}
	if parameters == 0 {
		return nil, nil
	}
	sweeps := clipping
	if precision == "fp16" {
		sweeps = append(unscaled, clipping...)
	}
	together := max((parameters+chunkElements*chunksInLaunch-1)/(chunkElements*chunksInLaunch),
		(tensors+tensorsInLaunch-1)/tensorsInLaunch)
	operations := sweepsOver(nil, sweeps, parameters, together)
	if rule.eachAlone {
		together = tensors
	}
	return sweepsOver(operations, rule.sweeps, parameters, together), nil
}

// accumulation adds the gradients of a further micro-batch to those that are there, one tensor
// after the other.
func accumulation(parameters, tensors int64) []kernel.Operation {
	if parameters == 0 {
		return nil
	}
	return sweepsOver(nil, []sweep{{"gradients, added up", 2, 1}}, parameters, tensors)
}

func sweepsOver(operations []kernel.Operation, sweeps []sweep,
	parameters, kernels int64) []kernel.Operation {
	for _, s := range sweeps {
		bytes := float64(float32Bytes * parameters)
		operations = append(operations, kernel.Operation{Name: s.name, Kind: kernel.Optimizer,
			Phase: kernel.OptimizerUpdate, DType: kernel.Float32,
			Read: s.reads * bytes, Written: s.writes * bytes, Kernels: kernels, Times: 1})
	}
	return operations
}
