package kernel

import "github.com/asrconfig/asrconfig-go/core/fault"

// Sample is one kernel of the suite: what it computes and moves, and how to run it in PyTorch.
type Sample struct {
	Operation Operation `json:"operation"`
	// a function of python/asrconfig_go/benchmark/kernel_timing.py
	Recipe string  `json:"recipe"`
	Shape  []int64 `json:"shape"` // its sizes
}

// SuiteRequest asks for the kernels that are worth measuring on a card.
type SuiteRequest struct {
	// "7.5"; "", for a CPU, leaves float32 alone
	ComputeCapability string `json:"compute_capability"`
	// of the card; a kernel takes at most a quarter of it
	MemoryBytes float64 `json:"memory_bytes"`
	MostFLOPs   float64 `json:"most_flops"` // of a kernel; 0 for any
}

// mostOfMemory is the share of a card's memory that the tensors of one kernel may take.
const mostOfMemory = 0.25

// Suite lists kernels of the sizes that speech models train with, alternating between all kinds, so
// that any first part covers all of them. Errors: InvalidArgument without memory, or for a negative
// limit.
func Suite(r SuiteRequest) ([]Sample, error) {
	if !(r.MemoryBytes > 0 && r.MostFLOPs >= 0) {
		return nil, fault.New(fault.InvalidArgument, "pass the card's memory",
			"kernels for %v bytes of memory, of at most %v operations", r.MemoryBytes, r.MostFLOPs)
	}
	products, others := r.types()
	var byKind [][]Sample
	for _, d := range products {
		byKind = append(byKind, linear(d), batched(d), convolutions(d), attention(d))
	}
	for _, d := range others {
		byKind = append(byKind, elementwiseKernels(d), copies(d), sums(d), softmaxes(d), norms(d),
			embeddings(d))
	}
	byKind = append(byKind, updates())
	all := []Sample{}
	for i, more := 0, true; more; i++ {
		more = false
		for _, samples := range byKind {
			if i >= len(samples) {
				continue
			}
			more = true
			if o := samples[i].Operation; o.Bytes() <= mostOfMemory*r.MemoryBytes &&
				(r.MostFLOPs == 0 || o.FLOPs() <= r.MostFLOPs) {
				all = append(all, samples[i])
			}
		}
	}
	return all, nil
}

// types are those that products run in, and those of tensors in memory.
func (r SuiteRequest) types() (products, others []DType) {
	generation, ok := architectureOf(r.ComputeCapability)
	switch {
	case !ok:
		return []DType{Float32}, []DType{Float32}
	case generation.fastBFloat16:
		return []DType{Float32, TF32, Float16, BFloat16}, []DType{Float32, Float16, BFloat16}
	}
	return []DType{Float32, Float16}, []DType{Float32, Float16}
}

// multiplied is batch × (m×k by k×n), each matrix in memory once.
func multiplied(kind Kind, d DType, phase Phase, batch, m, n, k int64) Operation {
	size := d.size() * float64(batch)
	return Operation{Kind: kind, Phase: phase, DType: d, Batch: batch, M: m, N: n, K: k,
		Read: size * float64(m*k+k*n), Written: size * float64(m*n), Kernels: 1}
}

// moved is a kernel that reads and writes so many bytes.
func moved(kind Kind, d DType, phase Phase, read, written float64) Operation {
	return Operation{Kind: kind, Phase: phase, DType: d, Read: read, Written: written, Kernels: 1}
}

// sample names an operation by its recipe.
func sample(o Operation, recipe string, shape ...int64) Sample {
	o.Name, o.Times = recipe, 1
	return Sample{o, recipe, shape}
}

// linear are layers of 384 to 1280 channels over the frames of a micro-batch, forward and the
// gradient of their weights, which sums over all frames.
func linear(d DType) (all []Sample) {
	for _, s := range [][3]int64{{4096, 1024, 1024}, {1024, 768, 768}, {8192, 4096, 1024},
		{3000, 1024, 4096}, {6000, 1280, 1280}, {750, 512, 512},
		{12000, 512, 2048}, {1496, 3072, 768}, {2000, 32, 1024}, {448, 51865, 768},
		{16000, 384, 384}, {250, 1024, 1024}} {
		all = append(all, sample(multiplied(GEMM, d, Forward, 1, s[0], s[1], s[2]), "linear",
			s[:]...))
	}
	for _, s := range [][3]int64{{1024, 1024, 4096}, {768, 768, 12000}, {4096, 1024, 3000},
		{512, 512, 24000}, {1280, 1280, 6000}, {384, 1536, 16000}} {
		all = append(all, sample(multiplied(GEMM, d, Backward, 1, s[0], s[1], s[2]),
			"weight_gradient", s[:]...))
	}
	return all
}

// batched are scores and contexts of attention by separate products.
func batched(d DType) (all []Sample) {
	for _, s := range [][4]int64{{64, 500, 500, 64}, {64, 500, 64, 500}, {16, 1500, 1500, 64},
		{16, 1500, 64, 1500}, {96, 250, 250, 64}, {96, 64, 250, 250}, {32, 750, 750, 80},
		{128, 100, 64, 100}} {
		all = append(all, sample(multiplied(GEMM, d, Forward, s[0], s[1], s[2], s[3]), "bmm",
			s[:]...))
	}
	return all
}

// convolutions are those of feature encoders: clips, channels, length, filters, taps, stride.
func convolutions(d DType) (all []Sample) {
	for _, s := range [][6]int64{{4, 512, 8000, 512, 3, 2}, {8, 80, 3000, 768, 3, 1},
		{8, 768, 3000, 768, 3, 2}, {4, 512, 4000, 512, 2, 2}, {2, 1, 160000, 512, 10, 5}} {
		clips, channels, length, filters, taps := s[0], s[1], s[2], s[3], s[4]
		frames := (length-taps)/s[5] + 1
		size := d.size()
		in, weight, out := size*float64(clips*channels*length), size*float64(filters*channels*taps),
			size*float64(clips*filters*frames)
		o := multiplied(Convolution, d, Forward, 1, clips*frames, filters, channels*taps)
		o.Read, o.Written = in+weight, out
		all = append(all, sample(o, "convolution", s[:]...))
		o = multiplied(Convolution, d, Backward, 1, channels*taps, filters, clips*frames)
		o.Read, o.Written = in+out, weight
		all = append(all, sample(o, "convolution_weight_gradient", s[:]...))
		if channels > 1 { // audio has no gradient
			o = multiplied(Convolution, d, Backward, 1, clips*frames, channels*taps, filters)
			o.Read, o.Written = out+weight, in
			all = append(all, sample(o, "convolution_input_gradient", s[:]...))
		}
	}
	return all
}

// attention is fused: clips, heads, frames, size of a head.
func attention(d DType) (all []Sample) {
	for _, s := range [][4]int64{{8, 16, 500, 64}, {4, 12, 1500, 64}, {16, 16, 250, 64},
		{4, 16, 750, 80}} {
		operand := d.size() * float64(s[0]*s[1]*s[2]*s[3])
		o := Operation{Kind: Attention, Phase: Forward, DType: d, Batch: s[0] * s[1], M: s[2],
			N: s[2], K: s[3], Read: 3 * operand, Written: operand, Kernels: 1}
		all = append(all, sample(o, "attention", s[:]...))
		o.Phase, o.Read, o.Written, o.Kernels =
			Backward, 5*operand, 3*operand, FusedAttentionGradient.Kernels
		all = append(all, sample(o, "attention_backward", s[:]...))
	}
	return all
}

// elementwiseKernels go over a few elements, which a launch outlasts, to many.
func elementwiseKernels(d DType) (all []Sample) {
	size := d.size()
	for _, n := range []int64{1 << 24, 1 << 22, 1 << 26, 1 << 10, 1 << 20, 1 << 25} {
		bytes := size * float64(n)
		all = append(all, sample(moved(Elementwise, d, Forward, 2*bytes, bytes), "add", n),
			sample(moved(Elementwise, d, Forward, bytes, bytes), "gelu", n))
	}
	for _, s := range [][2]int64{{16384, 1024}, {4096, 1024}, {32768, 768}, {8192, 4096}} {
		bytes := size * float64(s[0]*s[1])
		all = append(all, sample(moved(Broadcast, d, Forward, bytes+size*float64(s[0]), bytes),
			"scale_rows", s[:]...))
	}
	return all
}

// copies exchange frames and heads: clips, frames, heads, size of a head.
func copies(d DType) (all []Sample) {
	for _, s := range [][4]int64{{8, 500, 16, 64}, {8, 1500, 12, 64}, {16, 1000, 16, 64},
		{32, 1000, 16, 64}} {
		bytes := d.size() * float64(s[0]*s[1]*s[2]*s[3])
		all = append(all, sample(moved(Copy, d, Forward, bytes, bytes), "transposed_copy", s[:]...))
	}
	return all
}

// sums are the gradients of biases.
func sums(d DType) (all []Sample) {
	for _, s := range [][2]int64{{16384, 1024}, {8192, 4096}, {4096, 1024}, {48000, 512}} {
		all = append(all, sample(moved(Reduction, d, Backward, d.size()*float64(s[0]*s[1]),
			d.size()*float64(s[1])), "column_sums", s[:]...))
	}
	return all
}

func softmaxes(d DType) (all []Sample) {
	for _, s := range [][2]int64{{32000, 500}, {12000, 1500}, {64000, 250}, {4000, 4096},
		{96000, 750}, {48000, 1500}, {16000, 1024}, {448, 51865}} {
		bytes := d.size() * float64(s[0]*s[1])
		o := moved(Softmax, d, Forward, bytes, bytes)
		o.Row = s[1]
		all = append(all, sample(o, "softmax", s[:]...))
	}
	return all
}

// norms are layer norms over rows, with two float32 for each row beside the result, and their
// gradients.
func norms(d DType) (all []Sample) {
	for _, s := range [][2]int64{{16384, 1024}, {12000, 768}, {4096, 1024}, {6000, 1280},
		{48000, 512}} {
		bytes, rows, scales := d.size()*float64(s[0]*s[1]), 8*float64(s[0]),
			2*d.size()*float64(s[1])
		all = append(all, sample(moved(Normalization, d, Forward, bytes+scales, bytes+rows),
			"layer_norm", s[:]...))
		o := moved(NormBackward, d, Backward, float64(NormGradient.Reads)*(2*bytes+rows+scales/2),
			bytes+scales)
		o.Kernels = NormGradient.Kernels
		all = append(all, sample(o, "layer_norm_backward", s[:]...))
	}
	return all
}

// embeddings look up tokens: how many, of a table of so many rows, so wide.
func embeddings(d DType) (all []Sample) {
	for _, s := range [][3]int64{{4096, 51865, 768}, {32768, 51865, 1024}, {16384, 1500, 1024}} {
		bytes := d.size() * float64(s[0]*s[2])
		all = append(all, sample(moved(Gather, d, Forward, bytes+8*float64(s[0]), bytes),
			"embedding", s[:]...))
	}
	return all
}

// updates are fused steps of AdamW over so many parameters, each in one launch.
func updates() (all []Sample) {
	for _, n := range []int64{1 << 24, 1 << 22, 20_000_000, 1 << 20} {
		all = append(all, sample(moved(Optimizer, Float32, OptimizerUpdate, 16*float64(n),
			12*float64(n)), "adamw", n))
	}
	return all
}
