"""The report as text for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..view.quantities import into_run, short
from ..view.terminal import section, table, wrapped
from .axis import COLUMNS, Axis, thinned
from .chart_panels import Panel, busy_panel, fullest, memory_panel, ram_panels
from .run_summary import facts, gpu_rows, host_rows, level_of, tiles

if TYPE_CHECKING:
    from .alert_outcomes import Outcome
    from .diagnosis import Finding
    from .run_report import RunReport

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDE = 80
_DRAWN, _TOLD = 4, 30  # GPUs and events that are shown
_MARKS = {"serious": "!!", "warning": "! ", "note": "· "}


def report_text(r: RunReport) -> str:
    """Headline, figures, findings, alerts, GPUs, host, events; at most 110 columns wide but for the GPUs' table."""
    lines = wrapped(r.headline)
    lines += section("Run", facts(r))
    lines += section("Figures", [f"{name:<20} {value:<16} {remark}".rstrip() for name, value, remark in tiles(r)])
    lines += section("Findings", [line for finding in r.findings for line in _finding(finding)], indent="")
    lines += section("Alerts", [line for i, o in enumerate(r.alerts, 1) for line in _alert(i, o)], indent="")
    lines += section("Over time", _drawn(r))
    lines += _gpus(r)
    lines += section("Host", [f"{name:<18} {words}" for name, words in host_rows(r)])
    told = [f"{into_run(m.at_s):>9}  {m.where + ': ' if m.where else ''}{m.text}" for m in r.events]
    more = [f"… and {len(told) - _TOLD} more"] if len(told) > _TOLD else []
    lines += section("Events", told[:_TOLD] + more)
    return "\n".join(line.rstrip() for line in lines)


def _finding(finding: Finding) -> list[str]:
    lines = wrapped(f"{_MARKS[level_of(finding.severity)]} {finding.title}", "  ", "   ")
    lines += wrapped(finding.evidence, "     ") if finding.evidence else []
    return lines + (wrapped(f"→ {finding.change}", "     ", "  ") if finding.change else [])


def _alert(number: int, outcome: Outcome) -> list[str]:
    alert = outcome.alert
    where = f"{outcome.where}: " if outcome.where else ""
    mark = _MARKS[level_of(alert.severity)]
    lines = wrapped(f"{mark} {number}. {into_run(outcome.at_s)}  {where}{alert.text}", "  ", "      ")
    lines += wrapped(f"{outcome}", "      ")
    return lines + (wrapped(f"→ {alert.advice}", "      ", "  ") if alert.advice else [])


def _gpus(r: RunReport) -> list[str]:
    """Each GPU's row as lines of its own where there are few, as a table of the first columns where there are many."""
    rows = gpu_rows(r)
    if len(rows) <= 2:
        pairs = list(zip(rows[0], rows[1], strict=True)) if rows else []
        return section("GPU", [f"{name:<18} {words}" for name, words in pairs[1:]])
    shown = (0, 2, 3, 6, 7, 8, 9)
    return section("GPUs", table([tuple(row[i] for i in shown) for row in rows]))


def _drawn(r: RunReport) -> list[str]:
    """Memory and utilisation of the fullest GPUs, and RAM, a row of blocks each."""
    if r.timeline.duration_s <= 0:
        return []
    axis = Axis(r.timeline)
    lines = []
    for view in fullest(r.timeline, [gpu.headroom_lowest_bytes for gpu in r.gpus], _DRAWN):
        lines += _row(memory_panel(r.timeline, view), axis, f"{view.label} memory")
        lines += _row(busy_panel(r.timeline, view), axis, f"{view.label} busy")
    for panel in ram_panels(r.timeline):
        lines += _row(panel, axis, panel.title)
    return lines


def _row(panel: Panel, axis: Axis, name: str) -> list[str]:
    """The panel's first line, as blocks up to its top; a space where nothing is known."""
    if panel.empty:
        return []
    first, cells = panel.series[0], [" "] * _WIDE
    top = panel.limit[0] if panel.limit else panel.scale * (panel.whole or panel.top)
    for piece in thinned(first.line, axis, first.choose):
        ends = [column for column, _ in piece[1:]] + [piece[-1][0] + 1]
        for (column, value), end in zip(piece, ends, strict=True):
            level = _BLOCKS[1 + min(7, int(8 * value / top))]
            for place in range(column * _WIDE // COLUMNS, max(column, end - 1) * _WIDE // COLUMNS + 1):
                cells[place] = max(cells[place], level)
    unit = f"{short(top / panel.scale)} {panel.unit}"
    return [f"{name:<15} |{''.join(cells)}| {unit}"]
