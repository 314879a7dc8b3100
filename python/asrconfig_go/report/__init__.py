"""What became of a run: ``report`` for people, ``export`` and ``MetricsServer`` for other programs."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "diagnosis": ("Finding",),
        "metrics_server": ("MetricsServer",),
        "run_export": ("export",),
        "run_report": ("RunReport", "report"),
    },
)
