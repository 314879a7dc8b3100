"""What a plan gains on your own model and data, measured: see docs/benchmark.md."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "benchmark_result": ("BenchmarkResult", "Setting"),
        "measurements": (
            "Block",
            "LoaderResult",
            "OptionResult",
            "Readings",
            "SideResult",
            "Spread",
            "StepParts",
            "Turn",
        ),
        "request": ("benchmark_training",),
    },
)
