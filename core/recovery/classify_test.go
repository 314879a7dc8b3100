package recovery

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// notes is what PyTorch appends to every CUDA error; it must not be taken for the error.
const notes = "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect." +
	"\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1" +
	"\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"

type failure struct {
	excType, text string
	class         Class
}

var failures = []failure{
	{"torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.75 GiB of which 1.06 GiB is free.", GPUOOM},
	{"torch.cuda.OutOfMemoryError", "", GPUOOM},
	{"OutOfMemoryError", "CUDA ran out of memory outside PyTorch's allocator. If this workload uses many dynamic shapes, cuDNN may need more.", GPUOOM},
	{"torch.OutOfMemoryError", "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit.", GPUOOM},
	{"RuntimeError", "CUDA error: out of memory" + notes, GPUOOM},
	{"torch.AcceleratorError", "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in the documentation for more information." + notes, GPUOOM},
	{"RuntimeError", "Unexpected error from cudaMalloc: cudaErrorMemoryAllocation", GPUOOM},
	{"RuntimeError", "CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY", GPUOOM},
	{"RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", GPUOOM},
	{"RuntimeError", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED", GPUOOM},
	{"RuntimeError", "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`", GPUOOM},
	{"RuntimeError", "cuFFT error: CUFFT_ALLOC_FAILED", GPUOOM},
	{"RuntimeError", `NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":995, please report a bug to PyTorch.`, GPUOOM},
	{"RuntimeError", "MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 1.00 GB, max allowed: 9.07 GB).", GPUOOM},
	{"torch.OutOfMemoryError", "HIP out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15.98 GiB", GPUOOM},
	{"RuntimeError", "HIP error: out of memory", GPUOOM},
	{"RuntimeError", "hipErrorOutOfMemory", GPUOOM},
	{"RuntimeError", "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`", GPUOOM},
	{"torch.OutOfMemoryError", "XPU out of memory. Tried to allocate 2.00 GiB.", GPUOOM},

	{"RuntimeError", "GET was unable to find an engine to execute this computation", Maybe},
	{"RuntimeError", "FIND was unable to find an engine to execute this computation", Maybe},
	{"RuntimeError", "Unable to find a valid cuDNN algorithm to run convolution", Maybe},
	{"RuntimeError", "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.", Maybe},
	{"RuntimeError", "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", Maybe},
	{"RuntimeError", "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", Maybe},
	{"RuntimeError", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", Maybe},
	{"RuntimeError", "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", Maybe},
	{"RuntimeError", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`", Maybe},
	{"RuntimeError", "miopenStatusAllocFailed", Maybe},
	{"XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.", Maybe},

	{"MemoryError", "", HostOOM},
	{"numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 7.45 GiB for an array with shape (1000000000,) and data type float64", HostOOM},
	{"numpy._core._exceptions._ArrayMemoryError", "", HostOOM},
	{"OSError", "[Errno 12] Cannot allocate memory", HostOOM},
	{"OSError", "[Errno 12] Not enough space", HostOOM},
	{"OSError", "fork failed: ENOMEM", HostOOM},
	{"RuntimeError", "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 3077222400 bytes. Error code 12 (Cannot allocate memory)", HostOOM},
	{"RuntimeError", "[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to allocate 5077901088 bytes.", HostOOM},
	{"RuntimeError", "DataLoader worker (pid 1234) is killed by signal: Killed. ", HostOOM},
	{"RuntimeError", "DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.", HostOOM},
	{"RuntimeError", "DataLoader worker (pid 77) is killed by signal: Bus error. ", HostOOM},
	{"RuntimeError", "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", HostOOM},
	{"RuntimeError", "unable to allocate shared memory(shm) for file </torch_1>: Success (0)", HostOOM},
	{"RuntimeError", "unable to open shared memory object </torch_1_2_3> in read-write mode: Too many open files (24)", HostOOM},
	{"RuntimeError", "received 0 items of ancdata", HostOOM},
	{"RuntimeError", "Too many open files. Communication with the workers is no longer possible. Please increase the limit using `ulimit -n` in the shell", HostOOM},
	{"FileNotFoundError", "[Errno 2] No such file or directory: '/dev/shm/clips/a.wav'", Other},
	{"RuntimeError", "unable to open shared memory object </torch_1_2_3> in read-write mode: No space left on device (28)", HostOOM},
	{"RuntimeError", "unable to write to file </torch_1_2_3>: No space left on device (28)", HostOOM},
	{"RuntimeError", "unable to resize file </torch_1_2_3> to the right size: No space left on device (28)", HostOOM},
	{"OSError", "[Errno 28] No space left on device: '/dev/shm/torch_1_2'", HostOOM},
	{"RuntimeError", "$ Torch: unable to mmap memory: you tried to mmap 4GB.", HostOOM},
	{"RuntimeError", "std::bad_alloc", HostOOM},

	{"RuntimeError", "CUDA error: an illegal memory access was encountered" + notes, Poisoned},
	{"torch.AcceleratorError", "CUDA error: device-side assert triggered" + notes, Poisoned},
	{"RuntimeError", "CUDA error: unspecified launch failure" + notes, Poisoned},
	{"RuntimeError", "CUDA error: uncorrectable ECC error encountered" + notes, Poisoned},
	{"RuntimeError", "CUDA error: uncorrectable NVLink error detected during the execution" + notes, Poisoned},
	{"RuntimeError", "cudaErrorECCUncorrectable", Poisoned},
	{"RuntimeError", "cudaErrorLaunchFailure", Poisoned},
	{"RuntimeError", "cudaErrorIllegalAddress", Poisoned},
	{"RuntimeError", "cudaErrorAssert", Poisoned},
	{"RuntimeError", "CUDA error: misaligned address" + notes, Poisoned},
	{"RuntimeError", "CUDA error: an illegal instruction was encountered" + notes, Poisoned},
	{"RuntimeError", "CUDA error: the launch timed out and was terminated" + notes, Poisoned},
	{"RuntimeError", "CUDA error: hardware stack error" + notes, Poisoned},
	{"RuntimeError", "Memory access fault by GPU node-1 on address 0x7f. Reason: Page not present", Poisoned},
	{"RuntimeError", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", Poisoned},
	{"RuntimeError", "NVRM: Xid 31", Poisoned},
	{"RuntimeError", "Xid (PCI:0000:3b:00): 48", Poisoned},
	{"RuntimeError", "Unable to determine the device handle for GPU: GPU has fallen off the bus", Poisoned},
	{"torch.distributed.DistBackendError", "", Poisoned},
	{"torch.distributed.DistBackendError", "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error. Last error: Cuda failure 'out of memory'", Poisoned},
	{"RuntimeError", "NCCL communicator was aborted on rank 1.", Poisoned},
	{"RuntimeError", "ncclUnhandledCudaError: Call to CUDA function failed.", Poisoned},
	{"RuntimeError", "ncclSystemError: System call failed", Poisoned},
	{"RuntimeError", "ncclInternalError: Internal check failed", Poisoned},
	{"RuntimeError", "ncclRemoteError: A call failed possibly due to a network error", Poisoned},
	{"RuntimeError", "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42)", Poisoned},

	{"RuntimeError", "CUDA error: no kernel image is available for execution on the device" + notes, Other},
	{"RuntimeError", "mat1 and mat2 shapes cannot be multiplied (4x8 and 16x4)", Other},
	{"RuntimeError", "DataLoader worker (pid 9) is killed by signal: Segmentation fault. ", Other},
	{"RuntimeError", `NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at "PeerToPeerAccess.cpp":83`, Other},
	{"triton.OutOfResources", "out of resource: shared memory, Required: 147456, Hardware limit: 101376.", Other},
	{"OSError", "[Errno 28] No space left on device", Other},
	{"KeyboardInterrupt", "", Other},
	{"", "", Other},
}

func TestClassify(t *testing.T) {
	for _, f := range failures {
		class, advised := Classify(f.excType, f.text)
		assert.Equal(t, f.class, class, "%s: %s", f.excType, f.text)
		assert.NotEmpty(t, advised)
		class, _ = Classify(strings.ToUpper(f.excType), strings.ToUpper(f.text))
		assert.Equal(t, f.class, class, "upper case: %s", f.text)
	}
}

func TestAWorkersQuoteOutranksTheType(t *testing.T) {
	class, advised := Classify("MemoryError", "Caught OutOfMemoryError in replica 1 on device 1.\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB")
	assert.Equal(t, GPUOOM, class)
	assert.Contains(t, advised, "effective batch")
}

// Every text must be reachable: a failure of the table above holds it, and is decided by its row.
func TestEverySignIsTested(t *testing.T) {
	for i, row := range patterns {
		for _, text := range row.texts {
			decides := func(f failure) bool {
				lower := strings.ToLower(f.text)
				return pattern{texts: []string{text}}.in(lower) && i == slices.IndexFunc(patterns, func(p pattern) bool { return p.in(lower) })
			}
			assert.True(t, slices.ContainsFunc(failures, decides), "no test text for %q", text)
		}
	}
}

func TestAdviceFitsTheCause(t *testing.T) {
	for text, want := range map[string]string{
		"DataLoader worker (pid 1) is killed by signal: Bus error.":  "--shm-size",
		"received 0 items of ancdata":                                "ulimit -n",
		"NVML_SUCCESS == r INTERNAL ASSERT FAILED":                   "expandable_segments:False",
		"CUDA error: device-side assert triggered":                   "vocabulary",
		"DataLoader worker (pid 1) is killed by signal: Killed.":     "dataloader_num_workers",
		"NCCL error in: x":                                           "ranks",
		"CUDA error: uncorrectable ECC error encountered":            "nvidia-smi",
		"GET was unable to find an engine to execute this operation": "one retry",
	} {
		_, advised := Classify("RuntimeError", text)
		assert.Contains(t, advised, want)
	}
}

func FuzzClassify(f *testing.F) {
	for _, s := range failures {
		f.Add(s.excType, s.text)
	}
	f.Add("a.b.", "\xff\x00")
	f.Fuzz(func(t *testing.T, excType, text string) {
		class, advised := Classify(excType, text)
		if _, ok := advice[class]; !ok || advised == "" {
			t.Fatalf("class %q, why %q", class, advised)
		}
	})
}
