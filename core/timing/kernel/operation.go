// Package kernel predicts the seconds of single GPU kernels, and of steps made of them: from what
// an operation computes and moves, the card's specifications, and shares of them that were fitted
// on published measurements of operators (docs/timing.md). It does no I/O.
package kernel

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Kind is what limits an operation and how.
type Kind string

const (
	GEMM Kind = "gemm" // batch × (m×k by k×n)
	// as the product it amounts to: m outputs, n channels, k = channels × kernel
	Convolution Kind = "convolution"
	// a fused kernel: batch·heads × (m×k by k×n) and back, without the scores in memory
	Attention   Kind = "attention"
	Elementwise Kind = "elementwise" // contiguous operands
	// an operand repeated along an inner dimension, which needs an index calculation per element
	Broadcast     Kind = "broadcast"
	Copy          Kind = "copy"          // from or to another layout
	Reduction     Kind = "reduction"     // sums over rows or columns, losses
	Softmax       Kind = "softmax"       // over rows; Row tells which of two kernels runs
	Normalization Kind = "normalization" // layer norm, group norm
	NormBackward  Kind = "norm_backward" // with the gradients of scale and shift
	Gather        Kind = "gather"        // embeddings and their gradients
	Optimizer     Kind = "optimizer"     // elementwise over lists of parameters
	// between the card and pinned host memory: read on one side, written on the other
	Transfer Kind = "transfer"
)

// Phase is the part of a step that an operation belongs to.
type Phase string

const (
	Forward         Phase = "forward"
	Recomputation   Phase = "recomputation"
	Backward        Phase = "backward"
	OptimizerUpdate Phase = "optimizer"
)

// Phases in the order of a step.
var Phases = [...]Phase{Forward, Recomputation, Backward, OptimizerUpdate}

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
	switch d {
	case Float32, TF32:
		return 4
	case Float16, BFloat16:
		return 2
	}
	return 0
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
	// how often it comes in the step, on average; 0 is taken for once
	Times float64 `json:"times"`
}

// Bytes is what it moves.
func (o Operation) Bytes() float64 { return o.Read + o.Written }

// FLOPs is two for each multiply-add. Fused attention has two products forward and five backward,
// where the scores are computed again.
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

// Product reports whether operations of a kind have batch, m, n and k, and are bounded by
// arithmetic as well as by bytes.
func (k Kind) Product() bool { return k == GEMM || k == Convolution || k == Attention }

// mostBytes and mostElements bound what one operation can be given: beyond every card.
const mostBytes, mostElements = 1e15, int64(1) << 40

// Check refuses what no operation can be. Errors: InvalidArgument.
func (o Operation) Check() error {
	lowest := int64(0)
	if o.Kind.Product() {
		lowest = 1
	}
	switch {
	case o.DType.size() == 0:
		return o.wrong("the data type", o.DType)
	case !slices.Contains(Phases[:], o.Phase):
		return o.wrong("the phase", o.Phase)
	case !(o.Read >= 0 && o.Read <= mostBytes):
		return o.wrong("bytes read", o.Read)
	case !(o.Written >= 0 && o.Written <= mostBytes):
		return o.wrong("bytes written", o.Written)
	case !(o.Times >= 0 && o.Times <= float64(mostElements)):
		return o.wrong("times", o.Times)
	case !o.Kind.Product() && o.Bytes() == 0:
		return o.wrong("bytes moved", 0)
	}
	for _, field := range [...]struct {
		name       string
		value, low int64
	}{{"batch", o.Batch, lowest}, {"m", o.M, lowest}, {"n", o.N, lowest}, {"k", o.K, lowest},
		{"kernels", o.Kernels, 0}, {"a row of", o.Row, 0}} {
		if field.value < field.low || field.value > mostElements {
			return o.wrong(field.name, field.value)
		}
	}
	return nil
}

func (o Operation) wrong(field string, value any) error {
	return fault.New(fault.InvalidArgument, "record the operation again",
		"the operation %q has %s %v", fault.Shorten(o.Name), field, value)
}

// Activity is what PyTorch's kernels of an operation do: how many there are, and how often they go
// over what it reads and writes.
type Activity struct {
	Kind                   Kind
	Kernels, Reads, Writes int64 // no kernels: nothing runs
}

// Once is one kernel that goes over everything once.
func Once(kind Kind) Activity { return Activity{kind, 1, 1, 1} }

// Gradients that take more (aten/src/ATen/native/cuda).
var (
	// EmbeddingGradient clears the table's gradient, sorts the indices and adds rows up
	// (Embedding.cu).
	EmbeddingGradient = Activity{Gather, 2, 1, 1}
	// NormGradient goes over gradient and input twice: for the input's gradient, and for those of
	// scale and shift (layer_norm_kernel.cu).
	NormGradient = Activity{NormBackward, 3, 2, 1}
	// SoftmaxGradient multiplies gradient and result first, in a kernel of its own (SoftMax.cu,
	// softmax_backward_cuda_out).
	SoftmaxGradient = Activity{Elementwise, 2, 2, 2}
	// FusedAttentionGradient sums gradient times result, makes the gradients, and casts that of the
	// queries (flash_bwd_launch_template.h).
	FusedAttentionGradient = Activity{Attention, 3, 1, 1}
)

// Work is what the kernels of one micro-batch do, by a play or a trace of its step.
type Work struct {
	// of forward pass, recomputation and backward pass, equal ones together
	Operations []Operation `json:"operations"`
	// those with a gradient, which the optimizer updates
	TrainedParameters int64 `json:"trained_parameters"`
	TrainedTensors    int64 `json:"trained_tensors"` // how many tensors they are
}

// ModelFLOPs is the arithmetic of the model itself: its products forward and backward. Left out is
// what is computed again, by gradient checkpointing or by fused attention, which computes its
// scores again for the gradients.
func (w Work) ModelFLOPs() (sum float64) {
	for _, o := range w.Operations {
		switch {
		case !o.Kind.Product() || o.Phase != Forward && o.Phase != Backward:
		case o.Kind == Attention && o.Phase == Backward:
			sum += cmp.Or(o.Times, 1) * o.FLOPs() * 4 / 5
		default:
			sum += cmp.Or(o.Times, 1) * o.FLOPs()
		}
	}
	return sum
}

// ForwardPass is the operations of the forward pass alone, as an evaluation runs them: without
// dropout, which only training has.
func (w Work) ForwardPass() []Operation {
	forward := make([]Operation, 0, len(w.Operations))
	for _, o := range w.Operations {
		if o.Phase == Forward && o.Name != "dropout" {
			forward = append(forward, o)
		}
	}
	return forward
}
