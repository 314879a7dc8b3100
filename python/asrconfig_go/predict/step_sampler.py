"""``StepSampler``: the clips of each optimizer step, and their split into micro-batches."""

from __future__ import annotations

import copy
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .._core import native
from .._core.checks import checked, checked_list
from .._core.declared import BUCKETS, OVERHEAD_S, StepMode
from .._core.records import from_json
from ..errors import InvalidArgumentError
from .length_table import memory_table
from .opened_trace import OpenedTrace
from .predict_records import LengthBucket


class StepSampler:
    """A batch sampler whose batches are the clips of one optimizer step, or one process's share of them.

    Every clip comes once per epoch. Where the clips are not a multiple of ``step_samples``, the last step is shorter:
    it has any clips, with a share for every process. (When fewer clips than processes are left, they share one more
    step's clips, in two shorter steps.) With ``drop_last`` that many clips are left out, others in each epoch. The
    order depends on ``seed`` and the epoch alone: call ``set_epoch``.

    The whole share of a process is one batch, the longest clip first: ``manager.attach(trainer, memory=…)`` splits it
    by memory. Too little data for sorted steps raises a ``BatchingWarning``.

    ``mode`` selects the clips of a step:

    - ``"random"``: any;
    - ``"stratified"``: as many of every length as any other step: random steps whose clips are shared out again, those
      of eight steps at a time. Of each eighth of their lengths, a step gets a group of neighbours, which need little
      padding in micro-batches;
    - ``"bucketed"``: clips of similar length. They are grouped into at most ``buckets`` ranges of length, each of at
      least four steps, so that padding is least; a step has shuffled clips of one range. Fewer buckets leave more
      randomness.

    Args:
        durations: The seconds of every clip.
        step_samples: The clips of an optimizer step, over all processes, 1 to 65536.
        mode: ``"random"``, ``"stratified"`` or ``"bucketed"``.
        memory: What fits: a ``MemoryModel`` traced for a GPU, or rows of increasing seconds, each with the largest
            micro-batch of clips of up to that length; None if it is not known.
        buckets: The most ranges of length of bucketed steps, 1 to 256.
        seed: The seed of the order, 0 or more and below 2**64.
        drop_last: Whether clips that do not fill a step are left out.
        overhead_s: What a micro-batch costs besides its padded seconds, in seconds of audio.
        host_s: The least that a micro-batch costs, in seconds of audio.

    Raises:
        InvalidArgumentError: A value is out of its range, or with ``drop_last`` the clips do not fill one step.
        EmptyDatasetError: There are no durations.
        InfeasiblePlanError: Some clips do not fit even alone.

    Example:
        >>> sampler = StepSampler([2.0, 3.0, 9.0] * 20, 32)
        >>> [len(batch) for batch in sampler]
        [32, 28]
    """

    def __init__(
        self,
        durations: Iterable[float],
        step_samples: int,
        *,
        mode: StepMode = "random",
        memory: OpenedTrace | Sequence[tuple[float, int]] | None = None,
        buckets: int = BUCKETS,
        seed: int = 0,
        drop_last: bool = False,
        overhead_s: float = OVERHEAD_S,
        host_s: float = 0.0,
    ) -> None:
        self._seconds = seconds_of(durations)
        self._recipe = recipe_of(
            self._seconds, step_samples, memory, mode=mode, seed=seed, buckets=buckets, overhead_s=overhead_s,
            host_s=host_s, drop_last=drop_last,
        )  # fmt: skip
        self.epoch: int = 0
        self.rank: int = 0
        self._ask()
        for note in self.notes:
            warnings.warn(note, BatchingWarning, stacklevel=2)

    def shard(self, rank: int, ranks: int, shares: Sequence[int] | None = None) -> StepSampler:
        """Return the sampler of one process: its share of every step, of about the same seconds as the others'.

        All processes get the same number of batches. The new sampler counts its own epochs: call its ``set_epoch``, not
        that of this sampler.

        Args:
            rank: The process, from 0.
            ranks: The processes that share each step.
            shares: The clips of each process in a full step; None for even shares. With uneven shares the gradient of
                the step requires weights, which the guard applies.

        Returns:
            A sampler of the same clips.

        Raises:
            InvalidArgumentError: The processes cannot share a step so.
        """
        if not 0 <= checked("rank", rank, int) < checked("ranks", ranks, int):
            raise InvalidArgumentError(f"rank = {rank} of {ranks} processes", "count ranks from 0")
        part = copy.copy(self)
        counts = None if shares is None else checked_list("shares", shares, int)
        part._recipe, part.rank = {**self._recipe, "ranks": ranks, "shares": counts}, rank
        part._ask()
        return part

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose order comes next.

        Args:
            epoch: The epoch, from 0.

        Raises:
            InvalidArgumentError: ``epoch`` is below 0.
        """
        if checked("epoch", epoch, int) < 0:
            raise InvalidArgumentError(f"epoch = {epoch} is below 0", "count epochs from 0")
        self.epoch = epoch

    @property
    def step_samples(self) -> int:
        """The number of clips of a full optimizer step, over all processes."""
        return int(self._recipe["step_samples"])

    @property
    def even(self) -> bool:
        """Whether all processes have the same number of clips of a full step."""
        return len(set(self._counts[0])) == 1

    @property
    def ranks(self) -> int:
        """The number of processes that share each step."""
        return int(self._recipe["ranks"])

    @property
    def drop_last(self) -> bool:
        """Whether clips that do not fill a step are left out."""
        return bool(self._recipe["drop_last"])

    @property
    def clips(self) -> int:
        """The number of clips of the dataset."""
        return len(self._seconds)

    def __len__(self) -> int:
        """Return the number of optimizer steps of an epoch."""
        return self._steps + len(self._counts) - 1

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over the numbers of this process's clips of each step."""
        order, at = self._ask(), 0
        for counts in self._counts[:1] * self._steps + self._counts[1:]:
            begin = at + sum(counts[: self.rank])
            yield order[begin : begin + counts[self.rank]].tolist()
            at += sum(counts)

    def _ask(self) -> array[int]:
        """The order of this epoch, with the shares of the processes side by side."""
        request = {"options": {**self._recipe, "epoch": self.epoch}}
        answer, order = native.exchange("batching.order", request, self._seconds.tobytes())
        self._steps, self._counts = int(answer["steps"]), [[int(n) for n in step] for step in answer["shares"]]
        self.notes: tuple[str, ...] = tuple(answer["notes"])
        """Warnings about too little data."""
        self.buckets: tuple[LengthBucket, ...] = tuple(from_json(LengthBucket, bucket) for bucket in answer["buckets"])
        """The ranges of length; one of all clips in random order."""
        return array("I", bytes(order))

    def __repr__(self) -> str:
        mode, seed = self._recipe["mode"], self._recipe["seed"]
        share = f", rank {self.rank} of {self.ranks}" if self.ranks > 1 else ""
        steps = f"{len(self)} {mode} steps of {self.step_samples}"
        return f"StepSampler({self.clips} clips, {steps}{share}, seed {seed})"


def cheapest(
    lengths: Sequence[float], size: Callable[[Any, int], int], overhead: float | None = None, host: float = 0.0
) -> Iterator[list[int]]:
    """The guard's split of a step into micro-batches of neighbours in length, the longest first.

    A micro-batch of n clips, the longest of length s, costs n · s + ``overhead``, but no less than ``host``; without
    ``overhead`` as few as possible are made, and those with the least padding. ``size(longest, left)`` returns how
    many fit, 1 to ``left``. Of splits that cost the same, the first micro-batches are largest. Yields the clips' places
    in ``lengths``.

    Same as ``split_by_memory``, which calls the library: a training step may run in a forked process, where that must
    not be called.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    seconds = [lengths[i] for i in order]
    if overhead is None:
        overhead, host = sum(seconds) * len(seconds) + 1.0, 0.0  # more than any padding
    n = len(order)
    best, take, audio = [0.0] * (n + 1), [0] * n, [0.0] * (n + 1)
    for i in range(n - 1, -1, -1):
        audio[i] = audio[i + 1] + seconds[i]
        best[i] = float("inf")
        for count in range(1, size(seconds[i], n - i) + 1):
            cost = overhead + count * seconds[i]
            if cost + audio[i + count] > best[i]:  # no split of the rest costs less than its audio
                break
            cost = max(host, cost)
            if cost + best[i + count] <= best[i]:
                best[i], take[i] = cost + best[i + count], count
    at = 0
    while at < n:
        yield order[at : at + take[at]]
        at += take[at]


def split_by_memory(
    durations: Iterable[float],
    memory: Sequence[tuple[float, int]],
    *,
    overhead_s: float = OVERHEAD_S,
    host_s: float = 0.0,
) -> list[list[int]]:
    """Split a step's clips into micro-batches that fit, at the least cost.

    A micro-batch of n clips, the longest of s seconds, costs n · s + ``overhead_s``, but no less than ``host_s``.

    Args:
        durations: The seconds of each clip of the step.
        memory: Rows of increasing seconds, each with the largest micro-batch of clips of up to that length (see
            ``memory_table``).
        overhead_s: What a micro-batch costs besides its padded seconds, in seconds of audio.
        host_s: The least that a micro-batch costs, in seconds of audio.

    Returns:
        The clips' numbers of each micro-batch, the longest clip first.

    Raises:
        InvalidArgumentError: A value is out of its range.
        EmptyDatasetError: There are no durations.
        InfeasiblePlanError: A clip does not fit even alone.

    Example:
        >>> split_by_memory([2.0, 3.0, 9.0, 4.0], [(5.0, 3), (10.0, 1)])
        [[2], [3, 1, 0]]
    """
    request = {
        "memory": _rows(memory),
        "overhead_s": checked("overhead_s", overhead_s, float),
        "host_s": checked("host_s", host_s, float),
    }
    answer = native.call("batching.split", request, seconds_of(durations).tobytes())
    return [list(batch) for batch in answer["micro_batches"]]


def seconds_of(durations: Iterable[float]) -> array[float]:
    """The seconds of every clip, as doubles."""
    try:
        if not isinstance(durations, bytes | bytearray):  # which array would read as doubles
            return array("d", durations)
    except TypeError:
        pass
    raise InvalidArgumentError(
        "durations are not numbers", "pass the seconds of every clip: scan_audio(source).durations"
    )


def _rows(memory: Sequence[tuple[float, int]]) -> list[dict[str, Any]]:
    """The table as the library takes it, checked there."""
    try:
        return [{"seconds": float(seconds), "batch": int(batch)} for seconds, batch in memory]
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"memory = {memory!r:.100} is not a table",
            "pass rows of (seconds, largest micro-batch), or make them by memory_table(memory_model, longest_s)",
        ) from None


class BatchingWarning(UserWarning):
    """Steps of clips of similar length would hurt here; the message is the reason."""


def recipe_of(
    seconds: array[float],
    step_samples: int,
    memory: OpenedTrace | Sequence[tuple[float, int]] | None,
    *,
    mode: StepMode = "random",
    ranks: int = 1,
    seed: int = 0,
    buckets: int = BUCKETS,
    overhead_s: float = OVERHEAD_S,
    host_s: float = 0.0,
    drop_last: bool = False,
) -> dict[str, Any]:
    """The options of steps for the library, which checks their ranges."""
    if not 0 <= checked("seed", seed, int) < 1 << 64:
        raise InvalidArgumentError(f"seed = {seed} is out of range", "choose 0 or more, below 2**64")
    table = memory_table(memory, max(seconds, default=1.0)) if isinstance(memory, OpenedTrace) else memory
    return {
        "mode": checked("mode", mode, str),
        "step_samples": checked("step_samples", step_samples, int),
        "ranks": checked("ranks", ranks, int),
        "seed": seed,
        "epoch": 0,
        "buckets": checked("buckets", buckets, int),
        "drop_last": checked("drop_last", drop_last, bool),
        "overhead_s": checked("overhead_s", overhead_s, float),
        "host_s": checked("host_s", host_s, float),
        "memory": None if table is None else _rows(table),
    }
