"""Measurements as plain data. Sizes are bytes, times seconds; None is unknown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..watch.watch_records import Readings as Readings  # a public name of this package

OUT_OF_MEMORY = "out of memory"
ENOUGH_ROUNDS = 5
"""No conclusion is drawn from fewer rounds: one in four differs too easily by accident."""
_DOUBT = 1.02
_FIXED = 1.2  # times the longest clip: no batch pads so far


@dataclass(frozen=True)
class Spread:
    """A median with the lowest and the highest of ``count`` values."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """None where one of the values is not known, or none was measured."""
        measured = list(values)
        if not measured or any(value is None for value in measured):
            return None
        return cls.over([float(value) for value in measured if value is not None])

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values), len(values))

    @classmethod
    def ratio(cls, over: Sequence[float | None], under: Sequence[float | None]) -> Spread | None:
        """The ratio of both medians, with the lowest and the highest of single rounds, between which it always lies.

        None where a value is not known, or the rounds are not the same.
        """
        high, low = cls.of(over), cls.of(under)
        if high is None or low is None or high.count != low.count:
            return None
        rounds = cls.over([a / b for a, b in zip(over, under, strict=True) if a is not None and b is not None])
        return cls(high.median / low.median, rounds.low, rounds.high, rounds.count)

    def rate(self, amount: float) -> Spread:
        """``amount`` a second, of seconds."""
        return Spread(amount / self.median, amount / self.high, amount / self.low, self.count)


@dataclass(frozen=True)
class StepParts:
    """One optimizer step: what it took, and of that each part. ``queued_s`` (on a GPU) is the CPU's time for forward
    and backward.
    """

    seconds: float
    waiting_s: float
    forward_s: float
    backward_s: float
    optimizer_s: float
    other_s: float
    micro_batches: int
    queued_s: float | None


PARTS = ("waiting", "forward", "backward", "optimizer", "other")
"""The parts of a step: waiting for batches, forward, backward, clipping and optimizer, all else in the Trainer."""


@dataclass(frozen=True)
class Block:
    """Some steps of one side, one after the other, without those that warmed up.

    ``cpu_s`` is processor time of this process and its loader workers; ``padded_s`` and ``audio_s`` are seconds of the
    batches with and without padding, ``longest_s`` those of the longest input; peaks are PyTorch's. ``out_of_memory``
    counts steps that the guard made again.
    """

    seconds: float
    cpu_s: float
    steps: tuple[StepParts, ...]
    padded_s: float | None
    audio_s: float | None
    longest_s: float | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    begun_unix_s: float
    out_of_memory: int


@dataclass(frozen=True)
class Turn:
    """The time of a side in one round: seconds, and processor time (None on a GPU, where it means little)."""

    seconds: float
    cpu_s: float | None


@dataclass(frozen=True)
class SideResult:
    """One side in all its blocks; without blocks ``problem`` has the reason. ``settings`` are the Trainer's, as used.

    ``clips`` are those of a block, ``audio_s`` their seconds without padding, ``longest_s`` those of the longest,
    ``cores`` those that may be used. ``rounds`` are what rates and ratios come from: of the plan beside another side,
    the mean of its blocks before and after that side's. ``adapted`` is why the batch is another than asked for.
    """

    name: str
    settings: dict[str, Any]
    clips: int
    audio_s: float | None
    longest_s: float | None
    cores: float
    blocks: tuple[Block, ...]
    rounds: tuple[Turn, ...]
    readings: Readings = field(default_factory=Readings)
    problem: str = ""
    adapted: str = ""

    @cached_property
    def seconds(self) -> Spread | None:
        """Seconds of a block, over the rounds."""
        return Spread.of(turn.seconds for turn in self.rounds)

    @cached_property
    def clips_per_s(self) -> Spread | None:
        """Clips a second, over the rounds."""
        return None if self.seconds is None else self.seconds.rate(self.clips)

    @cached_property
    def audio_per_s(self) -> Spread | None:
        """Seconds of audio, without padding, a second."""
        audio = self._audio(self.blocks[0]) if self.blocks else None
        return None if audio is None or self.seconds is None else self.seconds.rate(audio)

    @cached_property
    def step_s(self) -> Spread | None:
        """Seconds of an optimizer step on average, over the rounds."""
        return Spread.of(turn.seconds / len(self.blocks[0].steps) for turn in self.rounds)

    @cached_property
    def cpu_use(self) -> Spread | None:
        """The share of the usable cores, 0 to 1, that this training kept busy, its workers included."""
        return Spread.of(block.cpu_s / block.seconds / self.cores for block in self.blocks)

    @cached_property
    def padding(self) -> float | None:
        """The share of what was computed that is not audio, 0 to 1."""
        padded = [block.padded_s for block in self.blocks]
        audio = [self._audio(block) for block in self.blocks]
        if not padded or None in padded or None in audio:
            return None
        return max(0.0, 1 - sum(a or 0.0 for a in audio) / sum(p or 0.0 for p in padded))

    @property
    def fixed_s(self) -> float | None:
        """Seconds of every input, where the processor pads all clips to one length, as Whisper's does; else None."""
        heard = max((b.longest_s for b in self.blocks if b.longest_s is not None), default=None)
        if heard is None or self.longest_s is None or heard <= _FIXED * self.longest_s:
            return None
        return heard

    @cached_property
    def shares(self) -> dict[str, float]:
        """Shares of the time of all steps, by ``PARTS``; empty without blocks.

        On a GPU they need not add up to 1: it works while batches are waited for.
        """
        steps = [step for block in self.blocks for step in block.steps]
        total = sum(step.seconds for step in steps)
        return {part: sum(getattr(s, f"{part}_s") for s in steps) / total for part in PARTS} if total else {}

    @cached_property
    def queueing(self) -> float | None:
        """The CPU's time for queueing forward and backward over what they take on the GPU; None on a CPU."""
        steps = [step for block in self.blocks for step in block.steps]
        computing = sum(step.forward_s + step.backward_s for step in steps)
        if not computing or any(step.queued_s is None for step in steps):
            return None
        return sum(step.queued_s or 0.0 for step in steps) / computing

    @property
    def peak_bytes(self) -> int | None:
        """The highest that PyTorch reserved on the GPU; None on a CPU."""
        return max((b.peak_reserved_bytes for b in self.blocks if b.peak_reserved_bytes is not None), default=None)

    def _audio(self, block: Block) -> float | None:
        return block.audio_s if self.audio_s is None else self.audio_s


@dataclass(frozen=True)
class LoaderResult:
    """One way to load: clips a second over passes, and seconds until the first batch of a pass.

    ``start_s`` is with workers that start, ``again_s`` with ones that have stayed; both alike without workers.
    """

    workers: int
    prefetch: int | None
    clips_per_s: Spread
    audio_per_s: Spread | None
    start_s: float
    again_s: float


@dataclass(frozen=True)
class OptionResult:
    """One change to the plan. ``gain`` is its clips a second over the plan's, over adjacent blocks; ``cpu_gain`` the
    same by processor time, on a CPU.

    ``problem``: it failed, and how; ``why_not``: it was not tried, and why.
    """

    option: str
    value: str
    change: str
    side: SideResult | None = None
    gain: Spread | None = None
    cpu_gain: Spread | None = None
    problem: str = ""
    why_not: str = ""

    @property
    def better(self) -> str:
        """``"faster"`` in every round, at least five, and by more than noise of two in a hundred;
        ``"faster by processor time"`` where only that is so; else ``""``.
        """
        if _clearly(self.gain):
            return "faster"
        by_processor = _clearly(self.cpu_gain) and self.gain is not None and self.gain.median > 1
        return "faster by processor time" if by_processor else ""

    @property
    def worse(self) -> bool:
        """Slower in every round, at least five."""
        return self.gain is not None and self.gain.count >= ENOUGH_ROUNDS and self.gain.high < 1


def _clearly(gain: Spread | None) -> bool:
    return gain is not None and gain.count >= ENOUGH_ROUNDS and gain.low > 1 and gain.median >= _DOUBT
