// Package device estimates what a training process holds on a GPU besides PyTorch's caching
// allocator: the CUDA context with the kernels loaded so far, and NCCL's buffers; and the
// workspaces of cuBLAS, which lie inside what the allocator reserves.
//
// Nothing here is exact. Every figure carries a range and says whether it was measured on this
// machine or comes from a table of what others published.
package device

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const mib = 1 << 20

// Request asks for the terms of one process on one GPU.
type Request struct {
	GPU   GPU    `json:"gpu"`
	Torch string `json:"torch"` // version, "2.15.0+cu132"; "" means the newest known
	NCCL  bool   `json:"nccl"`  // training on several GPUs
	GPUs  *int   `json:"gpus"`  // how many take part, when known

	// Both or neither: what NVML reports for this process, and torch.cuda.memory_reserved() at
	// the same moment, after the first training step, when the kernels are loaded.
	ProcessUsedBytes   *uint64 `json:"process_used_bytes"`
	TorchReservedBytes *uint64 `json:"torch_reserved_bytes"`
	// the measurement was taken after the first collective operation
	NCCLIncluded bool `json:"nccl_included"`
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
	// 0 without NCCL, and where the measured context holds it already
	NCCLBytes  uint64     `json:"nccl_bytes"`
	Low        uint64     `json:"low"`        // of both together
	High       uint64     `json:"high"`       // of both together
	Source     string     `json:"source"`     // of the context: "measured" or "table"
	Note       string     `json:"note"`       // how the context's figure came about
	Figures    []Figure   `json:"figures"`    // each term by itself
	Workspaces Workspaces `json:"workspaces"` // not to be added: they are inside reserved memory

	// the largest number known for such a card
	Multiprocessors          int `json:"multiprocessors"`
	ThreadsPerMultiprocessor int `json:"threads_per_multiprocessor"`
}

// Figure is one term with its range.
type Figure struct {
	Name       string   `json:"name"` // "context" or "nccl"
	Bytes      uint64   `json:"bytes"`
	Low        uint64   `json:"low"`
	High       uint64   `json:"high"`
	Source     string   `json:"source"` // "measured" or "table"
	Note       string   `json:"note"`
	References []string `json:"references"` // where the figures behind it were published
}

// Describe returns the terms of a process. Errors: InvalidArgument for a malformed compute
// capability or version, for half a measurement, and for one that cannot be.
func Describe(r Request) (Terms, error) {
	workspaces, err := WorkspacesOf(r.GPU.ComputeCapability, r.Torch)
	if err != nil {
		return Terms{}, err
	}
	context, err := r.context()
	if err != nil {
		return Terms{}, err
	}
	_, sms, _, err := r.GPU.multiprocessors()
	if err != nil {
		return Terms{}, err
	}
	terms := Terms{
		Multiprocessors: sms, ThreadsPerMultiprocessor: r.GPU.residentThreads(),
		ContextBytes: context.Bytes, Low: context.Low, High: context.High, Source: context.Source,
		Note:    context.Note,
		Figures: []Figure{context}, Workspaces: workspaces,
	}
	if r.NCCL && (context.Source == "table" || !r.NCCLIncluded) {
		nccl := ncclFigure(r.GPUs)
		terms.NCCLBytes = nccl.Bytes
		terms.Low += nccl.Low
		terms.High += nccl.High
		terms.Figures = append(terms.Figures, nccl)
	}
	return terms, nil
}

func (r Request) context() (Figure, error) {
	table, err := r.GPU.contextFigure()
	if err != nil {
		return Figure{}, err
	}
	switch {
	case r.ProcessUsedBytes == nil && r.TorchReservedBytes == nil:
		return table, nil
	case r.ProcessUsedBytes == nil || r.TorchReservedBytes == nil:
		return Figure{}, fault.New(fault.InvalidArgument, "give both, or neither for the table",
			"a measured context needs process_used_bytes and torch_reserved_bytes")
	default:
		return measured(*r.ProcessUsedBytes, *r.TorchReservedBytes, table)
	}
}

// laterKernels is the room left above a measurement for kernels that a process loads later on
// (evaluation, generation). It is judged, not measured: all of PyTorch's kernels together take 362
// MiB (pytorch/pytorch#86509, eager against lazy loading).
const laterKernels = 64 * mib

// implausible is how far outside the table's range a measurement is named as doubtful.
const implausible = 3

// measured subtracts what PyTorch has reserved from what the driver reports for the process.
func measured(used, reserved uint64, table Figure) (Figure, error) {
	if used < reserved {
		return Figure{}, fault.New(fault.InvalidArgument,
			"read both for the same process and device at one moment",
			"the process uses %d bytes, less than the %d that PyTorch has reserved in it", used,
			reserved)
	}
	bytes := used - reserved
	note := fmt.Sprintf("measured: %d MiB in use by the process less %d MiB reserved by PyTorch",
		used/mib, reserved/mib)
	switch {
	case bytes < table.Low/implausible:
		note += fmt.Sprintf("; doubtful: the table says at least %d MiB, so the driver may not "+
			"count all of the process", table.Low/mib)
	case bytes > table.High*implausible:
		note += fmt.Sprintf("; doubtful: the table says at most %d MiB, so another library may "+
			"hold memory too", table.High/mib)
	}
	return Figure{Name: "context", Bytes: bytes, Low: bytes, High: bytes + laterKernels,
		Source: "measured", Note: note,
		References: []string{}}, nil
}

// Published sizes of NCCL's buffers, which are allocated by the driver, grow with channels,
// connections and communicators, and differ by topology (decimal megabytes in the reports).
const (
	ncclTwo     = 544_000_000   // 2 x A100 over NVLink after one all-reduce (NVIDIA/nccl#964)
	ncclMore    = 688_000_000   // 3 or 4 of them (the same report)
	ncclCluster = 1_600_000_000 // one communicator across machines (NVIDIA/nccl#864)
)

// ncclFigure is the table's answer for one communicator that reduces gradients. Other collectives
// take more: 8 H100 went from 1.06 to 4.34 GB at their first all-to-all (NVIDIA/nccl#1685).
func ncclFigure(gpus *int) Figure {
	f := Figure{
		Name: "nccl", Bytes: ncclMore, Low: ncclTwo, High: ncclCluster, Source: "table",
		Note: "one communicator that all-reduces: 544 MB were measured for 2 GPUs, 688 MB " +
			"for 3 and 4, 1.6 GB across machines",
		References: []string{"NVIDIA/nccl#964", "NVIDIA/nccl#864", "NVIDIA/nccl#1685"},
	}
	if gpus != nil && *gpus == 2 {
		f.Bytes = ncclTwo
	}
	return f
}
