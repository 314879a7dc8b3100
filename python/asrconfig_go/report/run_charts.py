"""The charts of a run as data: what each line is, thinned, on one axis; the view draws them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .axis import COLUMNS, Axis, thinned
from .chart_panels import (
    Panel,
    busy_panel,
    cpu_panels,
    heat_panel,
    memory_panel,
    power_panel,
    ram_panels,
    steps_panel,
    traffic_panels,
)
from .marks import Band
from .timeline import GPUView, Timeline


def run_charts(
    line: Timeline, axis: Axis, bands: Sequence[Band], shown: Sequence[GPUView], others: Sequence[GPUView]
) -> dict[str, Any]:
    """Panels of the GPUs that are ``shown``, of ``others``, and of the host; spans of the charts' axis."""
    groups = [(panel, group) for group, panel in _panels(line, shown, others) if not panel.empty]
    return {
        "by": axis.by,
        "low": axis.low / axis.divisor,
        "high": axis.high / axis.divisor,
        "unit": "optimizer step" if axis.by == "steps" else axis.unit,
        "panels": [_panel(panel, axis) | {"group": group} for panel, group in groups],
        "spans": [_span(band, axis) for band in bands],
    }


def _panels(line: Timeline, shown: Sequence[GPUView], others: Sequence[GPUView]) -> Iterator[tuple[str, Panel]]:
    """Each with its group: "fold" and "more GPUs" are behind folds."""
    for view in shown:
        yield "", memory_panel(line, view)
        yield "", busy_panel(line, view)
        yield "fold", power_panel(line, view)
        yield "fold", heat_panel(line, view)
    for view in others:
        yield "more GPUs", memory_panel(line, view)
        yield "more GPUs", busy_panel(line, view)
    for panel in (steps_panel(line), *ram_panels(line), *cpu_panels(line), *traffic_panels(line)):
        yield "", panel


def _panel(panel: Panel, axis: Axis) -> dict[str, Any]:
    series = []
    for s in panel.series:
        pieces = [
            [(axis.low + c / COLUMNS * (axis.high - axis.low), v) for c, v in piece]
            for piece in thinned(s.line, axis, s.choose)
        ]
        places = [[[x / axis.divisor, v / panel.scale] for x, v in piece] for piece in pieces]
        series.append({"name": s.name, "colour": s.colour, "area": s.area, "pieces": places})
    limit = None if panel.limit is None else {"at": panel.limit[0] / panel.scale, "name": panel.limit[1]}
    return {
        "title": panel.title,
        "where": panel.where,
        "unit": panel.unit,
        "top": panel.top,
        "series": series,
        "limit": limit,
    }


def _span(band: Band, axis: Axis) -> dict[str, Any]:
    begin, end = map(axis.place, (band.begin_s, band.end_s))
    return {"from": begin, "to": end, "kind": band.kind, "begin_s": band.begin_s, "end_s": band.end_s}
