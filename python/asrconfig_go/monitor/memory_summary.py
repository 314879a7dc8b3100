"""The memory summary of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._base.listing import LINES, first_of, listed
from ..view.units import GIB
from .rank_peaks import RankPeaks

if TYPE_CHECKING:
    from .memory_monitor import MemorySnapshot


@dataclass(frozen=True)
class MemorySummary:
    """A training run's memory. Sizes are bytes, None where nothing could be read.

    ``errors`` counts failed samples; ``problem`` says why there was no monitor, ``""`` when there was one. ``ranks``
    are the peaks of every process of a training with several, in order of rank, as far as they were reported.
    """

    gpu_peaks: tuple[int | None, ...]
    gpu_totals: tuple[int | None, ...]
    host_peak: int | None
    host_total: int | None
    samples: int
    errors: int
    warnings: int
    clean_ups: int
    problem: str
    ranks: tuple[RankPeaks, ...] = ()

    def __str__(self) -> str:
        if self.problem:
            return f"memory was not watched: {self.problem}"
        pairs = [(f"GPU {i}", *pair) for i, pair in enumerate(zip(self.gpu_peaks, self.gpu_totals, strict=True))]
        peaks = [used_of(*pair) for pair in [*pairs, ("host", self.host_peak, self.host_total)]]
        counts = f"{self.warnings} warnings, {self.clean_ups} clean-ups, {self.errors} failed of {self.samples} samples"
        return "; ".join([f"peak memory: {listed(peaks, shown=LINES)}", counts, *first_of(self.ranks)])


def summarised(
    shot: MemorySnapshot, warnings: int, clean_ups: int, problem: str, ranks: tuple[RankPeaks, ...]
) -> MemorySummary:
    """The peaks of a monitor's last sample with what was done about them."""
    return MemorySummary(
        tuple(gpu.peak for gpu in shot.gpus), tuple(gpu.total for gpu in shot.gpus), shot.host_peak, shot.host_total,
        shot.samples, shot.errors, warnings, clean_ups, problem, ranks,
    )  # fmt: skip


def used_of(name: str, used: int | None, total: int | None) -> str:
    """``GPU 0 9.0 of 10.0 GiB (90%)``."""
    if used is None or not total:
        return f"{name} unknown"
    return f"{name} {used / GIB:.1f} of {total / GIB:.1f} GiB ({used / total:.0%})"
