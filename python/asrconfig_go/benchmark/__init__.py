"""What a plan gains on one's own model and data, measured: see docs/benchmark.md."""

from __future__ import annotations

from .benchmark_result import BenchmarkResult, Setting
from .measurements import Block, LoaderResult, OptionResult, Readings, SideResult, Spread, StepParts
from .request import benchmark_training

__all__ = [
    "BenchmarkResult",
    "Block",
    "LoaderResult",
    "OptionResult",
    "Readings",
    "Setting",
    "SideResult",
    "Spread",
    "StepParts",
    "benchmark_training",
]
