"""Memory of the GPUs and the host, sampled by a thread of the library: Python pays one short read, when it wants to."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._core import native
from .._core._layout import NO_MONITOR, STEP_KINDS, GPUStats, Stats, Step
from .._core.checks import checked
from .._core.declared import StepKind
from .._core.files import user_path
from .._core.records import from_json
from .._core.settings import INTERVAL_MS
from ..errors import AsrConfigError, ForkedProcessError, LibraryError
from .telemetry import Counters, GPUMemory, MemorySnapshot, RunLog, TorchCounters
from .watch_records import Activity, Alert, MemoryCheck, MemoryHistory

_NAN = float("nan")
_MAX_PENDING = 32  # steps
_STEP_FIELDS = ("number", "kind", "spent_s", "waited_s", "audio_s", "padded_s", "longest_s", "arithmetic_s")
_KINDS = {kind: number for number, kind in enumerate(STEP_KINDS)}


class MemoryMonitor:
    """Samples the memory of GPUs and host from construction until ``stop`` or the end of a ``with`` block.

    An abandoned monitor stops when it is collected, at the latest when the process ends. After the stop, reads return
    the last sample, and the run log lives as long as the object. Without a GPU the host is still watched. A forked
    child must not use it: reads raise ``ForkedProcessError`` there. A copied or pickled monitor has read nothing and
    samples nothing.

    Args:
        interval_ms: The sample interval in milliseconds, 1 to 60 000.
        reset_peaks: Whether every ``step`` resets PyTorch's peak counters, so that a step's peak is its own;
            ``torch.cuda.max_memory_allocated()`` then counts from the last step.
        pid: A process of another training, whose process tree is watched: its RAM, and which GPU memory is that of
            others. None for this process.
        library_path: NVIDIA's libnvidia-ml in place of this machine's, for tests.
        root: The folder that holds /proc and /sys in place of this machine's, for tests.

    Attributes:
        interval_ms: The sample interval in milliseconds.
        gpu_names: The names of the GPUs, in the order of all readings.
        gpu_error: Why no GPU is watched; ``""`` where one is.

    Raises:
        InvalidArgumentError: ``interval_ms`` or ``pid`` is out of range.

    Example:
        >>> with MemoryMonitor(interval_ms=20) as monitor:
        ...     monitor.read().host_total > 0
        True
    """

    def __init__(
        self,
        interval_ms: float = INTERVAL_MS,
        *,
        reset_peaks: bool = True,
        pid: int | None = None,
        library_path: str = "",
        root: str = "",
    ) -> None:
        from ..predict.hardware import driver_arguments

        self.interval_ms: float = checked("interval_ms", interval_ms, float)
        arguments = {"interval_ms": self.interval_ms, "library_path": library_path, "root": root, **driver_arguments()}
        arguments["pid"] = checked("pid", pid, int | None) or 0
        started = native.call("monitor.start", arguments)
        self.gpu_names: tuple[str, ...] = tuple(started["gpus"] or ())
        self.gpu_error: str = started["gpu_error"]
        self._handle: int | None = started["monitor"]
        self._running = True
        self._finalizer = weakref.finalize(self, _close, started["monitor"], os.getpid())
        self._stats = Stats()
        self._refresh = native.struct_call("ac_stats_read", started["monitor"], self._stats)
        self._gpus = [self._stats.gpu[i] for i in range(len(self.gpu_names))]
        self._step = Step()
        self._put = native.struct_call("ac_step_put", started["monitor"], self._step)
        self._pending: list[tuple[float, tuple[float | None, ...]]] = []
        """Steps that the library does not have yet: their end, and _STEP_FIELDS."""
        self._sent_at = float("-inf")
        self._torch = TorchCounters(checked("reset_peaks", reset_peaks, bool))
        self._number, self._last_step = 0, time.perf_counter()

    def read(self) -> MemorySnapshot:
        """Return the newest sample.

        Returns:
            Memory of the host and of each GPU.

        Raises:
            ForkedProcessError: The process was forked after the monitor was started.
            LibraryError: The library cannot be used any more.
        """
        self._read()
        stats = self._stats
        time_s = stats.unix_nanos / 1e9 if stats.samples else None
        host = (stats.host_total, stats.host_used, stats.host_peak) if stats.host_total else (None, None, None)
        total, used, peak = host
        gpus = tuple(map(_gpu_memory, self._gpus))
        return MemorySnapshot(time_s, stats.samples, stats.errors, total, used, peak, gpus)

    def headroom(self) -> tuple[int | None, ...]:
        """Return the bytes that training can still allocate on each GPU: free, or unused in PyTorch's cache.

        Returns:
            The bytes of each GPU, None while the driver does not answer. The cache counts from the first ``step`` on.

        Raises:
            ForkedProcessError: The process was forked after the monitor was started.
            LibraryError: The library cannot be used any more.
        """
        self._read()
        return tuple(gpu.headroom if gpu.valid else None for gpu in self._gpus)

    def step(
        self,
        number: int | None = None,
        *,
        kind: StepKind = "train",
        spent_s: float | None = None,
        waited_s: float | None = None,
        audio_s: float | None = None,
        padded_s: float | None = None,
        longest_s: float | None = None,
        arithmetic_s: float | None = None,
    ) -> None:
        """Report the end of an optimizer step, of an evaluation batch or of a checkpoint.

        PyTorch's counters are read when it is loaded and uses a GPU, of short steps once in ``interval_ms``: samples
        are no newer. After the stop, and in a copy, nothing happens.

        Args:
            number: The number of the optimizer step. None counts train steps automatically; other kinds then belong to
                the newest one.
            kind: ``"train"``, ``"evaluation"`` or ``"checkpoint"``.
            spent_s: The seconds since the last ``step``; for the first one since the monitor began, or since an
                ``event`` of kind ``"training"`` where the loop begins later. None measures them.
            waited_s: The part of ``spent_s`` that was spent waiting for the loader; None where unknown, as for all
                further arguments.
            audio_s: The seconds of audio in the step's batches, without padding.
            padded_s: The seconds of audio in the step's batches, with padding.
            longest_s: The seconds of their longest clip.
            arithmetic_s: The seconds that the model's arithmetic takes at the GPU's published rate.

        Raises:
            InvalidArgumentError: ``kind`` is unknown.
            ForkedProcessError: The process was forked after the monitor was started.
            LibraryError: The library cannot be used any more.
        """
        if not self._running:
            return
        now = time.perf_counter()
        kind_number = _KINDS.get(kind)
        if kind_number is None:
            checked("kind", kind, StepKind)
        if number is None:
            number = self._number + (kind == "train")
        elapsed, self._number, self._last_step = now - self._last_step, number, now
        spent_s = elapsed if spent_s is None else spent_s
        figures = (number, kind_number, spent_s, waited_s, audio_s, padded_s, longest_s, arithmetic_s)
        self._pending.append((now, figures))
        if kind != "train" or len(self._pending) == _MAX_PENDING or now - self._sent_at >= self.interval_ms / 1e3:
            self._send(now, self._torch.read())

    def _send(self, now: float, counters: Sequence[Counters] = ()) -> None:
        """Hand over the pending steps, the last one once for each GPU that this process uses."""
        steps, self._pending, self._sent_at, step = self._pending, [], now, self._step
        for later, (ended, values) in zip(range(len(steps) - 1, -1, -1), steps, strict=True):
            for name, value in zip(_STEP_FIELDS, values, strict=True):
                setattr(step, name, _NAN if value is None else value)
            step.ago_s, step.gpu = now - ended, -1
            step.allocated = step.reserved = step.peak_allocated = step.peak_reserved = _NAN
            if later or not counters:
                self._hot(self._put)
        for i, reading in enumerate(counters):
            step.gpu, step.allocated, step.reserved, step.peak_allocated, step.peak_reserved = reading
            if i > 0:  # its times count once
                step.spent_s = step.waited_s = step.audio_s = step.padded_s = step.longest_s = step.arithmetic_s = _NAN
            self._hot(self._put)

    def event(self, kind: str, text: str, gpu: int = -1) -> None:
        """Record something that happened, as ``event("training", "training begins")``. Not after the stop.

        Args:
            kind: What kind of event it is, such as ``"training"`` or ``"out_of_memory"``.
            text: What happened: a sentence without a full stop.
            gpu: The place of the GPU in ``gpu_names``; -1 for none.

        Raises:
            InvalidArgumentError: ``kind`` or ``text`` is empty.
            AsrConfigError: The monitor was stopped, or is a copy.
        """
        if kind == "training" and not self._number:  # what was set up before belongs to no step
            self._last_step = time.perf_counter()
        self._call("monitor.event", kind=kind, text=text, gpu=gpu)

    @property
    def alert_changes(self) -> int:
        """The number of alerts raised and cleared so far. Cheap to read: call ``alerts`` when it changes."""
        self._read()
        return int(self._stats.alerts)

    def alerts(self) -> tuple[Alert, ...]:
        """Return all alerts so far; also after the stop.

        Returns:
            The alerts, oldest first, with those that were cleared.

        Raises:
            AsrConfigError: The monitor is a copy.
        """
        return tuple(from_json(Alert, alert) for alert in self._ask("monitor.alerts")["alerts"])

    def check(self, limits: Mapping[str, float] | None = None) -> MemoryCheck:
        """Check memory against limits, and return what is new since the last check; also after the stop.

        The library decides what to warn of, how often, and when to clean up.

        Args:
            limits: ``warn_at``, ``hysteresis``, ``clean_at`` and ``cooldown_s``, as options of
                ``AdaptiveMemoryCallback``. None checks forecasts only.

        Returns:
            How full memory is, new messages, and whether to clean up now.

        Raises:
            AsrConfigError: The monitor is a copy.
        """
        return from_json(MemoryCheck, self._ask("monitor.check", **(limits or {})))

    def activity(self) -> Activity:
        """Return what the host and the GPUs did last, read about once a second; also after the stop.

        Returns:
            Loads, rates and temperatures; None for what is not known.

        Raises:
            AsrConfigError: The monitor is a copy.
        """
        return from_json(Activity, self._ask("monitor.activity"))

    def run_log(self) -> RunLog:
        """Return everything recorded so far; also after the stop.

        Returns:
            The run log, which ``report`` and ``export`` take.

        Raises:
            AsrConfigError: The monitor is a copy.
        """
        return RunLog.from_json(self._ask("monitor.run_log"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the run log to a file for ``report``, completely or not at all; also after the stop.

        Args:
            path: The file to write.

        Raises:
            NotFoundError: The file cannot be written.
            AsrConfigError: The monitor is a copy.
        """
        self._ask("monitor.save", path=str(user_path(path, "run log").absolute()))

    def history(self, max_points: int = 0) -> MemoryHistory:
        """Return memory over time. Not after the stop.

        Args:
            max_points: The largest number of points; 0 for as many as there are. A point has the highest value of the
                samples that it covers.

        Returns:
            The history of the host and of each GPU.

        Raises:
            AsrConfigError: The monitor was stopped, or is a copy.
        """
        return from_json(
            MemoryHistory, self._call("monitor.history", max_points=checked("max_points", max_points, int))
        )

    def stop(self) -> None:
        """Stop sampling. Stopping twice is harmless."""
        if self._running and not native.in_forked_child():
            with contextlib.suppress(LibraryError):
                self._send_pending()
            self._refresh()
            with contextlib.suppress(LibraryError):  # a library that panicked samples no more
                native.call("monitor.stop", {"monitor": self._handle})
        self._running = False

    @property
    def running(self) -> bool:
        """Whether samples are being taken."""
        return self._running and not native.in_forked_child()

    def _read(self) -> None:
        if self._running:
            self._hot(self._refresh)

    def _send_pending(self) -> None:
        if self._pending and self.running:
            self._send(time.perf_counter(), self._torch.read())

    def _hot(self, call: Callable[[], int]) -> None:
        if native.in_forked_child():
            raise ForkedProcessError(
                "a monitor was used in a process forked after it was started",
                "use it in the parent process only, or start workers with multiprocessing_context='spawn'",
            )
        code = call()
        if code == NO_MONITOR:  # the interpreter is ending, and the monitor was closed before this was called
            self._running = False
        elif code:
            raise LibraryError(
                f"the monitor could not be reached (code {code})", "an earlier panic is likely: restart the process"
            )

    def _call(self, op: str, **arguments: object) -> Any:
        if not self._running:
            raise AsrConfigError(f"{op}: the monitor was stopped", "ask before stop(), or start another MemoryMonitor")
        return self._ask(op, **arguments)

    def _ask(self, op: str, **arguments: object) -> Any:
        if self._handle is None:
            raise AsrConfigError(f"{op}: a copy of a monitor has no readings", "ask the monitor itself")
        self._send_pending()
        return native.call(op, {"monitor": self._handle, **arguments})

    def __enter__(self) -> MemoryMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __reduce__(self) -> tuple[Callable[[float], MemoryMonitor], tuple[float]]:
        # A handle is worth nothing in another process, and two owners of one would stop it twice.
        return _inert, (self.interval_ms,)

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"MemoryMonitor(interval_ms={self.interval_ms:g}, {len(self.gpu_names)} GPUs, {state})"


def _gpu_memory(gpu: GPUStats) -> GPUMemory:
    if not gpu.valid:
        return GPUMemory(None, None, None, None)
    allocated, reserved = (gpu.allocated, gpu.reserved) if gpu.torch_valid else (None, None)
    return GPUMemory(gpu.total, gpu.used, gpu.free, gpu.peak, allocated, reserved, gpu.headroom)


def _inert(interval_ms: float) -> MemoryMonitor:
    monitor = MemoryMonitor.__new__(MemoryMonitor)
    monitor.interval_ms = interval_ms
    monitor.gpu_names, monitor.gpu_error = (), "this is a copy of a monitor"
    monitor._handle, monitor._running, monitor._stats, monitor._gpus, monitor._pending = None, False, Stats(), [], []
    return monitor


def _close(handle: int, pid: int) -> None:
    if os.getpid() == pid:  # a forked child inherits the finalizer, but the monitor is its parent's
        with contextlib.suppress(LibraryError):  # a library that panicked samples no more
            native.call("monitor.close", {"monitor": handle})
