"""What a plan gains on one's own model and data, measured: see docs/benchmark.md."""

from __future__ import annotations

from .asking import benchmark_training
from .records import Block, LoaderResult, OptionResult, Readings, SideResult, Spread, StepParts
from .result import BenchmarkResult, Setting

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
