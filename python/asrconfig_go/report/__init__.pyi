"""Types of the public names in __init__.py; written by build/stubs.py."""

from .diagnosis import Finding as Finding
from .metrics_server import MetricsServer as MetricsServer
from .run_comparison import RunComparison as RunComparison, compare_runs as compare_runs
from .run_export import export as export
from .run_report import RunReport as RunReport, report as report
