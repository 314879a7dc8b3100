"""Kernels of training steps, timed on a GPU: the table behind ``asrconfig profile-gpu``."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from .._core import native
from .._core.checks import checked
from .._core.declared import KERNEL_TABLE_VERSION
from .._core.output import ProgressBar
from .._core.random_state import rng_state, set_rng_state
from ..errors import InvalidArgumentError, UnsupportedError
from ..plan.environment import backends_kept
from ..predict.hardware import HardwareProfile
from ..predict.memory_settings import utc_day

_FORWARD_KERNELS = 5  # norm, product with its bias, GELU, dropout, sum
_BACKWARD_KERNELS = 9  # dropout, GELU, two products, the bias's sum, three of the norm, the residual's sum
_TYPES = {"float32": torch.float32, "tf32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_READINGS = 9  # of each kernel
_MAX_RUNS = 100  # in a reading: the driver queues about a thousand launches
_WARM_UP = 3
_CYCLES = 2e9  # of a GPU in a second, and more: it then waits a little longer than the CPU needs
_LONGEST_SLEEP_S = 0.1
_CPU_BYTES = 8e8  # for which kernels are chosen without a GPU
_LAYERS = 20  # run for one reading of the CPU's dispatch
Run = Callable[[], object]
Make = Callable[..., Any]  # a random tensor of these sizes


def _convolution_gradient(make: Make, sizes: Sequence[int], of_input: bool) -> Run:
    clips, channels, length, filters, taps, stride = sizes
    x, weight = make(clips, channels, length), make(filters, channels, taps)
    gradient = make(clips, filters, (length - taps) // stride + 1)
    backward, outputs = torch.ops.aten.convolution_backward, [of_input, not of_input, False]
    return lambda: backward(gradient, x, weight, None, [stride], [0], [1], False, [0], 1, outputs)


def _attention_backward(make: Make, *sizes: int) -> Run:
    operands = [make(*sizes).requires_grad_() for _ in range(3)]
    gradient = make(*sizes)
    with torch.enable_grad():
        result = functional.scaled_dot_product_attention(*operands)
    return lambda: torch.autograd.grad(result, operands, gradient, retain_graph=True)


def _layer_norm_backward(make: Make, rows: int, row: int) -> Run:
    x, weight, bias, gradient = make(rows, row), make(row), make(row), make(rows, row)
    _, mean, deviation = torch.native_layer_norm(x, [row], weight, bias, 1e-5)
    backward, outputs = torch.ops.aten.native_layer_norm_backward, [True, True, True]
    return lambda: backward(gradient, x, [row], mean, deviation, weight, bias, outputs)


def _embedding(make: Make, tokens: int, vocabulary: int, width: int) -> Run:
    table = make(vocabulary, width)
    return partial(functional.embedding, torch.randint(vocabulary, (tokens,), device=table.device), table)


def _adamw(make: Make, parameters: int) -> Run:
    weight = make(parameters).requires_grad_()
    weight.grad = make(parameters)
    optimizer = torch.optim.AdamW([weight], fused=True)
    return lambda: optimizer.step()


RECIPES: dict[str, Callable[..., Run]] = {
    "linear": lambda make, m, n, k: partial(functional.linear, make(m, k), make(n, k)),
    "weight_gradient": lambda make, m, n, k: partial(torch.matmul, make(k, m).t(), make(k, n)),
    "bmm": lambda make, batch, m, n, k: partial(torch.bmm, make(batch, m, k), make(batch, k, n)),
    "convolution": lambda make, clips, channels, length, filters, taps, stride: partial(
        functional.conv1d, make(clips, channels, length), make(filters, channels, taps), stride=stride
    ),
    "convolution_weight_gradient": lambda make, *sizes: _convolution_gradient(make, sizes, of_input=False),
    "convolution_input_gradient": lambda make, *sizes: _convolution_gradient(make, sizes, of_input=True),
    "attention": lambda make, *sizes: partial(
        functional.scaled_dot_product_attention, make(*sizes), make(*sizes), make(*sizes)
    ),
    "attention_backward": _attention_backward,
    "add": lambda make, elements: partial(torch.add, make(elements), make(elements)),
    "gelu": lambda make, elements: partial(functional.gelu, make(elements)),
    "scale_rows": lambda make, rows, row: partial(torch.mul, make(rows, row), make(rows, 1)),
    "transposed_copy": lambda make, *sizes: make(*sizes).transpose(1, 2).contiguous,
    "column_sums": lambda make, rows, row: partial(torch.sum, make(rows, row), 0),
    "softmax": lambda make, rows, row: partial(torch.softmax, make(rows, row), -1),
    "layer_norm": lambda make, rows, row: partial(functional.layer_norm, make(rows, row), (row,), make(row), make(row)),
    "layer_norm_backward": _layer_norm_backward,
    "embedding": _embedding,
    "adamw": _adamw,
}


def training_layer(make: Make, width: int = 64) -> tuple[Run, int]:
    """A small layer's forward and backward pass, and its kernels as a recorded step counts them."""
    x = make(32, width)
    weight, bias, scale, shift = (
        make(*sizes).requires_grad_() for sizes in ((width, width), (width,), (width,), (width,))
    )
    trained = [x.requires_grad_(), weight, bias, scale, shift]

    def run() -> None:
        with torch.enable_grad():
            hidden = functional.gelu(functional.linear(functional.layer_norm(x, (width,), scale, shift), weight, bias))
            y = x + functional.dropout(hidden, 0.1)
            torch.autograd.grad(y, trained, x.detach())

    return run, _FORWARD_KERNELS + _BACKWARD_KERNELS


def measure_kernels(
    device: str = "cuda", *, minutes: float = 3.0, most_flops: float = 0.0, progress: bool = False
) -> dict[str, Any]:
    """Time the kernels that ``timing.kernels`` lists for a card, in at most about ``minutes``.

    ``most_flops`` leaves out larger products; 0 keeps all. Returns the table that ``timing.profile`` reads. Raises
    ``UnsupportedError`` without a GPU, ``InvalidArgumentError`` for minutes that are none.
    """
    if not checked("minutes", minutes, float) > 0:
        raise InvalidArgumentError(f"minutes = {minutes!r} is not above 0", "pass 3, for example")
    clock = _CPUClock() if device == "cpu" else _GPUClock(device)
    deadline = time.perf_counter() + 60 * minutes
    request = {**clock.card, "most_flops": checked("most_flops", most_flops, float)}
    samples = native.call("timing.kernels", request)["samples"]
    rows = []
    with clock.current(), _switches_restored(), ProgressBar("kernels", "kernel", len(samples), progress) as advance:
        overheads = _overheads(clock)
        for i, sample in enumerate(samples):
            remaining = deadline - time.perf_counter()
            if remaining <= 0:
                break
            readings = _readings(sample, clock, remaining / (len(samples) - i))
            rows += [] if readings is None else [_row(sample, readings)]
            advance(i + 1, len(samples))
    return {"version": KERNEL_TABLE_VERSION, **clock.described, "date": utc_day(), **overheads, "kernels": rows}


def _row(sample: dict[str, Any], readings: list[float]) -> dict[str, Any]:
    tenths = statistics.quantiles(readings, n=10, method="inclusive")
    return {**sample["operation"], "seconds": statistics.median(readings), "low_s": tenths[0], "high_s": tenths[-1]}


class _CPUClock:
    """Times on the CPU, to try the measurement out without a GPU."""

    def __init__(self) -> None:
        self.device = "cpu"
        self.card = {"compute_capability": "", "memory_bytes": _CPU_BYTES}
        self.described = {"gpu": "CPU", "memory_bytes": 0, "driver": "", "torch": torch.__version__, "cuda": ""}

    def current(self) -> contextlib.AbstractContextManager[Any]:
        """Nothing to choose."""
        return contextlib.nullcontext()

    def seconds(self, run: Run, times: int) -> float:
        """Seconds of one of ``times`` consecutive runs."""
        start = time.perf_counter()
        for _ in range(times):
            run()
        return (time.perf_counter() - start) / times


class _GPUClock:
    """Times kernels by events. The GPU sleeps until the CPU has queued them all, as in a busy step."""

    def __init__(self, device: str) -> None:
        if not torch.cuda.is_available():
            raise UnsupportedError("there is no GPU to measure", "run it where torch.cuda.is_available()")
        self.device = device
        properties = torch.cuda.get_device_properties(device)
        capability = f"{properties.major}.{properties.minor}"
        self.card = {"compute_capability": capability, "memory_bytes": float(torch.cuda.mem_get_info(device)[0])}
        hardware = HardwareProfile.detect()  # whose memory includes what is reserved, unlike torch's
        memory = {gpu.name: gpu.memory_total_bytes for gpu in hardware.gpus}
        self.described = {
            "gpu": properties.name, "memory_bytes": memory.get(properties.name, int(properties.total_memory)),
            "driver": hardware.driver_version or "",
            "torch": torch.__version__, "cuda": torch.version.cuda or "",
        }  # fmt: skip

    def current(self) -> contextlib.AbstractContextManager[Any]:
        """Events, sleeps and waits go to the queue of the current GPU, which is cuda:0 unless another is chosen."""
        chosen: contextlib.AbstractContextManager[Any] = torch.cuda.device(self.device)
        return chosen

    def seconds(self, run: Run, times: int) -> float:
        """Seconds of one of ``times`` consecutive runs, on the GPU."""
        before = time.perf_counter()
        run()
        dispatch = time.perf_counter() - before
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        torch.cuda._sleep(int(_CYCLES * min(2 * dispatch * times, _LONGEST_SLEEP_S)))
        start.record()
        for _ in range(times):
            run()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / times


@contextlib.contextmanager
def _switches_restored() -> Iterator[None]:
    state = rng_state()
    with backends_kept(), torch.no_grad():
        try:
            torch.backends.cudnn.benchmark = True  # as plans set it
            yield
        finally:
            set_rng_state(state)


def _maker(clock: _CPUClock | _GPUClock, dtype: torch.dtype) -> Any:
    return lambda *sizes: torch.randn(*sizes, device=clock.device, dtype=dtype)


def _overheads(clock: _CPUClock | _GPUClock) -> dict[str, float]:
    """The overhead of a kernel: on the GPU behind others, and on the CPU in the two passes of a layer."""
    make = _maker(clock, torch.float32)
    tiny = RECIPES["add"](make, 1024)
    layer, kernels = training_layer(make)
    dispatched = _CPUClock()  # tiny kernels are done before the CPU comes with the next
    for _ in range(_WARM_UP):
        clock.seconds(tiny, _MAX_RUNS)
        dispatched.seconds(layer, _LAYERS)
    launch = statistics.median(clock.seconds(tiny, _MAX_RUNS) for _ in range(_READINGS))
    dispatch = statistics.median(dispatched.seconds(layer, _LAYERS) for _ in range(_READINGS)) / kernels
    return {"launch_s": launch, "dispatch_s": dispatch}


def _readings(sample: dict[str, Any], clock: _CPUClock | _GPUClock, budget_s: float) -> list[float] | None:
    """Seconds of single runs; None for a kernel that this card or this version of torch cannot run."""
    operation = sample["operation"]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = operation["dtype"] == "tf32"
    begin = time.perf_counter()
    try:
        run = RECIPES[sample["recipe"]](_maker(clock, _TYPES[operation["dtype"]]), *sample["shape"])
        for _ in range(_WARM_UP):  # cuDNN tries its kernels out
            run()
        about = max(clock.seconds(run, _WARM_UP), 1e-7)
        remaining = max(0.0, budget_s - (time.perf_counter() - begin))
        times = int(min(_MAX_RUNS, max(1, remaining / about / _READINGS)))
        return [clock.seconds(run, times) for _ in range(_READINGS)]
    except (RuntimeError, NotImplementedError):  # out of memory among them
        return None
