// Package estimate predicts what surrounds a traced micro-batch: what its GPU holds besides the
// allocator's memory, and how long steps, evaluations and whole runs take.
package estimate

import (
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// DefaultOptimizer is the Trainer's default since transformers 5: AdamW in one kernel, whose step
// needs no temporary lists.
const DefaultOptimizer = "adamw_torch_fused"

// EightBit is AdamW with 8-bit state, by the Trainer's name.
const EightBit = "adamw_bnb_8bit"

// AllocatorSettings is what a plan sets PYTORCH_CUDA_ALLOC_CONF to: in batches of many lengths
// fixed segments keep gaps, growing ones do not.
const AllocatorSettings = "expandable_segments:True"

// Shortest is a length in seconds that every model takes; shorter clips count as this long.
const Shortest = 0.5

// HasEightBit reports whether an optimizer has a form with 8-bit state.
func HasEightBit(optimizer string) bool {
	return optimizer == "adamw_torch" || optimizer == "adamw_torch_fused"
}

// Lighter are the forms of an optimizer whose step takes less memory, in the order in which one
// would try them: the fused one computes the same without temporary lists, 8-bit state rounds.
func Lighter(optimizer string) (names []string) {
	if optimizer == "adamw_torch" {
		names = append(names, "adamw_torch_fused")
	}
	if HasEightBit(optimizer) {
		names = append(names, EightBit)
	}
	return names
}

// Remedy is a change, and the bytes that the training would then take of one GPU.
type Remedy struct {
	What      string `json:"what"`
	PeakBytes uint64 `json:"peak_bytes"`
	Fits      bool   `json:"fits"`
}

// Card is a GPU that one might take instead.
type Card struct {
	Key string
	GPU profile.GPU
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
