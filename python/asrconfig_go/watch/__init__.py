"""Monitoring of a training: alerts, clean-ups, curves, a live panel, the run log and the report of it."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "alerts": ("AlertReporter",),
        "callback": ("AdaptiveMemoryCallback",),
        "lightning": ("lightning_callback",),
        "live_readings": ("MetricsServer",),
        "memory_monitor": ("MemoryMonitor",),
        "memory_summary": ("MemorySummary", "RankPeaks"),
        "run_files": ("export",),
        "run_report": ("RunComparison", "RunReport", "compare_runs", "report"),
        "telemetry": ("GPUMemory", "MemorySnapshot"),
        "watch_records": ("Finding", "GPUHistory", "MemoryHistory"),
    },
)
