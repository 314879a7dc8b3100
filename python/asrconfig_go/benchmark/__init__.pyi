"""Types of the public names in __init__.py; written by build/stubs.py."""

from .benchmark_result import BenchmarkResult as BenchmarkResult, Setting as Setting
from .measurements import (
    Block as Block,
    LoaderResult as LoaderResult,
    OptionResult as OptionResult,
    Readings as Readings,
    SideResult as SideResult,
    Spread as Spread,
    StepParts as StepParts,
    Turn as Turn,
)
from .request import benchmark_training as benchmark_training
