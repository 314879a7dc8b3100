"""Types of the public names in __init__.py; written by build/stubs.py."""

from .diagnosis import Finding as Finding
from .metrics_server import MetricsServer as MetricsServer
from .run_export import export as export
from .run_report import RunReport as RunReport, report as report
