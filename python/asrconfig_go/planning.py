"""From measured profiles to a plan: ask the planner, trace the way that it chose, and ask again until both agree."""

from __future__ import annotations

import math
import warnings
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _lib
from ._errors import AsrConfigError
from .attaching import HOST_BYTES
from .batching import StepSampler
from .batching.table import Table
from .config import TrainingConfig

if TYPE_CHECKING:
    from .memory import MemoryModel

_ROUNDS = 3  # ways that are traced at most: with and without checkpointing, and one in reserve
_WINDOW = 3  # micro-batches of a traced step: the first, one with gradients beside it, the last
_DRAWN_STEPS = 40  # in random order, for the worst of a run
_DRAWN_CLIPS = 4000
_ROWS = 16  # lengths at which a traced table is asked
_EXPANDING = "expandable_segments:True"
_GRADIENT_BYTES = 4


class Way(NamedTuple):
    """One way of training, as the planner names it."""

    precision: str
    gradient_checkpointing: bool
    optimizer: str


class NotTracedWarning(UserWarning):
    """The model could not be traced: its memory is estimated from its config, or by the published formula."""


class Tracer:
    """Traces a model in the ways that a plan chooses, for one GPU.

    ``model`` is what ``MemoryModel.trace`` takes; ``gpu`` plans for a card of the catalogue. ``trained`` is the number
    of trained parameters, ``devices`` the number of GPUs that share a step: DDP keeps a second copy of the gradients.
    """

    def __init__(
        self, model: Any, *, gpu: str | None, freeze: bool, trained: int, devices: int, progress: bool
    ) -> None:
        self._model, self._gpu, self._freeze, self._progress = model, gpu, freeze, progress
        self._beside = _GRADIENT_BYTES * trained if devices > 1 else 0

    def trace(self, way: Way, share: int, durations: Sequence[float], budget_bytes: int) -> dict[str, Any]:
        """What the planner wants to know of ``way``: what fits for each length, the peaks of the longest clips.

        ``share`` is the clips of a device in a step, ``durations`` are seconds that hold the shortest and the longest.
        """
        from .memory import MemoryModel

        with MemoryModel.trace(
            self._model,
            precision=way.precision,
            gradient_checkpointing=way.gradient_checkpointing,
            optimizer=way.optimizer,
            accumulation=_WINDOW,
            freeze_feature_encoder=self._freeze,
            gpu=self._gpu,
            allocator=_EXPANDING,
            progress=self._progress,
        ) as memory:
            longest_s = memory.length(max(durations)) / float(memory.about.get("length_per_second") or 16_000.0)
            limit = budget_bytes - self._outside(memory)
            rows = tuple(_table(memory, _lengths(min(durations), longest_s), share, limit))
            largest = max(1, rows[-1][1])
            sizes = sorted({size for size in range(1, share + 1) if share % size == 0 and size <= largest} | {largest})
            return {
                **way._asdict(),
                "budget_bytes": budget_bytes,
                "memory": [{"seconds": seconds, "batch": batch} for seconds, batch in rows],
                "peaks": [self._peak(memory, size, longest_s) for size in sizes],
                "eval_batch": _evaluation(memory, largest, longest_s, share, limit),
                "high_bytes": self._worst(memory, rows, share, durations, limit),
            }

    def _outside(self, memory: MemoryModel) -> int:
        """What a process takes beside the allocator's memory: context and NCCL, or the process itself on a CPU."""
        context = memory.target.context_bytes
        return (HOST_BYTES if context is None else context) + self._beside

    def _worst(
        self, memory: MemoryModel, rows: Table, share: int, durations: Sequence[float], limit: int
    ) -> int | None:
        """The highest memory of some steps in random order, cut by what fits; None without a clip for each place.

        Within the budget, as PyTorch gives cached memory back before it fails; what it takes where that does not help.
        """
        drawn = [max(rows[0][0], s) for s in durations[:: max(1, len(durations) // _DRAWN_CLIPS)]]
        if len(drawn) < share or memory.about.get("fixed_length"):
            return None
        steps = StepSampler(drawn, share, mode="random", seed=0)
        run = memory.simulate_steps(drawn, steps, table=rows, count=_DRAWN_STEPS, limit_bytes=limit)
        if not run.fits:
            run = memory.simulate_steps(drawn, steps, table=rows, count=_DRAWN_STEPS)
        return run.peak_reserved + self._outside(memory)

    def _peak(self, memory: MemoryModel, batch: int, seconds: float) -> dict[str, Any]:
        """One micro-batch of the longest clips: its peak on the device, and what holds it."""
        found = memory.estimate(batch, seconds, timeline=0)
        outside = self._outside(memory)
        parts = [{"name": name, "bytes": size} for name, size in found.at_peak.components.items() if size > 0]
        rest = {"cached": found.peak_reserved - found.peak_allocated, "context": outside}
        parts += [{"name": name, "bytes": size} for name, size in rest.items() if size > 0]
        return {"batch": batch, "bytes": found.peak_reserved + outside, "parts": parts}


def _lengths(shortest_s: float, longest_s: float) -> list[float]:
    """Lengths in equal ratios from the shortest clip's to the longest's."""
    shortest_s = min(longest_s, max(0.5, shortest_s))
    if longest_s / shortest_s < 1.001:
        return [longest_s]
    ratio = (longest_s / shortest_s) ** (1 / (_ROWS - 1))
    return [shortest_s * ratio**i for i in range(_ROWS - 1)] + [longest_s]


def _table(memory: MemoryModel, lengths: list[float], share: int, limit: int) -> list[tuple[float, int]]:
    """Rows of seconds and the largest micro-batch that fits, up to ``share``, from the longest clips on."""
    rows: list[tuple[float, int]] = []
    guess = 1.0
    for seconds in reversed(lengths):
        if rows:
            guess = rows[-1][1] * rows[-1][0] / seconds
        fits = memory.largest_batch(seconds, limit, near=min(share, max(1, round(guess))), most=share)
        rows.append((seconds, fits))
    # What the allocator reserves does not rise evenly: once in a while one more clip fits at a longer length.
    fewest = accumulate((fits for _, fits in rows[::-1]), min)
    return [(seconds, fits) for (seconds, _), fits in zip(rows[::-1], fewest, strict=True)]


def _evaluation(memory: MemoryModel, batch: int, seconds: float, share: int, limit: int) -> int:
    """The largest doubling of a training micro-batch, up to a step's share, whose evaluation fits."""
    while 2 * batch <= max(share, batch) and memory.evaluation(2 * batch, seconds).peak_reserved <= limit:
        batch *= 2
    return batch


def plan(request: dict[str, Any], durations: array[float], tracer: Tracer | None) -> TrainingConfig:
    """Ask the planner; with a ``tracer``, trace the way that it takes and ask again until it stays with a traced way.

    ``durations`` are the seconds of every clip, empty where they are not known. A way that cannot be traced is said
    once, as a ``NotTracedWarning``, and planned from the config.
    """
    attached, traced = durations.tobytes(), list[dict[str, Any]]()
    config = TrainingConfig.from_dict(_lib.call("plan.make", request, attached))
    for _ in range(_ROUNDS):
        way = Way(config.precision, config.gradient_checkpointing, config.optimizer)
        seen = any(tuple(each[name] for name in Way._fields) == way for each in traced)
        if tracer is None or seen or config.policy != "fastest":
            break
        share = config.effective_batch_size // config.device_count
        limit = math.inf if config.max_length_s is None else config.max_length_s
        known = durations or array("d", (request["dataset"]["min_s"], request["dataset"]["max_s"]))
        with _said() as failed:
            traced.append(tracer.trace(way, share, [min(s, limit) for s in known], config.budget_bytes))
        if failed:
            break
        config = TrainingConfig.from_dict(_lib.call("plan.make", {**request, "traced": traced}, attached))
    return config


@contextmanager
def _said() -> Iterator[list[str]]:
    """Let a trace fail with a warning instead of an error: the plan that is there stands."""
    failed: list[str] = []
    try:
        yield failed
    except AsrConfigError as error:
        failed.append(str(error))
        warnings.warn(
            f"the model could not be traced ({error.message}): its memory is estimated from its config",
            NotTracedWarning,
            stacklevel=6,
        )


def usable(durations: array[float]) -> array[float]:
    """The durations of the clips that can be used."""
    return array("d", (s for s in durations if not math.isnan(s)))
