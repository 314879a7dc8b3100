"""What each strategy of batching costs in an epoch, and what the longest clips do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .._core import native
from .._core.checks import checked_list
from .._core.declared import BUCKETS, OVERHEAD_S
from .._core.records import from_json
from ..errors import InvalidArgumentError
from .opened_trace import OpenedTrace
from .predict_records import BatchingRecord, BatchingStrategy, LongestRecord
from .step_sampler import recipe_of, seconds_of


@dataclass(frozen=True, repr=False)
class BatchingReport(BatchingRecord):
    """An epoch by every batching strategy. The first strategy is the Trainer's default."""

    def find(self, order: str, split: str) -> BatchingStrategy:
        """Return the strategy with these names.

        Args:
            order: ``"random"``, ``"grouped"``, ``"stratified"`` or ``"bucketed"``.
            split: ``"fixed"`` or ``"optimal"``.

        Returns:
            The strategy.

        Raises:
            InvalidArgumentError: The report has no such strategy.
        """
        for strategy in self.strategies:
            if (strategy.order, strategy.split) == (order, split):
                return strategy
        names = ", ".join(f"{s.order} {s.split}" for s in self.strategies)
        raise InvalidArgumentError(f"there is no strategy {order} {split}", f"choose one of {names}")

    def __repr__(self) -> str:
        head = f"{self.clips} clips, {self.audio_s / 3600:.2f} h, the longest {self.longest_s:.4g} s"
        lines = [head, "  order      split    micro-batches  padding  memory used  by time   speed"]
        for s in self.strategies:
            size = f" ({s.micro_batch} clips)" if s.micro_batch else ""
            lines.append(
                f"  {s.order:<10} {s.split:<8} {s.micro_batches:>13}  {s.padding:>6.1%}  {s.use:>11.1%}  "
                f"{s.use_by_time:>7.1%}  {s.speed:>5.2f}×{size}"
            )
        return "\n".join([*lines, *(f"  ! {note}" for note in self.notes)])


@dataclass(frozen=True)
class LongestClips(LongestRecord):
    """What it costs to keep the clips over a length.

    All shares are of the whole, 0 to 1. ``str()`` returns the cost in one sentence.
    """

    def __str__(self) -> str:
        return self.text


def compare_batching(
    durations: Iterable[float],
    step_samples: int,
    memory: OpenedTrace | Sequence[tuple[float, int]],
    *,
    ranks: int = 1,
    seed: int = 0,
    buckets: int = BUCKETS,
    overhead_s: float = OVERHEAD_S,
    host_s: float = 0.0,
    drop_last: bool = False,
) -> BatchingReport:
    """Simulate an epoch with every batching strategy.

    Of more than 262 144 clips, that many are simulated, evenly chosen by length.

    Args:
        durations: The seconds of every clip.
        step_samples: The clips of an optimizer step, over all processes: 1 to 65536, and a multiple of ``ranks``.
        memory: What fits: a ``MemoryModel`` traced for a GPU, or rows of increasing seconds, each with the largest
            micro-batch of clips of up to that length.
        ranks: The processes that share each step.
        seed: The seed of the order, 0 or more and below 2**64.
        buckets: The most ranges of length of bucketed steps, 1 to 256.
        overhead_s: What a micro-batch costs besides its padded seconds, in seconds of audio.
        host_s: The least that a micro-batch costs, in seconds of audio: the CPU takes that long to launch its kernels.
        drop_last: Whether clips that do not fill a step are left out.

    Returns:
        The padding, memory use and relative speed of each strategy.

    Raises:
        InvalidArgumentError: A value is out of its range, or the processes cannot share a step.
        EmptyDatasetError: There are no durations.
        InfeasiblePlanError: Some clips do not fit even alone (see ``cost_of_longest``).

    Example:
        >>> report = compare_batching([2.0, 3.0, 9.0] * 2000, 32, [(5.0, 8), (10.0, 4)])
        >>> report.find("stratified", "optimal").speed > report.find("random", "fixed").speed
        True
    """
    seconds = seconds_of(durations)
    request = recipe_of(
        seconds, step_samples, memory, ranks=ranks, seed=seed, buckets=buckets, overhead_s=overhead_s, host_s=host_s,
        drop_last=drop_last,
    )  # fmt: skip
    return from_json(BatchingReport, native.call("batching.compare", {"options": request}, seconds.tobytes()))


def cost_of_longest(
    durations: Iterable[float],
    step_samples: int,
    memory: OpenedTrace | Sequence[tuple[float, int]],
    over_s: Iterable[float] | None = None,
    *,
    ranks: int = 1,
    overhead_s: float = OVERHEAD_S,
    host_s: float = 0.0,
) -> list[LongestClips]:
    """Compute what the clips over each of several lengths cost: "9 clips over 30 s force a micro-batch of 4; …".

    Args:
        durations: The seconds of every clip.
        step_samples: The clips of an optimizer step, over all processes: 1 to 65536, and a multiple of ``ranks``.
        memory: What fits, as for ``compare_batching``.
        over_s: The lengths in seconds; None for those at which dropping or splitting at most a hundredth of the clips
            lets a larger micro-batch fit.
        ranks: The processes that share each step.
        overhead_s: What a micro-batch costs besides its padded seconds, in seconds of audio.
        host_s: The least that a micro-batch costs, in seconds of audio.

    Returns:
        A cost for each length that some clips exceed and others do not, the fewest clips first. Clips that do not fit
        alone have a micro-batch of 0.

    Raises:
        InvalidArgumentError: A value is out of its range.
        EmptyDatasetError: There are no durations.

    Example:
        >>> [cost] = cost_of_longest([2.0] * 2000 + [9.0] * 9, 32, [(5.0, 8), (10.0, 4)], over_s=[5.0])
        >>> cost.clips, cost.micro_batch, cost.without_them
        (9, 4, 8)
    """
    seconds = seconds_of(durations)
    request = recipe_of(seconds, step_samples, memory, ranks=ranks, overhead_s=overhead_s, host_s=host_s)
    limits = None if over_s is None else checked_list("over_s", over_s, float)
    answer = native.call("batching.longest", {"options": request, "limits_s": limits}, seconds.tobytes())
    return [from_json(LongestClips, cost) for cost in answer["longest"]]
