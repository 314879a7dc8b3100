"""Kernels of training steps, timed on a GPU: the table behind ``asrconfig profile-gpu`` (docs/timing.md)."""

from __future__ import annotations

import contextlib
import datetime
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch

from .._base import native
from .._base.checks import checked
from .._base.errors import InvalidArgumentError, UnsupportedError
from .._base.progress import ProgressBar
from .._base.random_state import rng_state, set_rng_state
from ..apply.torch_backends import backends_kept
from ..machine.hardware import HardwareProfile
from .kernel_recipes import RECIPES, Run, training_layer

VERSION = 1  # of the table's format, as in core/timing/kernel
_TYPES = {"float32": torch.float32, "tf32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_READINGS = 9  # of each kernel
_MAX_RUNS = 100  # in a reading: the driver queues about a thousand launches
_WARM_UP = 3
_CYCLES = 2e9  # of a GPU in a second, and more: it then waits a little longer than the CPU needs
_LONGEST_SLEEP_S = 0.1
_CPU_BYTES = 8e8  # for which kernels are chosen without a GPU
_LAYERS = 20  # run for one reading of the CPU's dispatch


def measure_kernels(
    device: str = "cuda", *, minutes: float = 3.0, most_flops: float = 0.0, progress: bool = False
) -> dict[str, Any]:
    """Time the kernels that ``timing.kernels`` lists for a card, in at most about ``minutes``.

    ``most_flops`` leaves out larger products; 0 keeps all. Returns the table that ``timing.profile`` reads. Raises
    ``UnsupportedError`` without a GPU, ``InvalidArgumentError`` for minutes that are none.
    """
    if not checked("minutes", minutes, float) > 0:
        raise InvalidArgumentError(f"minutes = {minutes!r} is not above 0", "give 3, say")
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
    today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    return {"version": VERSION, **clock.described, "date": today, **overheads, "kernels": rows}


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
        """Of one of so many runs in a row."""
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
        """Of one of so many runs in a row, on the GPU."""
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
