"""What became of a run: ``report`` for people, ``export`` and ``MetricsServer`` for other programs."""

from .export import export
from .metrics_server import MetricsServer
from .run_report import RunReport, report

__all__ = ["MetricsServer", "RunReport", "export", "report"]
