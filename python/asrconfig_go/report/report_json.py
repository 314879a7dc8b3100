"""The report as a JSON object; docs/report.md tells its keys."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from .._base.records import to_json

if TYPE_CHECKING:
    from .run_report import RunReport

VERSION = 1


def report_json(r: RunReport) -> dict[str, Any]:
    """Figures, not series: those are in the run's own file, and in its exports."""
    first = min((s.story.start_unix_nanos for s in r.timeline.sources), default=0)
    stories = [source.story for source in r.timeline.sources]
    return {
        "report_version": VERSION,
        "headline": r.headline,
        "start_unix_s": first / 1e9,
        "duration_s": r.timeline.duration_s,
        "gap_s": r.gap_s,
        "samples": sum(story.samples for story in stories),
        "errors": sum(story.errors for story in stories),
        "interval_s": stories[0].interval_s,
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
