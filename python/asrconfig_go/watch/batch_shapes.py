"""The batches of a training: their shapes, the wait for them, the work in them, and which are predicted not to fit.

A hook before the model's forward is the one place that needs neither the Trainer nor its loader, sees the micro-batches
that are really computed, after a guard has split them too, and comes before any memory of theirs is taken.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from transformers.trainer_callback import TrainerCallback

from .._core.batches import time_axis
from .._core.render import GIB, plural
from ..errors import InvalidArgumentError
from ..predict.length_table import GRID_S, fits_in
from .alerts import BestEffort

if TYPE_CHECKING:
    import torch
    from torch.nn import Module

    from ..plan.plan_record import PlanRecord
    from ..plan.plan_records import Arithmetic
    from ..predict.memory_model import MemoryModel

_NAMES = ("input_values", "input_features")
_PIECES_A_SECOND, _PIECES_A_CLIP = 10, 16  # at which masks are looked at, as many at least of the longest clip
_WORSE = 1.05  # times the last warning, for another one


class UsefulWork:
    """Seconds that micro-batches would take at ``rate`` FLOP/s, as arXiv 2204.02311 defines it in appendix B."""

    def __init__(self, arithmetic: Arithmetic, rate: float) -> None:
        self._arithmetic, self._rate = arithmetic, rate

    def seconds(self, clips: int, padded_s: float, named: Mapping[str, object]) -> float:
        """Seconds of ``clips`` padded to ``padded_s`` seconds, forward and backward; ``named``: the model's input."""
        units = padded_s
        if self._arithmetic.unit == "labels":
            shape: tuple[int, ...] = getattr(named.get("labels"), "shape", ())
            units = float(shape[1]) if len(shape) == 2 else 0.0
        constant, linear, square = self._arithmetic.clip_flops
        return clips * (constant + units * (linear + units * square)) / self._rate


def useful_work(config: PlanRecord | None, device: torch.device | None) -> UsefulWork | None:
    """For a training of the plan ``config`` on a GPU with a published rate; None for others, and without a plan."""
    arithmetic = None if config is None else config.arithmetic
    if arithmetic is None or arithmetic.rate is None or getattr(device, "type", "") != "cuda":
        return None
    return UsefulWork(arithmetic, arithmetic.rate)


class LoaderWait(TrainerCallback):  # type: ignore[misc]
    """Measures the time from the end of all else to the start of a step: the Trainer fetches a step's batches there.

    It is the last of the callbacks, so that what others do after a step, a log or a checkpoint is not taken for the
    loader's time. On a GPU this is what the CPU waits; the GPU may still be busy with the step before.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._since: float | None = None
        self.total = 0.0
        """Seconds since training began."""
        self.last: float | None = None
        """Seconds before the newest step; None where that is not known."""

    def on_epoch_begin(self, *_: object, **__: object) -> None:
        """Batches are fetched from now on, as after a step, a log, an evaluation or a checkpoint."""
        self._since = self._clock()

    on_step_end = on_log = on_evaluate = on_save = on_epoch_begin

    def on_step_begin(self, *_: object, **__: object) -> None:
        """The batches are there."""
        self.last = None if self._since is None else self._clock() - self._since
        self.total += self.last or 0.0

    def known(self) -> float | None:
        """``total``, for a ``TimeShare``; None before a wait was measured."""
        return None if self.last is None else self.total


BeforeBatch = Callable[[int, float], None]
"""Called with clips and seconds of the longest one, padding included."""


class BatchShapes:
    """Adds up the batches of ``model`` between two calls of ``take``, until ``leave``.

    ``before_training`` is called before each forward of a training, and ``work`` counts its arithmetic. Durations are
    those of the model's input, which some models pad to a fixed length (Whisper). Durations without padding are only
    known where the attention mask is in host memory: reading it from a GPU would wait for the GPU.
    """

    def __init__(
        self, model: Module, before_training: BeforeBatch | None = None, work: UsefulWork | None = None
    ) -> None:
        self._model, self._before, self._work = model, before_training, work
        self.arithmetic_s: float | None = None
        """Seconds of useful arithmetic of all trainings so far; None where unknown."""
        self._careful = BestEffort("lengths of batches are not recorded")
        self._rates: dict[str, float | None] = {}
        self._padded = self._longest = self._audio = self._needed = 0.0
        self._all_masked = True
        self._hook = model.register_forward_pre_hook(functools.partial(self._careful, self._look), with_kwargs=True)

    def take(self) -> dict[str, float]:
        """Seconds since the last call, as ``MemoryMonitor.step`` takes them; empty where nothing is known."""
        if not self._padded:
            return {}
        totals = {"padded_s": self._padded, "longest_s": self._longest}
        if self._all_masked:
            totals["audio_s"] = min(self._audio, self._padded)
        if self._needed:
            totals["arithmetic_s"] = self._needed
            self.arithmetic_s = (self.arithmetic_s or 0.0) + self._needed
        self._padded = self._longest = self._audio = self._needed = 0.0
        self._all_masked = True
        return totals

    def leave(self) -> None:
        """Remove the hook."""
        self._hook.remove()

    def _look(self, model: Module, positional: object, named: Mapping[str, torch.Tensor]) -> None:
        from ..predict.worst_batch import per_second

        for name in _NAMES:
            shape: tuple[int, ...] = getattr(named.get(name), "shape", ())
            if len(shape) >= 2:
                break
        else:
            return
        if name not in self._rates:
            self._rates[name] = per_second(named, self._model)
        rate = self._rates[name]
        if not rate:
            return
        clips, seconds = int(shape[0]), int(shape[time_axis(named, name)]) / rate
        if self._before is not None and model.training:
            self._before(clips, seconds)
        if self._work is not None and model.training:
            self._needed += self._work.seconds(clips, seconds, named)
        self._padded += clips * seconds
        self._longest = max(self._longest, seconds)
        audio = _unpadded(named.get("attention_mask"), rate)
        self._all_masked = self._all_masked and audio is not None
        self._audio += audio or 0.0


def _unpadded(mask: torch.Tensor | None, rate: float) -> float | None:
    """Seconds of audio by a mask in host memory, each clip's rounded to a tenth of a second, or finer of short ones."""
    if mask is None or not getattr(mask, "is_cpu", False) or mask.dim() != 2 or mask.is_floating_point():
        return None
    stride: int = max(1, min(int(rate / _PIECES_A_SECOND), mask.shape[1] // _PIECES_A_CLIP))
    middles = mask.numpy()[:, stride // 2 :: stride]  # of pieces; their begins would round every clip up
    return int(np.count_nonzero(middles)) * stride / rate  # torch's sum takes twice as long


class Excess(NamedTuple):
    """How many times larger a batch is than what fits, and a description."""

    times: float
    words: str


Predictor = Callable[[int, float], Excess | None]
"""Returns the warning for a number of clips and seconds; None when they fit."""


class NextBatch:
    """Calls ``predict`` for each size that is not known to fit, and warns by ``say`` of batches that will not.

    Lengths are rounded up to half a second. A batch not much worse than one that was warned of is passed over.
    """

    def __init__(self, predict: Predictor, say: Callable[[str], None]) -> None:
        self._predict, self._say = predict, say
        self._fits: dict[int, int] = {}
        self._warned: set[tuple[int, int]] = set()
        self._worst = 0.0

    def __call__(self, clips: int, seconds: float) -> None:
        """Look at the batch that is about to run."""
        step = max(1, math.ceil(seconds / GRID_S - 1e-9))
        if clips <= self._fits.get(step, 0) or (clips, step) in self._warned:
            return
        excess = self._predict(clips, step * GRID_S)
        if excess is None:
            self._fits[step] = clips
            return
        self._warned.add((clips, step))
        if excess.times > _WORSE * self._worst:
            self._worst = excess.times
            self._say(f"the next batch, {clips} × {seconds:.1f} s, {excess.words}")


def by_memory(memory: MemoryModel) -> Predictor:
    """Predict by a ``MemoryModel`` that was traced for a GPU: a simulation takes some milliseconds."""
    from ..predict.shape_traces import by_formulas

    if not hasattr(memory, "estimate"):
        raise InvalidArgumentError(
            f"memory = {type(memory).__name__} is not a memory model", "pass what MemoryModel.trace(…) returns"
        )
    target = memory.target
    if (limit := target.limit_bytes) is None:
        raise InvalidArgumentError("the memory model has no GPU given", 'trace it with gpu="L4"')

    def predict(clips: int, seconds: float) -> Excess | None:
        with by_formulas(memory):
            estimate = memory.estimate(clips, min(seconds, memory.longest_s), timeline=0)
        if estimate.fits is not False:
            return None
        peak, available = (estimate.peak_device or 0) / GIB, (target.available_bytes or limit) / GIB
        words = f"is predicted to take {peak:.1f} of {available:.1f} GiB"
        return Excess(estimate.peak_reserved / max(1, limit), words)

    return predict


def by_table(table: Sequence[tuple[float, int]]) -> Predictor:
    """Predict by rows of seconds and the largest micro-batch, as in plans and ``memory_table``."""
    longest = table[-1][0]

    def predict(clips: int, seconds: float) -> Excess | None:
        fits = fits_in(table, min(seconds, longest))
        if clips <= fits:
            return None
        words = f"is more than the {plural(fits, 'clip')} of that length that the plan found to fit"
        return Excess(clips / max(1, fits), words)

    return predict
