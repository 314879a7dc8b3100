"""Interleaved blocks of several sides, so that changes of the machine affect all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from .measurements import Block, Spread, Turn
from .variants import Side


@dataclass
class BenchmarkRun:
    """The blocks of one side; of another side than the plan's also its ``rounds``, and what the plan took ``beside``
    each, when both neighbours are there.
    """

    side: Side
    blocks: list[Block] = field(default_factory=list)
    rounds: list[Turn] = field(default_factory=list)
    beside: list[Turn] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def gain(self) -> Spread | None:
        """Speed relative to the plan."""
        return Spread.ratio([turn.seconds for turn in self.beside], [turn.seconds for turn in self.rounds])

    @property
    def cpu_gain(self) -> Spread | None:
        """The same by processor time."""
        return Spread.ratio([turn.cpu_s for turn in self.beside], [turn.cpu_s for turn in self.rounds])


def interleave(
    plan: BenchmarkRun, others: Sequence[BenchmarkRun], rounds: int, run: Callable[[BenchmarkRun], Block | None]
) -> None:
    """Run P A P B P …, ``rounds`` times: each block of another side lies between two of the plan's.

    The plan's time beside it is the mean of theirs, so that a machine that gets evenly slower changes no ratio.
    ``run`` returns None for a side that fails, which is then not run again.
    """
    last: Block | None = None
    for _ in range(rounds):
        for other in others:
            if other.problem:
                continue
            last = last or _run_block(plan, run)
            block = _run_block(other, run)
            if block is None or last is None:
                continue
            following = _run_block(plan, run)
            if following is None:
                return
            other.rounds.append(turn(block))
            other.beside.append(turn(last, following))
            last = following
        if not others:
            _run_block(plan, run)


def turn(*blocks: Block) -> Turn:
    """The mean of some blocks."""
    cpu_s = [block.cpu_s for block in blocks if block.peak_allocated_bytes is None]  # none on a GPU
    return Turn(fmean(block.seconds for block in blocks), fmean(cpu_s) if cpu_s else None)


def _run_block(side_run: BenchmarkRun, run: Callable[[BenchmarkRun], Block | None]) -> Block | None:
    block = run(side_run)
    if block is not None:
        side_run.blocks.append(block)
    return block
