"""Types of the public names in __init__.py; written by build/stubs.py."""

from .alerts import AlertReporter as AlertReporter
from .lightning import lightning_callback as lightning_callback
from .memory_callback import AdaptiveMemoryCallback as AdaptiveMemoryCallback
from .memory_monitor import (
    GPUHistory as GPUHistory,
    GPUMemory as GPUMemory,
    MemoryHistory as MemoryHistory,
    MemoryMonitor as MemoryMonitor,
    MemorySnapshot as MemorySnapshot,
)
from .memory_summary import MemorySummary as MemorySummary
from .rank_peaks import RankPeaks as RankPeaks
