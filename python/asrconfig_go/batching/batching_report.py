"""The cost of each batching strategy, simulated before training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .._base import native
from .._base.checks import checked_list
from .._base.errors import InvalidArgumentError
from .._base.records import from_json
from .batching_request import BUCKETS, recipe
from .memory_limits import OVERHEAD_S, FitsByLength, seconds_of


@dataclass(frozen=True)
class BatchingStrategy:
    """One epoch of one order of clips, with one kind of split."""

    order: str
    """``random``, ``grouped`` (as transformers' group_by_length), ``bucketed`` or ``packed``: see ``StepSampler``."""
    split: str
    """``fixed`` (one size for all, or for a bucket) or ``optimal`` (the cheapest that fits, as the guard splits)."""
    micro_batch: int | None
    """The size where there is one for all."""
    micro_batches: int
    steps: int
    """Micro-batches of all processes and optimizer steps."""
    padded_s: float
    """Seconds that the model computes: clips × the longest of them, over all micro-batches."""
    padding: float
    """The share of them that is not audio."""
    use: float
    """The mean over micro-batches of clips / clips that would fit at that length."""
    use_by_time: float
    """The same, weighted by what each micro-batch costs."""
    cost_s: float
    """Padded seconds and the overhead of each micro-batch, in seconds of audio, of all processes."""
    slowest_s: float
    """The same of the slowest process of each step: what the epoch takes."""
    over_memory: int
    """Micro-batches larger than what fits: none."""
    speed: float
    """How many times faster than random order with one size."""


@dataclass(frozen=True)
class LengthBucket:
    """A range of durations."""

    up_to_s: float
    """Seconds of its longest clip."""
    clips: int
    micro_batch: int | None
    """What fits for its longest clip; None where memory is not known."""
    audio_s: float


@dataclass(frozen=True)
class BatchingReport:
    """An epoch by every strategy. The first is what the Trainer does by itself."""

    clips: int
    audio_s: float
    longest_s: float
    strategies: tuple[BatchingStrategy, ...]
    buckets: tuple[LengthBucket, ...]
    """Those of bucketed steps."""
    notes: tuple[str, ...]
    """Warnings about too little data."""

    def find(self, order: str, split: str) -> BatchingStrategy:
        """The strategy of these names; ``InvalidArgumentError`` if there is none."""
        for strategy in self.strategies:
            if (strategy.order, strategy.split) == (order, split):
                return strategy
        names = ", ".join(f"{s.order} {s.split}" for s in self.strategies)
        raise InvalidArgumentError(f"there is no strategy {order} {split}", f"choose one of {names}")

    def __repr__(self) -> str:
        head = f"{self.clips} clips, {self.audio_s / 3600:.2f} h, the longest {self.longest_s:.4g} s"
        lines = [head, "  order     split    micro-batches  padding  memory used  by time   speed"]
        for s in self.strategies:
            size = f" ({s.micro_batch} clips)" if s.micro_batch else ""
            lines.append(
                f"  {s.order:<9} {s.split:<8} {s.micro_batches:>13}  {s.padding:>6.1%}  {s.use:>11.1%}  "
                f"{s.use_by_time:>7.1%}  {s.speed:>5.2f}×{size}"
            )
        return "\n".join([*lines, *(f"  ! {note}" for note in self.notes)])


@dataclass(frozen=True)
class LongestClips:
    """What it costs to keep the clips over a length. Shares are of the whole, 0 to 1."""

    over_s: float
    clips: int
    audio_share: float
    micro_batch: int
    """That fits with them; 0 when the longest does not fit alone."""
    without_them: int
    """That fits the longest of the others."""
    padded_share: float
    time_share: float
    """Of padded seconds and of the predicted time in random order, at one micro-batch size for all."""
    split_time_share: float
    """Of the predicted time where micro-batches are sized by memory."""
    text: str

    def __str__(self) -> str:
        return self.text


def compare_batching(
    durations: Iterable[float],
    step_samples: int,
    memory: FitsByLength | Sequence[tuple[float, int]],
    *,
    ranks: int = 1,
    seed: int = 0,
    buckets: int = BUCKETS,
    overhead_s: float = OVERHEAD_S,
    drop_last: bool = False,
) -> BatchingReport:
    """Simulate an epoch with every batching strategy: every clip, or 262 144 of more, evenly chosen by length.

    ``durations`` are the seconds of every clip, ``step_samples`` the clips of an optimizer step over all ``ranks``
    processes. ``memory`` is what fits: a ``MemoryModel`` traced for a GPU, or rows of increasing seconds, each with the
    largest micro-batch of clips of up to that length. A micro-batch costs its padded seconds and ``overhead_s``.
    Raises ``InvalidArgumentError``, and ``InfeasiblePlanError`` for clips that do not fit alone (see
    ``cost_of_longest``).

    >>> report = compare_batching([2.0, 3.0, 9.0] * 2000, 32, [(5.0, 8), (10.0, 4)])
    >>> report.find("packed", "optimal").speed > report.find("random", "fixed").speed
    True
    """
    seconds = seconds_of(durations)
    request = recipe(
        seconds, memory, mode="packed", step_samples=step_samples, ranks=ranks, seed=seed, buckets=buckets,
        overhead_s=overhead_s, drop_last=drop_last,
    )  # fmt: skip
    return from_json(BatchingReport, native.call("batching.compare", {"options": request}, seconds.tobytes()))


def cost_of_longest(
    durations: Iterable[float],
    step_samples: int,
    memory: FitsByLength | Sequence[tuple[float, int]],
    over_s: Iterable[float] | None = None,
    *,
    ranks: int = 1,
    overhead_s: float = OVERHEAD_S,
) -> list[LongestClips]:
    """What the clips over each of the lengths ``over_s`` cost: "9 clips over 30 s force a micro-batch of 4; …".

    Without ``over_s``: the lengths at which dropping or splitting at most a hundredth of the clips lets a larger
    micro-batch fit. The other arguments are those of ``compare_batching``; clips that do not fit alone are returned
    with a micro-batch of 0.

    >>> [cost] = cost_of_longest([2.0] * 2000 + [9.0] * 9, 32, [(5.0, 8), (10.0, 4)], over_s=[5.0])
    >>> cost.clips, cost.micro_batch, cost.without_them
    (9, 4, 8)
    """
    seconds = seconds_of(durations)
    request = recipe(
        seconds, memory, mode="packed", step_samples=step_samples, ranks=ranks, seed=0, buckets=BUCKETS,
        overhead_s=overhead_s, drop_last=False,
    )  # fmt: skip
    limits = None if over_s is None else checked_list("over_s", over_s, float)
    answer = native.call("batching.longest", {"options": request, "limits_s": limits}, seconds.tobytes())
    return [from_json(LongestClips, cost) for cost in answer["longest"]]
