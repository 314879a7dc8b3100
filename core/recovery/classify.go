// Package recovery decides what to do after a training step failed: what kind of failure it was,
// and with which micro-batch to go on. It is pure; Python clears the memory and runs the steps.
package recovery

import (
	"cmp"
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

// pattern is the texts in which one kind of failure shows. A text of several parts, divided by
// "…", must hold every part.
type pattern struct {
	class  Class
	advice string   // "" for that of the class
	texts  []string // lower case
}

// patterns is searched from the top; the first match counts. Broken contexts come first, because
// their texts may also speak of memory. Texts are long enough not to match the notes that PyTorch
// adds to every CUDA error ("… to enable device-side assertions"). They are those of PyTorch 2.0 to
// 2.15, cuBLAS, cuDNN, NCCL, ROCm, the Linux kernel and glibc.
var patterns = []pattern{
	{Poisoned, bug, []string{
		"an illegal memory access was encountered", "cudaerrorillegaladdress",
		"device-side assert triggered", "cudaerrorassert",
		"unspecified launch failure", "cudaerrorlaunchfailure",
		"misaligned address", "an illegal instruction was encountered",
		"the launch timed out and was terminated",
		"memory access fault by gpu node", // ROCm
	}},
	{Poisoned, defectiveGPU, []string{
		"uncorrectable ecc error", "uncorrectable nvlink error", "cudaerroreccuncorrectable",
		"hardware stack error", "fallen off the bus", "xid (pci:", "nvrm: xid",
	}},
	{Poisoned, collective, []string{
		"nccl error", "nccl communicator was aborted", "ncclunhandledcudaerror",
		"ncclsystemerror", "ncclinternalerror", "ncclremoteerror",
		"watchdog caught collective operation timeout",
	}},
	{GPUOOM, nvmlAssert, []string{"nvml_success == r internal assert failed"}},
	{GPUOOM, "", []string{
		"cuda out of memory",
		"cuda ran out of memory", // PyTorch 2.15: outside its allocator
		"cuda error: out of memory", "cuda_error_out_of_memory", "cudaerrormemoryallocation",
		"cublas_status_alloc_failed", "cudnn_status_alloc_failed", "cusolver_status_alloc_failed",
		"cufft_alloc_failed", "mps backend out of memory", "hip out of memory",
		"hip error: out of memory", "hiperroroutofmemory", "hipblas_status_alloc_failed",
		"xpu out of memory",
	}},
	{HostOOM, "", []string{
		"defaultcpuallocator…can't allocate memory",
		"defaultcpuallocator…not enough memory", // Windows
	}},
	{HostOOM, sharedMemory, []string{
		"workers are out of shared memory", "insufficient shared memory (shm)",
		"unable to allocate shared memory(shm)",
	}},
	{HostOOM, openFiles, []string{
		"</torch_…too many open files", // PyTorch's names of files in shared memory
		"received 0 items of ancdata",
		"communication with the workers is no longer possible",
	}},
	{HostOOM, sharedMemory, []string{
		"</torch_", "no space left on device…/dev/shm",
		"dataloader worker (pid…is killed by signal: bus error",
	}},
	{HostOOM, "", []string{
		"dataloader worker (pid…is killed by signal: killed",
		"cannot allocate memory", "errno 12]", "enomem", // ENOMEM in glibc's words
		"unable to mmap…memory",
		"unable to allocate…for an array with shape", // numpy
		"std::bad_alloc",
	}},
	{Maybe, "", []string{
		"unable to find an engine", "unable to find a valid cudnn algorithm",
		"cudnn_status_not_supported", "cudnn_status_internal_error",
		"cudnn_status_not_initialized", "cudnn_status_execution_failed",
		"cublas_status_not_initialized", "cublas_status_execution_failed",
		"miopenstatusallocfailed",
		"out of memory", // whose memory is not said
	}},
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
	for _, p := range patterns {
		if p.in(lower) {
			return p.class, cmp.Or(p.advice, advice[p.class])
		}
	}
	name := strings.ToLower(strings.TrimSpace(excType))
	class, ok := types[name[strings.LastIndexByte(name, '.')+1:]]
	if !ok {
		class = Other
	}
	return class, advice[class]
}

func (p pattern) in(failure string) bool {
	return slices.ContainsFunc(p.texts, func(text string) bool {
		for part := range strings.SplitSeq(text, "…") {
			if !strings.Contains(failure, part) {
				return false
			}
		}
		return true
	})
}
