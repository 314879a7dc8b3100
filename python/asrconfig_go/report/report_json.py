"""The report as JSON: figures for programs, whose keys docs/report.md tells; with charts, what the view shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .._base.choices import ReportAxis
from .._base.errors import InvalidArgumentError
from .._base.records import to_json
from ..view.render import Record
from .axis import Axis
from .chart_panels import fullest
from .reported_run import ReportedRun
from .run_charts import run_charts
from .timeline import GPUView, Timeline

VERSION = 1
_OPEN = 4  # GPUs whose charts are not behind a fold


def run_view(r: ReportedRun, by: ReportAxis, gpus: Sequence[int] | None) -> Record:
    """What the view of a run shows; its charts run ``by`` "time" or "steps". ``gpus`` are those that are shown."""
    axis, record = Axis(r.timeline, by), report_figures(r)
    for alert, o in zip(record["alerts"], r.alerts, strict=True):
        end = None if o.alert.cleared_s is None else o.at_s + (o.after_s or 0.0)
        alert |= {"x": axis.place(o.at_s), "until_x": None if end is None else axis.place(end)}
    for event, moment in zip(record["events"], r.events, strict=True):
        event["x"] = axis.place(moment.at_s)
    views = r.timeline.gpus
    lowest = [gpu.headroom_lowest_bytes for gpu in r.gpus]
    shown = fullest(r.timeline, lowest, _OPEN) if gpus is None else _chosen(views, gpus)
    others = [view for view in views if view not in shown] if gpus is None else []
    return record | {
        "gaps": sum(band.kind == "gap" for band in r.bands),
        "rank_words": [str(peaks) for peaks in r.ranks],
        "monitors": [source.name or "the first" for source in r.timeline.sources],
        "unfinished": _unfinished(r.timeline),
        "charts": run_charts(r.timeline, axis, r.bands, shown, others),
    }


def _chosen(views: Sequence[GPUView], gpus: Sequence[int]) -> tuple[GPUView, ...]:
    for i in gpus:
        if not 0 <= i < len(views):
            raise InvalidArgumentError(f"gpus: {i} is not one of {len(views)} GPUs", "count from 0")
    return tuple(views[i] for i in gpus)


def _unfinished(line: Timeline) -> bool:
    """Whether a training began, and nothing is known of its end."""
    told = [event.text for event in line.leads[-1].run_log.events if event.kind == "training"]
    return any("begins" in text for text in told) and not any("ends" in text for text in told)


def report_figures(r: ReportedRun) -> Record:
    """Figures, not series: those are in the run's own file, and in its exports."""
    first = min((s.run_log.start_unix_nanos for s in r.timeline.sources), default=0)
    run_logs = [source.run_log for source in r.timeline.sources]
    return {
        "start_unix_s": first / 1e9,
        "duration_s": r.timeline.duration_s,
        "gap_s": r.gap_s,
        "samples": sum(run_log.samples for run_log in run_logs),
        "errors": sum(run_log.errors for run_log in run_logs),
        "interval_s": run_logs[0].interval_s,
        "energy_wh": r.energy_wh,
        "steps": dataclasses.asdict(r.steps),
        "gpus": [dataclasses.asdict(gpu) for gpu in r.gpus],
        "hosts": [dataclasses.asdict(host) for host in r.hosts],
        "findings": to_json(r.findings),
        "alerts": [
            {
                **to_json(o.alert),
                "at_s": o.at_s,
                "where": o.where,
                "outcome": o.what,
                "after_s": o.after_s,
            }
            for o in r.alerts
        ],
        "events": [dataclasses.asdict(moment) for moment in r.events],
        "trainer": r.trainer and dataclasses.asdict(r.trainer),
        "guard": r.record
        and {
            "events": [dataclasses.asdict(event) for event in r.record.events],
            "restarts": [dataclasses.asdict(restart) for restart in r.record.restarts],
        },
        "ranks": [dataclasses.asdict(peaks) for peaks in r.ranks],
        "notes": list(r.notes),
    }
