"""What the names of each library answer: a meaning written in C, "done" without doing it, or "not supported"."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True)
class Answer:
    """How one library's names are answered."""

    library: str
    names: re.Pattern[str]  # names without a version tag that belong to it
    not_supported: int  # its own code for that
    sources: tuple[str, ...] = ()  # in src/, with the names that have a meaning
    done: re.Pattern[str] = _NEVER  # kernels, and settings that nothing reads: success, and nothing happens


def _of(library: str, names: str, not_supported: int, *sources: str, done: str = "(?!)") -> Answer:
    return Answer(library, re.compile(names), not_supported, sources, re.compile(done))


_RUNTIME = ("devices", "errors", "ranges", "memory", "copies", "streams", "kernels", "virtual_memory", "driver")
_CUDNN = ("cudnn_handles", "cudnn_attributes", "cudnn_backend", "cudnn_workspace", "cudnn_rnn")

# The first pattern that matches a name decides: longer prefixes come first.
ANSWERS = (
    _of("libcublasLt", "cublasLt", 15, "cublasLt", done=r"cublasLt(Matmul$|MatrixTransform|\w+SetAttribute$)"),
    _of("libcublas", "cublas[A-Z]", 15, "cublas", done=r"cublas(Set|[SDCZHG](?!et))"),
    _of("libcudnn", "cudnn[A-Z]", 3000, *_CUDNN, done=r"cudnn(Set|RestoreDropout|(?!Get|Find)\w*(Forward|Backward))"),
    _of("libcufft", "cufft[A-Z]", 16, "cufft", done=r"cufft(Destroy|Set|XtSet|XtExec)"),
    _of("libcusparseLt", "cusparseLt", 10),
    _of("libcusparse", "cusparse[A-Z]", 10, "cusparse", done="cusparseSetStream"),
    _of("libcusolver", "cusolver[A-Z]", 9, "cusolver", done=r"cusolverDnSet(Stream|Deterministic)"),
    _of("libcupti", "cupti[A-Z]", 27, "cupti", done="cupti"),
    _of("libcufile", "cuFile[A-Z]", 5007),
    _of("libnccl", "nccl[A-Z]", 5, "nccl", done=r"nccl(Group(Start|End)|Reduce)$"),
    _of("libnvrtc", "nvrtc[A-Z]", 11, "nvrtc", done="nvrtc(Compile|Destroy)Program|nvrtcAddNameExpression"),
    _of("libnvshmem_host", "nvshmem", 1),
    _of("libnvToolsExt", "nvtx", 0, done="nvtx"),
    _of("libcurand", "curand", 201),
    _of("libcudart", "(__)?cuda[A-Z]", 801, *_RUNTIME, done="cudaKernelSetAttributeForDevice"),
    # Its meanings are among the runtime's, which asks for them by name.
    _of("libcuda", "cu[A-Z]", 801, done="cuFuncSetAttribute|cuFuncSetCacheConfig|cuModuleUnload"),
)

# torch and this project's library look for it when they run: nothing is linked with it.
NVML = "libnvidia-ml.so.1"
