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
    """The median of several values, and their range.

    Attributes:
        median: The median.
        low: The lowest value.
        high: The highest value.
        count: The number of values.
    """

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Return the spread of values, some of which may be missing.

        Args:
            values: The values; None for one that was not measured.

        Returns:
            The spread; None where a value is missing, or there are no values.
        """
        measured = list(values)
        if not measured or any(value is None for value in measured):
            return None
        return cls.over([float(value) for value in measured if value is not None])

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        """Return the spread of measured values.

        Args:
            values: At least one value.

        Returns:
            The spread.
        """
        return cls(statistics.median(values), min(values), max(values), len(values))

    @classmethod
    def ratio(cls, over: Sequence[float | None], under: Sequence[float | None]) -> Spread | None:
        """Return the ratio of two medians, with the lowest and the highest ratio of single rounds.

        Args:
            over: The values of each round above the line; None for one that was not measured.
            under: The values of the same rounds below it.

        Returns:
            The ratio, which always lies between the lowest and the highest; None where a value is missing, or there are
            not as many values on both sides.
        """
        high, low = cls.of(over), cls.of(under)
        if high is None or low is None or high.count != low.count:
            return None
        rounds = cls.over([a / b for a, b in zip(over, under, strict=True) if a is not None and b is not None])
        return cls(high.median / low.median, rounds.low, rounds.high, rounds.count)

    def rate(self, amount: float) -> Spread:
        """Convert seconds to a rate.

        Args:
            amount: What was done in these seconds.

        Returns:
            The amount per second.
        """
        return Spread(amount / self.median, amount / self.high, amount / self.low, self.count)


@dataclass(frozen=True)
class StepParts:
    """The time of one optimizer step and of its parts, in seconds.

    Attributes:
        seconds: The whole step.
        waiting_s: Waiting for batches.
        forward_s: Forward passes.
        backward_s: Backward passes.
        optimizer_s: Clipping and the optimizer.
        other_s: All else in the Trainer.
        micro_batches: The number of micro-batches.
        queued_s: The CPU's time for forward and backward, on a GPU; None on a CPU.
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
    """Consecutive steps of one side, without those that warmed up.

    Attributes:
        seconds: The time of the block.
        cpu_s: The processor time of this process and its loader workers, in seconds.
        steps: The time of each optimizer step.
        padded_s: The seconds of the batches with padding; None where they are not known.
        audio_s: The seconds of the batches without padding; None where they are not known.
        longest_s: The seconds of the longest input; None where they are not known.
        peak_allocated_bytes: PyTorch's peak of allocated memory; None on a CPU.
        peak_reserved_bytes: PyTorch's peak of reserved memory; None on a CPU.
        begun_unix_s: When the block began, in seconds of Unix time.
        out_of_memory: The number of steps that the guard repeated.
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
    """The time of a side in one round.

    Attributes:
        seconds: The time.
        cpu_s: The processor time in seconds; None on a GPU, where it means little.
    """

    seconds: float
    cpu_s: float | None


@dataclass(frozen=True)
class SideResult:
    """The measurements of one side.

    Attributes:
        name: The name of the side, such as ``"plan"``.
        settings: The Trainer's settings, as used.
        clips: The clips of a block.
        audio_s: The seconds of a block's clips without padding; None where they are not known.
        longest_s: The seconds of the longest of them; None where they are not known.
        cores: The processor cores that may be used.
        blocks: Every block; empty where none was measured.
        rounds: The times from which rates and ratios are computed. Where the plan is compared with another side, its
            time is the mean of its blocks before and after that side's.
        readings: What the monitor read during the blocks.
        problem: Why there are no blocks, in words; ``""`` with blocks.
        adapted: Why the batch is another than asked for, in words; ``""`` where it is not.
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
        """The seconds of a block, over the rounds; None without rounds."""
        return Spread.of(turn.seconds for turn in self.rounds)

    @cached_property
    def clips_per_s(self) -> Spread | None:
        """Clips per second, over the rounds; None without rounds."""
        return None if self.seconds is None else self.seconds.rate(self.clips)

    @cached_property
    def audio_per_s(self) -> Spread | None:
        """Seconds of audio per second, without padding; None where durations are not known."""
        audio = self._audio(self.blocks[0]) if self.blocks else None
        return None if audio is None or self.seconds is None else self.seconds.rate(audio)

    @cached_property
    def step_s(self) -> Spread | None:
        """The mean seconds of an optimizer step, over the rounds; None without rounds."""
        return Spread.of(turn.seconds / len(self.blocks[0].steps) for turn in self.rounds)

    @cached_property
    def cpu_use(self) -> Spread | None:
        """The share of the usable cores, 0 to 1, that the training and its loader workers kept busy."""
        return Spread.of(block.cpu_s / block.seconds / self.cores for block in self.blocks)

    @cached_property
    def padding(self) -> float | None:
        """The share of the computed seconds that is padding, 0 to 1; None where durations are not known."""
        padded = [block.padded_s for block in self.blocks]
        audio = [self._audio(block) for block in self.blocks]
        if not padded or None in padded or None in audio:
            return None
        return max(0.0, 1 - sum(a or 0.0 for a in audio) / sum(p or 0.0 for p in padded))

    @property
    def fixed_s(self) -> float | None:
        """The seconds to which the processor pads every clip, as Whisper's does; None where it does not."""
        heard = max((b.longest_s for b in self.blocks if b.longest_s is not None), default=None)
        if heard is None or self.longest_s is None or heard <= _FIXED * self.longest_s:
            return None
        return heard

    @cached_property
    def shares(self) -> dict[str, float]:
        """The shares of the time of all steps, by ``PARTS``; empty without blocks.

        On a GPU they need not add up to 1: it works while batches are waited for.
        """
        steps = [step for block in self.blocks for step in block.steps]
        total = sum(step.seconds for step in steps)
        return {part: sum(getattr(s, f"{part}_s") for s in steps) / total for part in PARTS} if total else {}

    @cached_property
    def queueing(self) -> float | None:
        """The CPU's time for queueing forward and backward, as a share of their time on the GPU; None on a CPU."""
        steps = [step for block in self.blocks for step in block.steps]
        computing = sum(step.forward_s + step.backward_s for step in steps)
        if not computing or any(step.queued_s is None for step in steps):
            return None
        return sum(step.queued_s or 0.0 for step in steps) / computing

    @property
    def peak_bytes(self) -> int | None:
        """The peak of the memory that PyTorch reserved on the GPU; None on a CPU."""
        return max((b.peak_reserved_bytes for b in self.blocks if b.peak_reserved_bytes is not None), default=None)

    def _audio(self, block: Block) -> float | None:
        return block.audio_s if self.audio_s is None else self.audio_s


@dataclass(frozen=True)
class LoaderResult:
    """One setting of the DataLoader, measured alone over several passes.

    Attributes:
        workers: The number of loader workers.
        prefetch: The batches that each worker prefetches; None without workers.
        clips_per_s: Clips per second.
        audio_per_s: Seconds of audio per second; None where durations are not known.
        start_s: The seconds until the first batch with workers that start.
        again_s: The seconds until the first batch with persistent workers, in a later pass. Without workers it is like
            ``start_s``.
    """

    workers: int
    prefetch: int | None
    clips_per_s: Spread
    audio_per_s: Spread | None
    start_s: float
    again_s: float


@dataclass(frozen=True)
class OptionResult:
    """One change to the plan.

    Attributes:
        option: The name of the option.
        value: The value that was tried.
        change: The change, in words.
        side: The measurements with the change; None where it was not tried.
        gain: How many times as many clips per second as the plan, over adjacent blocks; None where it was not measured.
        cpu_gain: The same by processor time; None on a GPU.
        problem: How the change failed; ``""`` where it did not.
        why_not: Why the change was not tried; ``""`` where it was.
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
        """Whether the change is clearly better: ``"faster"``, ``"faster by processor time"`` or ``""``.

        ``"faster"`` requires a gain in every round, at least five of them, and a median gain of 2 % or more, which is
        beyond noise. ``"faster by processor time"`` requires that of processor time only.
        """
        if _clearly(self.gain):
            return "faster"
        by_processor = _clearly(self.cpu_gain) and self.gain is not None and self.gain.median > 1
        return "faster by processor time" if by_processor else ""

    @property
    def worse(self) -> bool:
        """Whether the change is slower in every round, at least five of them."""
        return self.gain is not None and self.gain.count >= ENOUGH_ROUNDS and self.gain.high < 1


def _clearly(gain: Spread | None) -> bool:
    return gain is not None and gain.count >= ENOUGH_ROUNDS and gain.low > 1 and gain.median >= _DOUBT
