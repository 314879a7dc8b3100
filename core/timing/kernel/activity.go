package kernel

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
