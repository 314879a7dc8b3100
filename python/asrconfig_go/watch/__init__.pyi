"""Types of the public names in __init__.py; written by build/stubs.py."""

from .alerts import AlertReporter as AlertReporter
from .callback import AdaptiveMemoryCallback as AdaptiveMemoryCallback
from .lightning import lightning_callback as lightning_callback
from .live_readings import MetricsServer as MetricsServer
from .memory_monitor import MemoryMonitor as MemoryMonitor
from .memory_summary import MemorySummary as MemorySummary, RankPeaks as RankPeaks
from .run_files import export as export
from .run_report import (
    RunComparison as RunComparison,
    RunReport as RunReport,
    compare_runs as compare_runs,
    report as report,
)
from .telemetry import GPUMemory as GPUMemory, MemorySnapshot as MemorySnapshot
from .watch_records import Finding as Finding, GPUHistory as GPUHistory, MemoryHistory as MemoryHistory
