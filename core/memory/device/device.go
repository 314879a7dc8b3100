// Package device estimates what a training process holds on a GPU besides PyTorch's caching
// allocator: the CUDA context with the kernels loaded so far, and NCCL's buffers.
//
// Nothing here is exact: the figures are from tables of what others published.
package device

import (
	"cmp"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

const mib = 1 << 20

// Request asks for the terms of one process on one GPU.
type Request struct {
	GPU  GPU  `json:"gpu"`
	NCCL bool `json:"nccl"` // training on several GPUs
	GPUs *int `json:"gpus"` // how many take part, when known
}

// GPU is a device of the hardware profile, with its multiprocessors where they are known.
type GPU struct {
	profile.GPU
	// streaming multiprocessors; absent: looked up by name, else a range for the compute capability
	SMs *int `json:"sms"`
}

// Terms is what must be added to reserved memory. Sizes are bytes.
type Terms struct {
	ContextBytes uint64 `json:"context_bytes"`
	NCCLBytes    uint64 `json:"nccl_bytes"` // 0 without NCCL
	High         uint64 `json:"high"`       // the most that both may take together

	// the largest number known for such a card
	Multiprocessors          int `json:"multiprocessors"`
	ThreadsPerMultiprocessor int `json:"threads_per_multiprocessor"`
}

// Describe returns the terms of a process. Errors: InvalidArgument for a number of multiprocessors
// that no GPU has.
func Describe(r Request) (Terms, error) {
	low, high, err := r.GPU.multiprocessors()
	if err != nil {
		return Terms{}, err
	}
	threads := cmp.Or(residentThreads[r.GPU.ComputeCapability], 2048)
	terms := Terms{Multiprocessors: high, ThreadsPerMultiprocessor: threads}
	terms.ContextBytes, terms.High = context(low, high, threads)
	if r.NCCL {
		terms.NCCLBytes = ncclMore
		if r.GPUs != nil && *r.GPUs == 2 {
			terms.NCCLBytes = ncclTwo
		}
		terms.High += ncclCluster
	}
	return terms, nil
}

// Published sizes of NCCL's buffers, which are allocated by the driver, grow with channels,
// connections and communicators, and differ by topology (decimal megabytes in the reports). They
// are of one communicator that reduces gradients. Other collectives take more: 8 H100 went from
// 1.06 to 4.34 GB at their first all-to-all (NVIDIA/nccl#1685).
const (
	ncclTwo     = 544_000_000   // 2 x A100 over NVLink after one all-reduce (NVIDIA/nccl#964)
	ncclMore    = 688_000_000   // 3 or 4 of them (the same report)
	ncclCluster = 1_600_000_000 // one communicator across machines (NVIDIA/nccl#864)
)
