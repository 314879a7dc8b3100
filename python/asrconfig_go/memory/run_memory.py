"""The memory of a whole run: peaks over several orders of the clips."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._base import native
from .._base.checks import check_seconds, checked
from .._base.choices import ClipOrder
from .._base.errors import InvalidArgumentError
from .._base.input_units import RowKind
from .._base.records import from_json, to_json
from ..view.plot import plot
from ..view.render import Record, Shown
from .memory_settings import MAX_BATCH, MemorySettings, Target, positive

if TYPE_CHECKING:
    from .opened_trace import OpenedTrace

_LOCAL = {"local": True}


@dataclass(frozen=True)
class Spread:
    """A figure over the orders that were tried."""

    median: float
    p99: float
    worst: float

    def scaled(self, factor: float, offset: float = 0.0) -> Spread:
        """Each of the three times ``factor``, and ``offset``."""
        return Spread(self.median * factor + offset, self.p99 * factor + offset, self.worst * factor + offset)


@dataclass(frozen=True)
class BatchPeak:
    """The peaks, in bytes, of the longest clips' batch alone."""

    peak_allocated: int
    peak_reserved: int


@dataclass(frozen=True)
class SeedPeak:
    """The peaks, in bytes, of one order of the clips. Steps that ran out of memory were given up."""

    seed: int
    peak_allocated: int
    peak_reserved: int
    retries: int
    failed_steps: int
    first_failed_step: int | None
    """Counted from 0."""
    micro_batches: int
    """Played to their ends."""
    mean_peak: float | None
    """The most allocated in a micro-batch, mean of them; None when there is none."""
    mean_peak_by_time: float | None
    """Likewise, weighted by their padded seconds."""

    @property
    def out_of_memory(self) -> bool:
        """Whether a step ran out of memory."""
        return self.failed_steps > 0


@dataclass(frozen=True, repr=False)
class RunEstimate(Shown, kind="memory run"):
    """Peaks in bytes over several orders of the clips.

    ``out_of_memory`` is the share of orders that run out of it, 0 to 1; ``peak_device`` None without a GPU in mind.
    """

    peak_allocated: Spread
    peak_reserved: Spread
    peak_device: Spread | None
    retries: Spread
    out_of_memory: float
    largest_batch_only: BatchPeak
    seeds: tuple[SeedPeak, ...]
    model: str = field(default="", metadata=_LOCAL)
    batch: int = field(default=1, metadata=_LOCAL)
    clips: int = field(default=0, metadata=_LOCAL)
    longest_s: float = field(default=0.0, metadata=_LOCAL)
    row_kind: RowKind = field(default="clips", metadata=_LOCAL)
    steps: int = field(default=0, metadata=_LOCAL)
    order: ClipOrder = field(default="random", metadata=_LOCAL)
    settings: MemorySettings = field(default=MemorySettings(), metadata=_LOCAL)
    target: Target = field(default=Target(), metadata=_LOCAL)

    @classmethod
    def read(cls, answer: dict[str, Any], factor: float, **local: Any) -> RunEstimate:
        """From the library's answer, with its reserved memory corrected by a calibration's factor."""
        run = dataclasses.replace(from_json(cls, answer), **local)
        if factor == 1.0:
            return run
        context = run.target.context_bytes
        alone, seeds = run.largest_batch_only, run.seeds
        return dataclasses.replace(
            run,
            peak_reserved=run.peak_reserved.scaled(factor),
            peak_device=None if context is None else run.peak_reserved.scaled(factor, context),
            largest_batch_only=dataclasses.replace(alone, peak_reserved=round(alone.peak_reserved * factor)),
            seeds=tuple(dataclasses.replace(s, peak_reserved=round(s.peak_reserved * factor)) for s in seeds),
        )

    def _shown(self) -> Record:
        names = ("model", "batch", "clips", "longest_s", "steps", "order", "row_kind")
        fields = {name: getattr(self, name) for name in names}
        target = {**vars(self.target), "limit_bytes": self.target.limit_bytes}
        return {**to_json(self), **fields, "settings_words": self.settings.words(), "target": target}

    def plot(self, ax: Any = None) -> Any:
        """Draw the peaks of every order with matplotlib, into ``ax`` or a new figure; returns the axes."""
        return plot("memory run", self._shown(), ax)


def simulate_run(
    memory: OpenedTrace,
    seconds: Iterable[float],
    batch: int,
    *,
    labels: Sequence[int] | None = None,
    steps: int = 300,
    seeds: int = 5,
    order: ClipOrder = "random",
) -> RunEstimate:
    """The peaks of a whole run over clips of these durations, in ``seeds`` different orders.

    Reserved memory depends on the order in which lengths come, so the answer is a median, a 99th percentile and a
    worst case over the orders. ``order`` is ``"random"`` or ``"grouped"`` (batches of similar length, as the
    Trainer's group_by_length makes them).
    """
    durations = [check_seconds(f"seconds[{i}]", s) for i, s in enumerate(seconds)]
    if not durations:
        raise InvalidArgumentError("seconds is empty", "pass the duration of every clip")
    request = {
        **memory.run_request(positive("batch", batch, MAX_BATCH), durations, labels),
        "accumulation": memory.settings.accumulation,
        "steps": positive("steps", steps, 100_000),
        "seeds": positive("seeds", seeds, 1_000),
        "order": checked("order", order, ClipOrder),
    }
    answer = native.call("memory.run", request)
    return RunEstimate.read(
        answer, memory.factor, model=memory.name, batch=batch, clips=len(durations), longest_s=max(durations),
        steps=steps, order=order, settings=memory.settings, target=memory.target, row_kind=memory.row_kind,
    )  # fmt: skip
