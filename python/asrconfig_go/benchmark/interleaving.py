"""Interleaved blocks of several sides, so that changes of the machine affect all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .measurements import Block, Spread
from .variants import Side


@dataclass
class BenchmarkRun:
    """The blocks of one side; of another side than the plan's also their gains, when both neighbours are there."""

    side: Side
    blocks: list[Block] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    cpu_gains: list[float] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def gain(self) -> Spread | None:
        """Speed relative to the plan, over the rounds."""
        return Spread.of(self.gains)

    @property
    def cpu_gain(self) -> Spread | None:
        """The same by processor time."""
        return Spread.of(self.cpu_gains)

    @property
    def slowdown(self) -> Spread | None:
        """Speed of the plan relative to this."""
        return Spread.of(1 / gain for gain in self.gains)

    @property
    def cpu_slowdown(self) -> Spread | None:
        """The same by processor time."""
        return Spread.of(1 / gain for gain in self.cpu_gains)


def interleave(
    plan: BenchmarkRun, others: Sequence[BenchmarkRun], rounds: int, run: Callable[[BenchmarkRun], Block | None]
) -> None:
    """Run P A P B P …, ``rounds`` times: each block of another side lies between two of the plan's.

    Its gain is the mean of theirs over its own time, so that a machine that gets evenly slower changes nothing. ``run``
    gives None for a side that fails; that one is not run again.
    """
    last: Block | None = None
    for _ in range(rounds):
        for other in others:
            if other.problem:
                continue
            last = last or _kept(plan, run)
            block = _kept(other, run)
            if block is None or last is None:
                continue
            following = _kept(plan, run)
            if following is None:
                return
            other.gains.append((last.seconds + following.seconds) / 2 / block.seconds)
            other.cpu_gains.append((last.cpu_s + following.cpu_s) / 2 / block.cpu_s)
            last = following
        if not others:
            _kept(plan, run)


def _kept(course: BenchmarkRun, run: Callable[[BenchmarkRun], Block | None]) -> Block | None:
    block = run(course)
    if block is not None:
        course.blocks.append(block)
    return block
