// Package recovery decides what to do after a training step failed: what kind of failure it was,
// and with which micro-batch to go on. It is pure; Python clears the memory and runs the steps.
package recovery

import (
	"slices"
	"strings"
)

// Class is what a failure calls for.
type Class string

const (
	GPUOOM Class = "gpu_oom" // GPU memory ran out: continue with a smaller micro-batch
	// often a disguised lack of GPU memory: a smaller micro-batch is worth one attempt
	Maybe Class = "maybe"
	// host memory ran out: fewer loader workers; a smaller micro-batch does not help
	HostOOM Class = "host_oom"
	// the CUDA context or a collective is broken: only a new process helps
	Poisoned Class = "poisoned"
	Other    Class = "other" // nothing to do with memory
)

// Advice by class, shown with every row of the tables that has none of its own.
var advice = map[Class]string{
	GPUOOM: "GPU memory ran out; a smaller micro-batch with more accumulation keeps the " +
		"effective batch",
	Maybe: "this often hides a lack of GPU memory; one retry with a smaller micro-batch shows " +
		"whether it does",
	HostOOM: "host memory ran out, which a smaller micro-batch does not change; lower " +
		"dataloader_num_workers and the prefetch factor, or stream the dataset",
	Poisoned: "the process can no longer use the GPU; restart it and continue from the last " +
		"checkpoint",
	Other: "not a lack of memory; fix the cause and continue from the last checkpoint",
}

const (
	sharedMemory = "the loader's workers ran out of shared memory; lower dataloader_num_workers, " +
		"or give the container more (docker run --shm-size=8g)"
	openFiles = "the batches of the loader's workers take more open files than this process " +
		"may have; lower dataloader_num_workers, or raise the limit (ulimit -n 65536)"
	nvmlAssert = "GPU memory ran out on a device that hides its counters (a MIG slice, a " +
		"container); a smaller micro-batch keeps the effective batch; " +
		"if it fails at once again, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"
	collective = "a collective between GPUs failed, so the ranks no longer agree; restart all of " +
		"them from the last checkpoint"
	bug = "a wrong index or a defective kernel, not a lack of memory; run with " +
		"CUDA_LAUNCH_BLOCKING=1 to find it " +
		"(labels outside the vocabulary are the usual cause), then restart the process"
	defectiveGPU = "the GPU or its memory is failing; restart the process, and look at " +
		"nvidia-smi -q and the kernel log if it happens again"
)

// pattern is one way in which a failure shows: a text that holds every part.
type pattern struct {
	class  Class
	parts  []string // lower case
	advice string   // "" for that of the class
}

// patterns is searched from the top; the first match counts. Broken contexts come first, because
// their texts may also speak of memory. Parts are long enough not to match the notes that PyTorch
// adds to every CUDA error ("… to enable device-side assertions"). Texts are those of PyTorch 2.0
// to 2.15, cuBLAS, cuDNN, NCCL, ROCm, the Linux kernel and glibc.
var patterns = []pattern{
	{Poisoned, []string{"an illegal memory access was encountered"}, bug},
	{Poisoned, []string{"cudaerrorillegaladdress"}, bug},
	{Poisoned, []string{"device-side assert triggered"}, bug},
	{Poisoned, []string{"cudaerrorassert"}, bug},
	{Poisoned, []string{"unspecified launch failure"}, bug},
	{Poisoned, []string{"cudaerrorlaunchfailure"}, bug},
	{Poisoned, []string{"misaligned address"}, bug},
	{Poisoned, []string{"an illegal instruction was encountered"}, bug},
	{Poisoned, []string{"the launch timed out and was terminated"}, bug},
	{Poisoned, []string{"memory access fault by gpu node"}, bug}, // ROCm
	{Poisoned, []string{"uncorrectable ecc error"}, defectiveGPU},
	{Poisoned, []string{"uncorrectable nvlink error"}, defectiveGPU},
	{Poisoned, []string{"cudaerroreccuncorrectable"}, defectiveGPU},
	{Poisoned, []string{"hardware stack error"}, defectiveGPU},
	{Poisoned, []string{"fallen off the bus"}, defectiveGPU},
	{Poisoned, []string{"xid (pci:"}, defectiveGPU},
	{Poisoned, []string{"nvrm: xid"}, defectiveGPU},
	{Poisoned, []string{"nccl error"}, collective},
	{Poisoned, []string{"nccl communicator was aborted"}, collective},
	{Poisoned, []string{"ncclunhandledcudaerror"}, collective},
	{Poisoned, []string{"ncclsystemerror"}, collective},
	{Poisoned, []string{"ncclinternalerror"}, collective},
	{Poisoned, []string{"ncclremoteerror"}, collective},
	{Poisoned, []string{"watchdog caught collective operation timeout"}, collective},

	{GPUOOM, []string{"cuda out of memory"}, ""},
	{GPUOOM, []string{"cuda ran out of memory"}, ""}, // PyTorch 2.15: outside its allocator
	{GPUOOM, []string{"cuda error: out of memory"}, ""},
	{GPUOOM, []string{"cuda_error_out_of_memory"}, ""},
	{GPUOOM, []string{"cudaerrormemoryallocation"}, ""},
	{GPUOOM, []string{"cublas_status_alloc_failed"}, ""},
	{GPUOOM, []string{"cudnn_status_alloc_failed"}, ""},
	{GPUOOM, []string{"cusolver_status_alloc_failed"}, ""},
	{GPUOOM, []string{"cufft_alloc_failed"}, ""},
	{GPUOOM, []string{"nvml_success == r internal assert failed"}, nvmlAssert},
	{GPUOOM, []string{"mps backend out of memory"}, ""},
	{GPUOOM, []string{"hip out of memory"}, ""},
	{GPUOOM, []string{"hip error: out of memory"}, ""},
	{GPUOOM, []string{"hiperroroutofmemory"}, ""},
	{GPUOOM, []string{"hipblas_status_alloc_failed"}, ""},
	{GPUOOM, []string{"xpu out of memory"}, ""},

	{HostOOM, []string{"defaultcpuallocator", "can't allocate memory"}, ""},
	{HostOOM, []string{"defaultcpuallocator", "not enough memory"}, ""}, // Windows
	{HostOOM, []string{"workers are out of shared memory"}, sharedMemory},
	{HostOOM, []string{"insufficient shared memory (shm)"}, sharedMemory},
	{HostOOM, []string{"unable to allocate shared memory(shm)"}, sharedMemory},
	// PyTorch's names of files in shared memory
	{HostOOM, []string{"</torch_", "too many open files"}, openFiles},
	{HostOOM, []string{"received 0 items of ancdata"}, openFiles},
	{HostOOM, []string{"communication with the workers is no longer possible"}, openFiles},
	{HostOOM, []string{"</torch_"}, sharedMemory},
	{HostOOM, []string{"no space left on device", "/dev/shm"}, sharedMemory},
	{HostOOM, []string{"dataloader worker (pid", "is killed by signal: killed"}, ""},
	{HostOOM, []string{"dataloader worker (pid", "is killed by signal: bus error"}, sharedMemory},
	{HostOOM, []string{"cannot allocate memory"}, ""}, // ENOMEM in glibc's words
	{HostOOM, []string{"errno 12]"}, ""},
	{HostOOM, []string{"enomem"}, ""},
	{HostOOM, []string{"unable to mmap", "memory"}, ""},
	{HostOOM, []string{"unable to allocate", "for an array with shape"}, ""}, // numpy
	{HostOOM, []string{"std::bad_alloc"}, ""},

	{Maybe, []string{"unable to find an engine"}, ""},
	{Maybe, []string{"unable to find a valid cudnn algorithm"}, ""},
	{Maybe, []string{"cudnn_status_not_supported"}, ""},
	{Maybe, []string{"cudnn_status_internal_error"}, ""},
	{Maybe, []string{"cudnn_status_not_initialized"}, ""},
	{Maybe, []string{"cudnn_status_execution_failed"}, ""},
	{Maybe, []string{"cublas_status_not_initialized"}, ""},
	{Maybe, []string{"cublas_status_execution_failed"}, ""},
	{Maybe, []string{"miopenstatusallocfailed"}, ""},
	{Maybe, []string{"out of memory"}, ""}, // whose memory is not said
}

// types maps exception classes whose name alone decides, by their last part in lower case.
var types = map[string]Class{
	"outofmemoryerror":  GPUOOM, // torch.OutOfMemoryError, torch.cuda.OutOfMemoryError
	"memoryerror":       HostOOM,
	"_arraymemoryerror": HostOOM, // numpy
	"distbackenderror":  Poisoned,
}

// Classify returns the class of a failure from the exception's type ("torch.OutOfMemoryError",
// "RuntimeError") and text (str(exception)), with its meaning and remedy. Case does not matter. The
// text outranks the type, because loader workers and wrappers raise one type and quote another.
func Classify(excType, text string) (Class, string) {
	lower := strings.ToLower(text)
	if i := slices.IndexFunc(patterns, func(s pattern) bool { return s.in(lower) }); i >= 0 {
		return patterns[i].class, orAdvice(patterns[i].advice, patterns[i].class)
	}
	name := strings.ToLower(strings.TrimSpace(excType))
	class, ok := types[name[strings.LastIndexByte(name, '.')+1:]]
	if !ok {
		class = Other
	}
	return class, advice[class]
}

func (s pattern) in(text string) bool {
	for _, part := range s.parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

func orAdvice(text string, class Class) string {
	if text == "" {
		return advice[class]
	}
	return text
}
