"""``StepSampler``: the clips of each optimizer step."""

from __future__ import annotations

import copy
import warnings
from array import array
from collections.abc import Iterable, Iterator, Sequence

from .._base import native
from .._base.checks import checked, checked_list
from .._base.choices import StepMode
from .._base.errors import InvalidArgumentError
from .._base.records import from_json
from .batching_report import LengthBucket
from .batching_request import BUCKETS, BatchingWarning, recipe
from .memory_limits import OVERHEAD_S, FitsByLength, seconds_of


class StepSampler:
    """A batch sampler whose batches are the clips of one optimizer step, or one process's share of them.

    ``mode`` selects the clips of a step of exactly ``step_samples``, over all processes:

    - ``"random"``: any;
    - ``"bucketed"``: clips of similar length. They are grouped into at most ``buckets`` ranges of length, each of at
      least four steps, so that padding is least; a step has shuffled clips of one range. Fewer buckets leave more
      randomness;
    - ``"packed"``: full micro-batches by ``memory``, each of one range of length, whose sizes add up to the step's.
      Steps have clips of several lengths, and memory is used best.

    In every epoch each clip comes once. The last step is shorter where the clips are not a multiple, with any clips, a
    share for every process; with ``drop_last``, that many clips are left out, others in each epoch. (When fewer clips
    than processes are left, they share one more step's clips, in two shorter steps.) The order depends on ``seed`` and
    the epoch alone: call ``set_epoch``.

    ``durations`` are the seconds of every clip. ``memory`` is a ``MemoryModel`` traced for a GPU, or rows of seconds
    and the largest micro-batch of clips up to that length. The whole share of a process comes as one batch, the longest
    clip first: ``manager.attach(trainer, memory=…)`` splits it by memory. Raises ``InvalidArgumentError`` for what
    cannot be, ``InfeasiblePlanError`` for clips that do not fit alone. Too little data for sorted steps raises a
    ``BatchingWarning``.

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
        memory: FitsByLength | Sequence[tuple[float, int]] | None = None,
        buckets: int = BUCKETS,
        seed: int = 0,
        drop_last: bool = False,
        overhead_s: float = OVERHEAD_S,
    ) -> None:
        self._seconds = seconds_of(durations)
        self._recipe = recipe(
            self._seconds, memory, mode=mode, step_samples=step_samples, ranks=1, seed=seed, buckets=buckets,
            overhead_s=overhead_s, drop_last=drop_last,
        )  # fmt: skip
        self.epoch: int = 0
        self.rank: int = 0
        self._ask()
        for note in self.notes:
            warnings.warn(note, BatchingWarning, stacklevel=2)

    def shard(self, rank: int, ranks: int, shares: Sequence[int] | None = None) -> StepSampler:
        """The part of process ``rank`` of ``ranks``: its share of every step, of about the same seconds as the others'.

        ``shares`` are the clips of each process in a full step, where they are not even: the gradient of the step then
        requires weights, which the guard gives. Packed steps do not have them. All processes take as many batches.
        Raises ``InvalidArgumentError`` when a step cannot be shared so.
        """
        if not 0 <= checked("rank", rank, int) < checked("ranks", ranks, int):
            raise InvalidArgumentError(f"rank = {rank} of {ranks} processes", "count ranks from 0")
        part = copy.copy(self)
        counts = None if shares is None else checked_list("shares", shares, int)
        part._recipe, part.rank = {**self._recipe, "ranks": ranks, "shares": counts}, rank
        part._ask()
        return part

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next, 0 for the first."""
        if checked("epoch", epoch, int) < 0:
            raise InvalidArgumentError(f"epoch = {epoch} is below 0", "count epochs from 0")
        self.epoch = epoch

    @property
    def step_samples(self) -> int:
        """Clips of a full optimizer step, over all processes."""
        return int(self._recipe["step_samples"])

    @property
    def batch_samples(self) -> int:
        """Clips of this process in a full step."""
        return self._counts[0][self.rank]

    @property
    def even(self) -> bool:
        """Whether all processes have as many clips of a full step."""
        return len(set(self._counts[0])) == 1

    @property
    def ranks(self) -> int:
        """Processes that share each step."""
        return int(self._recipe["ranks"])

    @property
    def drop_last(self) -> bool:
        """Whether clips that do not fill a step are left out."""
        return bool(self._recipe["drop_last"])

    @property
    def clips(self) -> int:
        """Clips of the dataset."""
        return len(self._seconds)

    def __len__(self) -> int:
        """Optimizer steps of an epoch."""
        return self._steps + len(self._counts) - 1

    def __iter__(self) -> Iterator[list[int]]:
        """The numbers of this process's clips of each step."""
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
