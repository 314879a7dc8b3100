"""The report as a card: no script, nothing from elsewhere, light and dark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .._base.choices import ReportAxis
from ..view.card import SIGNS, facts, grid, notice, section, table
from ..view.markup import escaped, folded, share
from ..view.quantities import into_run, lasting
from ..view.style import ROOT, stylesheet
from ..view.units import plural
from . import run_summary
from .axis import Axis
from .chart_panels import (
    Panel,
    busy_panel,
    cpu_panels,
    fullest,
    heat_panel,
    memory_panel,
    power_panel,
    ram_panels,
    steps_panel,
    traffic_panels,
)
from .report_style import RULES
from .run_charts import chart, keys

if TYPE_CHECKING:
    from .alert_outcomes import Outcome
    from .run_report import RunReport
    from .timeline import GPUView

_OPEN = 4  # GPUs whose charts are not behind a fold
_TOLD = 200  # events


def report_html(r: RunReport, by: ReportAxis = "time") -> str:
    """Headline, figures, findings, alerts, charts, GPUs, host, events."""
    axis = Axis(r.timeline, by)
    parts = [
        f'<div class="head" role="heading" aria-level="2">{escaped(r.headline)}</div>',
        _badges(r),
        facts(run_summary.facts(r)),
        _tiles(r),
        _findings(r),
        _alerts(r),
        _charts(r, axis) if r.timeline.duration_s > 0 else "",
        _gpus(r),
        section("Host", _pairs(run_summary.host_rows(r))),
        _events(r),
    ]
    return f'<div class="{ROOT}"><style>{stylesheet()}{RULES}</style>{"".join(parts)}</div>'


def _badges(r: RunReport) -> str:
    levels = Counter(run_summary.level_of(finding.severity) for finding in r.findings)
    shown = [(level, plural(n, "finding")) for level in SIGNS if (n := levels[level]) and level != "note"]
    critical = sum(o.alert.severity == "critical" for o in r.alerts)
    shown += [("serious", plural(critical, "critical alert"))] if critical else []
    warned = len(r.alerts) - critical
    shown += [("warning", plural(warned, "alert"))] if warned else []
    if not shown:
        return '<div class="badges"><span class="badge yes">✓ nothing was warned of</span></div>'
    return f'<div class="badges">{"".join(_badge(level, words) for level, words in shown)}</div>'


def _badge(level: str, words: str) -> str:
    return f'<span class="badge {level}">{SIGNS[level]} {words}</span>'


def _tiles(r: RunReport) -> str:
    body = "".join(
        f'<div class="tile"><span>{escaped(name)}</span><b>{escaped(value)}</b>'
        f"<span>{escaped(remark) or '&nbsp;'}</span></div>"
        for name, value, remark in run_summary.tiles(r)
    )
    return f'<div class="tiles">{body}</div>'


def _findings(r: RunReport) -> str:
    found = [
        notice(
            run_summary.level_of(f.severity),
            f.title,
            [line for line in (f.evidence, f.change and f"→ {f.change}") if line],
        )
        for f in r.findings
    ]
    return section("Findings", "".join(found)) if found else ""


def _alerts(r: RunReport) -> str:
    rows = [_alert(i, outcome) for i, outcome in enumerate(r.alerts, 1)]
    head = ("", "at", "of", "what", "what became of it")
    return section("Alerts", f'<div class="decisions">{grid(head, rows)}</div>') if rows else ""


def _alert(number: int, outcome: Outcome) -> str:
    alert = outcome.alert
    css = "critical" if alert.severity == "critical" else "warn"
    advice = f'<div class="small dim">→ {escaped(alert.advice)}</div>' if alert.advice else ""
    became = {"came true": "no", "averted": "yes"}.get(outcome.what, "dim")
    return (
        f'<tr><td class="tight"><span class="number {css}">{number}</span></td>'
        f'<td class="tight">{into_run(outcome.at_s)}</td><td class="tight">{escaped(outcome.where or "host")}</td>'
        f'<td class="why"><b>{escaped(alert.text)}</b>{advice}</td>'
        f'<td class="{became}">{escaped(str(outcome))}</td></tr>'
    )


def _charts(r: RunReport, axis: Axis) -> str:
    line = r.timeline
    lowest = [gpu.headroom_lowest_bytes for gpu in r.gpus]
    shown = fullest(line, lowest, _OPEN)
    others = [view for view in line.gpus if view not in shown]
    body = "".join(_gpu_charts(r, axis, view) for view in shown)
    if others:
        folds = "".join(_gpu_charts(r, axis, view, whole=False) for view in others)
        body += folded(f"{plural(len(others), 'more GPU')}, with more headroom", f"<div>{folds}</div>")
    body += _pair([steps_panel(line), *ram_panels(line)], r, axis)
    body += _pair([*cpu_panels(line), *traffic_panels(line)], r, axis)
    return section("Over time" if axis.by == "time" else "Over optimizer steps", _legend(r) + body)


def _gpu_charts(r: RunReport, axis: Axis, view: GPUView, whole: bool = True) -> str:
    """Memory and utilisation; ``whole``: power and temperature, too, which of sixteen GPUs were half of the page."""
    line = r.timeline
    more = [panel for panel in (power_panel(line, view), heat_panel(line, view)) if whole and not panel.empty]
    body = _chart(memory_panel(line, view), r, axis) + _chart(busy_panel(line, view), r, axis)
    if more:
        body += folded(f"power and temperature of {escaped(view.label)}", f"<div>{_pair(more, r, axis)}</div>")
    return body


def _pair(panels: Iterable[Panel], r: RunReport, axis: Axis) -> str:
    boxes = "".join(f"<div>{_chart(panel, r, axis)}</div>" for panel in panels if not panel.empty)
    return f'<div class="pair">{boxes}</div>' if boxes else ""


def _chart(panel: Panel, r: RunReport, axis: Axis) -> str:
    if panel.empty:
        return ""
    name = f"{escaped(panel.where)}: {escaped(panel.title)}" if panel.where else escaped(panel.title)
    return f'<div class="chart"><div class="name">{name}{keys(panel)}</div>{chart(panel, axis, r.marks)}</div>'


def _legend(r: RunReport) -> str:
    """What is marked in all charts, of what there is."""
    kinds = {band.kind for band in r.marks.bands}
    found = [
        f'<span><span class="swatch {kind}"></span>{kind}</span>'
        for kind in ("evaluation", "checkpoint", "gap")
        if kind in kinds
    ]
    if r.alerts:
        found.append('<span><span class="number warn">1</span>alert, by its number above, and how long it held</span>')
    if any(moment.kind == "out_of_memory" for moment in r.events):
        found.append('<span><span class="swatch oom"></span>out of memory</span>')
    return f'<div class="keys">{"".join(found)}</div>' if found else ""


def _gpus(r: RunReport) -> str:
    """The table, with a meter of the peak in the total."""
    rows = run_summary.gpu_rows(r)
    if not rows:
        return ""
    shown = []
    for cells, gpu in zip(rows[1:], r.gpus, strict=True):
        label, name, busy, memory, *rest = map(escaped, cells)
        part = (gpu.used_peak_bytes or 0) / gpu.total_bytes if gpu.total_bytes else 0.0
        meter = f'<span class="meter" style="width:{share(min(1.0, part))}"></span>' if part else ""
        first = f'<td class="tight">{label}</td><td>{name}</td><td class="tight">{busy}</td>'
        tight = "".join(f'<td class="tight">{cell}</td>' for cell in (memory + meter, *rest[:-2]))
        shown.append(f"<tr>{first}{tight}<td>{rest[-2]}</td><td>{rest[-1]}</td></tr>")
    return section("GPUs", f'<div class="ways">{grid(rows[0], shown)}</div>')


def _pairs(rows: list[tuple[str, str]]) -> str:
    body = "".join(
        f'<tr><td class="tight dim">{escaped(name)}</td><td>{escaped(words)}</td></tr>' for name, words in rows
    )
    return f'<div class="wide"><table class="named"><tbody>{body}</tbody></table></div>'


def _events(r: RunReport) -> str:
    if not r.events:
        return ""
    rows = [("at", "of", "what"), *((into_run(m.at_s), m.where or "host", m.text) for m in r.events[:_TOLD])]
    left = len(r.events) - _TOLD
    more = facts([f"… and {left} more in the run's file"]) if left > 0 else ""
    gaps = f", {lasting(r.gap_s)} without samples" if r.gap_s else ""
    return section("Events", folded(f"{plural(len(r.events), 'event')}{gaps}", f"<div>{table(rows)}{more}</div>"))
