"""Monitoring of a training: alerts, clean-ups, curves, progress, a live panel, the run log.

``AlertReporter`` and ``lightning_callback`` work on a ``MemoryMonitor`` in any loop; the rest is what
``AdaptiveMemoryCallback`` is made of.
"""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "alerts": ("AlertReporter",),
        "lightning": ("lightning_callback",),
        "memory_callback": ("AdaptiveMemoryCallback",),
        "memory_monitor": ("GPUHistory", "GPUMemory", "MemoryHistory", "MemoryMonitor", "MemorySnapshot"),
        "memory_summary": ("MemorySummary",),
        "rank_peaks": ("RankPeaks",),
    },
)
