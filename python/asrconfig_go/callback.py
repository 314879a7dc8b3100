"""A ``TrainerCallback`` that watches memory while training runs: warns, cleans up, and draws curves in TensorBoard."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from transformers.trainer_callback import CallbackHandler, TrainerCallback

from ._checks import checked
from ._errors import InvalidArgumentError, LibraryError
from .backends import TrainingSwitches
from .guard.callback import GuardCallback
from .guard.step_times import follow_steps
from .loss_kind import multiplied_by_accumulation
from .monitor import MemoryMonitor, MemorySnapshot

if TYPE_CHECKING:
    from .config import TrainingConfig

logger = logging.getLogger("asrconfig_go")

_GIB = 1 << 30
_FRAMES_TO_HANDLER = 5  # subclasses that call super() put their own frames in between


class MemoryReader(Protocol):
    """What the callback needs of a ``MemoryMonitor``."""

    @property
    def running(self) -> bool:
        """Whether samples are being taken."""

    def gpu_fraction(self) -> float | None:
        """Used share of the fullest GPU."""

    def host_fraction(self) -> float | None:
        """Used share of the host's memory."""

    def read(self) -> MemorySnapshot:
        """The newest sample; after the stop the last one."""

    def stop(self) -> None:
        """Take no more samples."""


@dataclass(frozen=True)
class MemorySummary:
    """A training run's memory. Sizes are bytes, None where nothing could be read.

    ``errors`` counts failed samples; ``problem`` says why there was no monitor, ``""`` when there was one.
    """

    gpu_peaks: tuple[int | None, ...]
    gpu_totals: tuple[int | None, ...]
    host_peak: int | None
    host_total: int | None
    samples: int
    errors: int
    warnings: int
    clean_ups: int
    problem: str

    def __str__(self) -> str:
        if self.problem:
            return f"memory was not watched: {self.problem}"
        pairs = [(f"GPU {i}", *pair) for i, pair in enumerate(zip(self.gpu_peaks, self.gpu_totals, strict=True))]
        peaks = [_of(*pair) for pair in [*pairs, ("host", self.host_peak, self.host_total)]]
        counts = f"{self.warnings} warnings, {self.clean_ups} clean-ups, {self.errors} failed of {self.samples} samples"
        return f"peak memory: {', '.join(peaks)}; {counts}"


def _of(name: str, used: int | None, total: int | None) -> str:
    if used is None or not total:
        return f"{name} unknown"
    return f"{name} {used / _GIB:.1f} of {total / _GIB:.1f} GiB ({used / total:.0%})"


class _Crossing:
    """True once when a share reaches ``threshold``, and again only after it fell ``hysteresis`` below it."""

    __slots__ = ("armed", "rearm_below", "threshold")

    def __init__(self, threshold: float, hysteresis: float) -> None:
        self.threshold, self.rearm_below, self.armed = threshold, threshold - hysteresis, True

    def reached(self, share: float) -> bool:
        if self.armed:
            if share >= self.threshold:
                self.armed = False
                return True
        elif share < self.rearm_below:
            self.armed = True
        return False


class AdaptiveMemoryCallback(TrainerCallback):  # type: ignore[misc]
    """Watches GPU memory while training runs, host memory where there is no GPU.

    At ``warn_at`` of the fullest GPU a warning is logged, at ``clean_at`` garbage is collected and PyTorch's cache is
    given back to the driver, each once per crossing: again only after the share fell ``hysteresis`` below. All three
    are shares of 0 to 1. The sampler reads every ``interval_ms`` milliseconds; a step pays one short read.

    The Trainer's own reporters (TensorBoard, …) get ``asrconfig/gpu0_memory_used_gib``,
    ``asrconfig/gpu0_memory_fraction``, and so on for every GPU and the host, beside every logged training loss; nothing
    is added to evaluation metrics. Reporters run before other callbacks, so this one moves itself to the front.

    ``config.cudnn_benchmark`` and ``config.deterministic`` are set while training runs and put back afterwards (see
    ``backends``). On several nodes each node's first
    process watches all its GPUs; the other processes do not clean up. A monitor that cannot start is reported and
    never stops the training.

    Sampling ends with the training. The Trainer tells callbacks nothing of exceptions: after one (Ctrl-C included)
    ``manager.train`` and a ``with callback:`` block stop the sampler, else it ends with the next training, the
    callback's collection or the process.
    """

    def __init__(
        self,
        config: TrainingConfig | None = None,
        *,
        warn_at: float = 0.90,
        clean_at: float = 0.95,
        hysteresis: float = 0.05,
        interval_ms: float = 100.0,
        monitor: Callable[[], MemoryReader] | None = None,
    ) -> None:
        """``monitor`` makes the reader, for tests; by default a ``MemoryMonitor``.

        Raises ``InvalidArgumentError`` unless 0 < warn_at < clean_at ≤ 1 and 0 ≤ hysteresis < warn_at.
        """
        warn_at, clean_at = checked("warn_at", warn_at, float), checked("clean_at", clean_at, float)
        hysteresis = checked("hysteresis", hysteresis, float)
        if not 0 < warn_at < clean_at <= 1 or not 0 <= hysteresis < warn_at:
            raise InvalidArgumentError(
                f"warn_at = {warn_at}, clean_at = {clean_at}, hysteresis = {hysteresis} are no shares in that order",
                "0 < warn_at < clean_at <= 1 and 0 <= hysteresis < warn_at; the defaults are 0.90, 0.95 and 0.05",
            )
        self.interval_ms: float = checked("interval_ms", interval_ms, float)
        self._switches = TrainingSwitches(config)
        self._make = monitor
        self._monitor: MemoryReader | None = None
        self._thresholds = (warn_at, clean_at, hysteresis)
        self._problem = "no training has begun"
        self._reset()

    def attach(self, trainer: Any) -> None:
        """Add this callback to a trainer that lacks it, and put it before the reporters."""
        if not any(callback is self for callback in trainer.callback_handler.callbacks):
            trainer.add_callback(self)
        self._lead(trainer.callback_handler)

    def summary(self) -> MemorySummary:
        """Peaks and counts of the running or the last training."""
        shot = self._monitor.read() if self._monitor else MemorySnapshot(None, 0, 0, None, None, None, ())
        return MemorySummary(
            gpu_peaks=tuple(gpu.peak for gpu in shot.gpus),
            gpu_totals=tuple(gpu.total for gpu in shot.gpus),
            host_peak=shot.host_peak,
            host_total=shot.host_total,
            samples=shot.samples,
            errors=shot.errors,
            warnings=self._warnings,
            clean_ups=self._clean_ups,
            problem=self._problem,
        )

    def stop(self) -> None:
        """End the sampling and put torch's switches back. Harmless when nothing runs."""
        if self._monitor is not None:
            self._monitor.stop()
        self._switches.put_back()

    def __enter__(self) -> AdaptiveMemoryCallback:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Events of the Trainer.

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Move before the reporters."""
        self._lead(self._handler(sys._getframe(1)))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start sampling. A second begin without an end, as after a recovery, goes on with the same monitor."""
        handler = self._handler(sys._getframe(1))
        self._lead(handler)
        follow_steps(handler)
        self._switches.set()
        if kwargs.get("model") is not None and state.is_world_process_zero:
            _name_multiplied_gradients(args, kwargs["model"], handler)
        if state.is_local_process_zero and not (self._monitor and self._monitor.running):
            self._start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look at memory; so after every micro-batch and every prediction."""
        self._look()

    on_substep_end = on_step_end
    on_prediction_step = on_step_end

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add the memory figures to what the Trainer is about to report of a training step."""
        if self._active() and state.is_world_process_zero and logs and "loss" in logs:
            logs.update(self._scalars())

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End sampling."""
        self.stop()

    # How.

    def _start(self) -> None:
        self._reset()
        try:
            self._monitor = self._make() if self._make else MemoryMonitor(self.interval_ms)
            self._problem = ""
        except LibraryError as error:
            self._give_up(error)

    def _reset(self) -> None:
        warn_at, clean_at, hysteresis = self._thresholds
        self._warn, self._clean = _Crossing(warn_at, hysteresis), _Crossing(clean_at, hysteresis)
        self._warnings = self._clean_ups = 0

    def _active(self) -> bool:
        return self._monitor is not None and self._monitor.running

    def _look(self) -> None:
        monitor = self._monitor
        if monitor is None or not monitor.running:
            return
        try:
            share = monitor.gpu_fraction()
            if share is None:
                share = monitor.host_fraction()
        except LibraryError as error:
            self._give_up(error)
            return
        if share is None:
            return
        if self._warn.reached(share):
            self._warnings += 1
            _say(f"{self._fullest()} is over {self._warn.threshold:.0%}")
        if self._clean.reached(share):
            self._clean_ups += 1
            _say(f"{self._fullest()} is over {self._clean.threshold:.0%}: unused memory is given back")
            _give_back_memory()

    def _give_up(self, error: LibraryError) -> None:
        """Go on without a monitor: a training run is worth more than its curves."""
        if self._monitor is not None:
            self._monitor.stop()
        self._monitor, self._problem = None, str(error)
        _say(f"memory is not watched: {error}")

    def _fullest(self) -> str:
        assert self._monitor is not None
        shot = self._monitor.read()
        shares = [gpu.fraction or 0.0 for gpu in shot.gpus]
        if not any(shares):
            return "memory: " + _of("host", shot.host_used, shot.host_total)
        index = shares.index(max(shares))
        return "memory: " + _of(f"GPU {index}", shot.gpus[index].used, shot.gpus[index].total)

    def _scalars(self) -> dict[str, float]:
        assert self._monitor is not None
        shot = self._monitor.read()
        parts = [(f"gpu{i}", gpu.used, gpu.fraction) for i, gpu in enumerate(shot.gpus)]
        parts.append(("host", shot.host_used, shot.host_fraction))
        scalars = {}
        for name, used, share in parts:
            if used is not None and share is not None:
                scalars[f"asrconfig/{name}_memory_used_gib"] = round(used / _GIB, 4)
                scalars[f"asrconfig/{name}_memory_fraction"] = round(share, 4)
        return scalars

    def _lead(self, handler: Any) -> None:
        """Move to the front. While the handler walks the list, this neither skips nor repeats anyone."""
        if handler is not None:
            handler.callbacks.remove(self)
            handler.callbacks.insert(0, self)

    def _handler(self, frame: FrameType | None) -> Any:
        """The handler that is calling. A callback is given everything but that, so its frame is asked."""
        for _ in range(_FRAMES_TO_HANDLER):
            if frame is None:
                break
            caller = frame.f_locals.get("self")
            if isinstance(caller, CallbackHandler) and any(callback is self for callback in caller.callbacks):
                return caller
            frame = frame.f_back
        return None


def _name_multiplied_gradients(args: Any, model: Any, handler: Any) -> None:
    """Say so when accumulation multiplies the gradient, which only the guard corrects."""
    steps = args.gradient_accumulation_steps
    guarded = handler is not None and any(isinstance(callback, GuardCallback) for callback in handler.callbacks)
    if steps > 1 and not guarded and multiplied_by_accumulation(model):
        logger.warning(
            "the Trainer multiplies the gradient of %s by the %d accumulation steps (transformers issue 47688); "
            "attach the guard, manager.attach(trainer), or train without accumulation",
            type(model).__name__,
            steps,
        )


def _give_back_memory() -> None:
    gc.collect()
    torch = sys.modules.get("torch")  # where it was never imported, it holds nothing
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _say(message: str) -> None:
    """Log a warning without tearing the Trainer's progress bars."""
    with _bars_cleared():
        logger.warning(message)


@contextlib.contextmanager
def _bars_cleared() -> Iterator[None]:
    try:
        from tqdm import tqdm
    except ImportError:
        yield
        return
    with tqdm.external_write_mode(file=sys.stderr):
        yield
