"""Monitoring of a training: alerts, clean-ups, curves, a live panel, the run log and the report of it."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "alerts": ("AlertReporter", "lightning_callback"),
        "callback": ("AdaptiveMemoryCallback",),
        "memory_monitor": ("GPUMemory", "MemoryMonitor", "MemorySnapshot"),
        "memory_summary": ("MemorySummary", "RankPeaks"),
        "prometheus": ("MetricsServer",),
        "run_files": ("export",),
        "run_report": ("RunComparison", "RunReport", "compare_runs", "report"),
        "watch_records": ("Finding", "GPUHistory", "MemoryHistory"),
    },
)
