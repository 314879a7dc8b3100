// Package kernel gives the seconds of single GPU kernels, and of steps made of them: from what an operation computes and moves, the
// card's specifications, and shares of them that were fitted on published measurements of operators (docs/kernel-time.md). It does no I/O.
package kernel

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Kind is what limits an operation and how.
type Kind string

const (
	GEMM          Kind = "gemm"          // batch × (m×k by k×n)
	Convolution   Kind = "convolution"   // as the product it amounts to: m outputs, n channels, k = channels × kernel
	Attention     Kind = "attention"     // a fused kernel: batch·heads × (m×k by k×n) and back, without the scores in memory
	Elementwise   Kind = "elementwise"   // contiguous operands
	Broadcast     Kind = "broadcast"     // an operand repeated along an inner dimension, which needs an index calculation per element
	Copy          Kind = "copy"          // from or to another layout
	Reduction     Kind = "reduction"     // sums over rows or columns, losses
	Softmax       Kind = "softmax"       // over rows; Row tells which of two kernels runs
	Normalization Kind = "normalization" // layer norm, group norm
	NormBackward  Kind = "norm_backward" // with the gradients of scale and shift
	Gather        Kind = "gather"        // embeddings and their gradients
	Optimizer     Kind = "optimizer"     // elementwise over lists of parameters
)

// Phase is the part of a step that an operation belongs to.
type Phase string

const (
	Forward         Phase = "forward"
	Recomputation   Phase = "recomputation"
	Backward        Phase = "backward"
	OptimizerUpdate Phase = "optimizer"
)

// DType is the type that products take; sums are kept in float32.
type DType string

const (
	Float32  DType = "float32"
	TF32     DType = "tf32" // float32 in memory, 19 bits in tensor cores
	Float16  DType = "float16"
	BFloat16 DType = "bfloat16"
)

// size is bytes of an element in memory; 0 for an unknown type.
func (d DType) size() float64 {
	return map[DType]float64{Float32: 4, TF32: 4, Float16: 2, BFloat16: 2}[d]
}

// Operation is one operation of a step, as a recorder counts it.
type Operation struct {
	Name    string  `json:"name"`
	Kind    Kind    `json:"kind"`
	Phase   Phase   `json:"phase"`
	DType   DType   `json:"dtype"`
	Batch   int64   `json:"batch,omitempty"` // of products, with M, N and K
	M       int64   `json:"m,omitempty"`
	N       int64   `json:"n,omitempty"`
	K       int64   `json:"k,omitempty"`
	Row     int64   `json:"row,omitempty"` // elements that a softmax runs over
	Read    float64 `json:"read"`          // bytes
	Written float64 `json:"written"`       // bytes
	Kernels int64   `json:"kernels"`       // launched for it; 0 is taken for one
	Times   int64   `json:"times"`         // how often it comes in the step; 0 is taken for once
}

// Bytes is what it moves.
func (o Operation) Bytes() float64 { return o.Read + o.Written }

// FLOPs is two for each multiply-add. Fused attention has two products forward and five backward, where the scores are computed again.
func (o Operation) FLOPs() float64 {
	products := 1.0
	if o.Kind == Attention && o.Phase == Backward {
		products = 5
	} else if o.Kind == Attention {
		products = 2
	}
	return products * 2 * float64(o.Batch) * float64(o.M) * float64(o.N) * float64(o.K)
}

func (o Operation) launches() float64 { return float64(max(1, o.Kernels)) }
func (o Operation) repeats() float64  { return float64(max(1, o.Times)) }

// product tells whether it is bounded by arithmetic as well as by bytes.
func (o Operation) product() bool {
	return o.Kind == GEMM || o.Kind == Convolution || o.Kind == Attention
}

// mostBytes and mostElements bound what one operation can be given: beyond every card.
const mostBytes, mostElements = 1e15, int64(1) << 40

// Check refuses what no operation can be. Errors: InvalidArgument.
func (o Operation) Check() error {
	wrong := func(what string, value any) error {
		return fault.New(fault.InvalidArgument, "record the operation again", "the operation %q has %s %v", fault.Shorten(o.Name), what, value)
	}
	if o.DType.size() == 0 {
		return wrong("the data type", o.DType)
	}
	for what, bytes := range map[string]float64{"bytes read": o.Read, "bytes written": o.Written} {
		if math.IsNaN(bytes) || bytes < 0 || bytes > mostBytes {
			return wrong(what, bytes)
		}
	}
	if o.Phase != Forward && o.Phase != Recomputation && o.Phase != Backward && o.Phase != OptimizerUpdate {
		return wrong("the phase", o.Phase)
	}
	least := int64(0)
	if o.product() {
		least = 1
	} else if o.Bytes() == 0 {
		return wrong("bytes moved", 0)
	}
	for what, length := range map[string]int64{"batch": o.Batch, "m": o.M, "n": o.N, "k": o.K} {
		if length < least || length > mostElements {
			return wrong(what, length)
		}
	}
	for what, count := range map[string]int64{"kernels": o.Kernels, "times": o.Times, "a row of": o.Row} {
		if count < 0 || count > mostElements {
			return wrong(what, count)
		}
	}
	return nil
}
