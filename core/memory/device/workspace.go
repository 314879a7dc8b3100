package device

import (
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Workspaces are the buffers of cuBLAS and cuBLASLt with CUBLAS_WORKSPACE_CONFIG and
// CUBLASLT_WORKSPACE_SIZE unset. PyTorch takes them from its caching allocator, so they count as
// reserved. Sizes are bytes.
type Workspaces struct {
	// per thread that multiplies: the training thread, and autograd's on the device
	CuBLASBytes   uint64 `json:"cublas_bytes"`
	CuBLASLtBytes uint64 `json:"cublaslt_bytes"` // for one call of a fused matrix product
	Kept          bool   `json:"kept"`           // until the process ends; else for one call
	Source        string `json:"source"`         // where the sizes are set
}

// workspaceDefaults are the defaults by the version of PyTorch that began with them, newest first:
// parseChosenWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp and the pull requests named.
var workspaceDefaults = []struct {
	major, minor int
	large        []int // major compute capabilities with 32 MiB
	others       uint64
	kept         bool
	source       string
}{
	// taken for one call, TORCH_CUBLAS_WORKSPACE_CACHE unset
	{2, 15, []int{9, 10, 11, 12}, pooled, false, "pytorch/pytorch#194311"},
	{2, 14, []int{9, 10, 11, 12}, pooled, true, "pytorch/pytorch#189312"},
	{2, 12, []int{9, 10, 12}, pooled, true, "pytorch/pytorch#175344"},
	{2, 0, []int{9}, pooled, true, "pytorch/pytorch#89027"},
	{1, 13, nil, 4 * mib, true, "pytorch/pytorch#86167"},
}

const (
	// ":4096:2:16:8", two buffers of 4 MiB and eight of 16 KiB
	pooled        = (2*4096 + 8*16) << 10
	largePool     = 32 * mib
	cublasLtBytes = 1 * mib // pytorch/pytorch#101145
)

// WorkspacesOf returns the defaults for a compute capability ("8.6") and a version of PyTorch
// ("2.15.0+cu132", "" for the newest known; before 1.13 cuBLAS took its memory itself, outside the
// allocator: 0). Errors: InvalidArgument where either is not of that form.
func WorkspacesOf(capability, torch string) (Workspaces, error) {
	architecture, _, ok := twoNumbers(capability)
	if !ok {
		return Workspaces{}, fault.New(fault.InvalidArgument, `write it as "8.6"`,
			"compute capability %q", fault.Shorten(capability))
	}
	major, minor := workspaceDefaults[0].major, workspaceDefaults[0].minor
	if torch != "" {
		if major, minor, ok = twoNumbers(torch); !ok {
			return Workspaces{}, fault.New(fault.InvalidArgument, `write it as "2.15.0"`,
				"version of PyTorch %q", fault.Shorten(torch))
		}
	}
	for _, v := range workspaceDefaults {
		if major < v.major || (major == v.major && minor < v.minor) {
			continue
		}
		w := Workspaces{CuBLASBytes: v.others, CuBLASLtBytes: cublasLtBytes, Kept: v.kept,
			Source: v.source}
		for _, large := range v.large {
			if large == architecture {
				w.CuBLASBytes = largePool
			}
		}
		return w, nil
	}
	return Workspaces{Source: workspaceDefaults[len(workspaceDefaults)-1].source}, nil
}

// twoNumbers reads the two numbers that a version starts with.
func twoNumbers(version string) (first, second int, ok bool) {
	major, right, hasDot := strings.Cut(version, ".")
	if end := strings.IndexFunc(right, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		right = right[:end]
	}
	first, errFirst := strconv.Atoi(major)
	second, errSecond := strconv.Atoi(right)
	return first, second, hasDot && errFirst == nil && errSecond == nil && first >= 0
}
