// Package device estimates what a training process holds on a GPU besides PyTorch's caching
// allocator: the CUDA context with the kernels loaded so far, and NCCL's buffers.
//
// Nothing here is exact: the figures are from tables of what others published.
package device

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
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

// A context is a fixed part and one that grows with the threads that the GPU can hold at once: the
// driver keeps stack and scheduling state for each of them. Fitted by least squares to points
// (device_test.go has them, with their errors), for PyTorch 2 with CUDA 11.7 or newer, which load
// kernels when first used; before, all were loaded at once, 700 to 1100 MiB. The points are from
// reports of out-of-memory errors: Zheng-Chong/CatVTON#133, hpcaitech/Open-Sora#697,
// DengKaiCQ/VGGT-Long#6, DINGYANB/MTVCrafter#21, TianheWu/CoSeR#10, Wan-Video/Wan2.1#465,
// ali-vilab/VACE#56, 3DTopia/Phidias-Diffusion#8.
const (
	contextBase      = 31 * mib
	contextPerThread = 2.25 * mib / 1024 // bytes per resident thread
	contextHigh      = 1.3               // of the fit; the points lie between 0.83 and 1.12 of it
)

// residentThreads is how many threads a multiprocessor holds at once, by compute capability: the
// table "Technical Specifications per Compute Capability" of NVIDIA's CUDA programming guide. A
// capability that is not in it is taken as 2048.
var residentThreads = map[string]int{
	"3.7": 2048, "5.0": 2048, "5.2": 2048, "6.0": 2048, "6.1": 2048, "7.0": 2048, "7.5": 1024,
	"8.0": 2048, "8.6": 1536,
	"8.7": 1536, "8.9": 1536, "9.0": 2048, "10.0": 2048, "10.3": 2048, "12.0": 1536, "12.1": 1536,
}

// multiprocessors are the smallest and the largest number on cards of a compute capability, for
// names not in the catalogue.
var multiprocessors = map[string][2]int{
	"3.7": {13, 13}, "6.0": {56, 56}, "6.1": {5, 30}, "7.0": {80, 80}, "7.5": {14, 72},
	"8.0": {56, 108}, "8.6": {16, 84},
	"8.9": {20, 142}, "9.0": {114, 144}, "10.0": {132, 160}, "12.0": {20, 188},
}

// context is the table's answer for a card of so many multiprocessors, and the most that it may be.
func context(low, high, threads int) (bytes, most uint64) {
	middle := (fitted(low, threads) + fitted(high, threads)) / 2
	return uint64(math.Round(middle)), uint64(fitted(high, threads) * contextHigh)
}

func fitted(sms, threads int) float64 { return contextBase + contextPerThread*float64(sms*threads) }

// multiprocessors returns the range of the card's number.
func (g GPU) multiprocessors() (low, high int, err error) {
	if g.SMs != nil {
		if *g.SMs < 1 || *g.SMs > 1024 {
			err = fault.New(fault.InvalidArgument, "leave sms out to look it up",
				"a GPU of %d multiprocessors", *g.SMs)
		}
		return *g.SMs, *g.SMs, err
	}
	if sms, ok := cardMultiprocessors(g.Name); ok {
		return sms, sms, nil
	}
	if bounds, listed := multiprocessors[g.ComputeCapability]; listed {
		return bounds[0], bounds[1], nil
	}
	return 10, 200, nil
}

// cardMultiprocessors looks a driver's name up. A MIG slice "… MIG 3g.40gb" has 3 of 7 parts of its
// card, of 4 on the A30.
func cardMultiprocessors(name string) (int, bool) {
	name, slice, sliced := strings.Cut(name, " MIG ")
	card, _, err := gpus.Parse(name)
	sms := int(card.Multiprocessors)
	if err != nil || !sliced {
		return sms, err == nil
	}
	parts := 7
	if card.Key == "A30" {
		parts = 4
	}
	part, _, _ := strings.Cut(slice, "g.")
	share, err := strconv.Atoi(part)
	if err != nil || share < 1 || share > parts {
		return 0, false
	}
	return sms * share / parts, true
}
