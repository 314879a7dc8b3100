"""What became of runs: ``report`` and ``compare_runs`` for people, ``export`` and ``MetricsServer`` for programs."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "diagnosis": ("Finding",),
        "metrics_server": ("MetricsServer",),
        "run_comparison": ("RunComparison", "compare_runs"),
        "run_export": ("export",),
        "run_report": ("RunReport", "report"),
    },
)
