"""The report's charts with matplotlib, which is optional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._base.choices import ReportAxis
from .._base.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from .axis import COLUMNS, Axis, thinned
from .chart_panels import Panel, busy_panel, cpu_panels, fullest, memory_panel, ram_panels, steps_panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .marks import Marks
    from .run_report import RunReport
    from .timeline import GPUView

_SHOWN = 4
_WARN, _BAD, _INK = "#9a6700", "#c62828", "#59636e"


def plot_report(r: RunReport, by: ReportAxis, gpus: Sequence[int] | None) -> Figure:
    """Memory and utilisation of the GPUs, steps, RAM and processors, one under the other."""
    panels = _panels(r, _views(r, gpus))
    if not panels:
        raise NotFoundError("nothing was sampled in this run: there is nothing to draw", "watch a longer run")
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise UnsupportedError("drawing needs matplotlib", 'pip install "asrconfig-go[plot]"') from error
    axis = Axis(r.timeline, by)
    figure: Figure
    figure, axes = pyplot.subplots(
        len(panels), 1, sharex=True, squeeze=False, figsize=(11, 1.2 + 1.9 * len(panels)), layout="constrained"
    )
    for panel, ax in zip(panels, axes[:, 0], strict=True):
        _draw(panel, ax, axis, r.marks)
    axes[-1, 0].set_xlabel("optimizer step" if by == "steps" else axis.unit)
    axes[-1, 0].set_xlim(axis.low / axis.divisor, axis.high / axis.divisor)
    figure.suptitle(r.headline, fontsize=10, x=0.01, ha="left", wrap=True)
    return figure


def _views(r: RunReport, gpus: Sequence[int] | None) -> tuple[GPUView, ...]:
    if gpus is None:
        return fullest(r.timeline, [gpu.headroom_lowest_bytes for gpu in r.gpus], _SHOWN)
    for i in gpus:
        if not 0 <= i < len(r.timeline.gpus):
            raise InvalidArgumentError(f"gpus: {i} is not one of {len(r.timeline.gpus)} GPUs", "count from 0")
    return tuple(r.timeline.gpus[i] for i in gpus)


def _panels(r: RunReport, views: Sequence[GPUView]) -> list[Panel]:
    line = r.timeline
    found = [panel for view in views for panel in (memory_panel(line, view), busy_panel(line, view))]
    found += [steps_panel(line), *ram_panels(line), *cpu_panels(line)]
    return [panel for panel in found if not panel.empty]


def _draw(panel: Panel, ax: Any, axis: Axis, marks: Marks) -> None:
    for series in panel.series:
        label: str | None = series.name
        for piece in thinned(series.line, axis, series.choose):
            x = [(axis.low + (c + 0.5) / COLUMNS * (axis.high - axis.low)) / axis.divisor for c, _ in piece]
            y = [v / panel.scale for _, v in piece]
            ax.plot(x, y, color=series.colour, linewidth=1.2, label=label, marker="." if len(x) == 1 else None)
            if series.area:
                ax.fill_between(x, y, color=series.colour, alpha=0.2, linewidth=0)
            label = None
    if panel.limit:
        ax.axhline(panel.limit[0] / panel.scale, color=_BAD, linestyle="--", linewidth=1, label=panel.limit[1])
    _mark(ax, axis, marks.of(panel.where), marks)
    ax.set_ylim(0, panel.top)
    ax.set_ylabel(panel.unit)
    ax.set_title(f"{panel.where} {panel.title}".strip(), fontsize=9, loc="left")
    ax.legend(fontsize=7, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.1, ncols=6)


def _mark(ax: Any, axis: Axis, mine: Marks, marks: Marks) -> None:
    def place(at_s: float) -> float:
        return axis.value(at_s) / axis.divisor

    for band in mine.bands:
        opacity = {"evaluation": 0.1, "checkpoint": 0.25, "gap": 0.06}[band.kind]
        ax.axvspan(place(band.begin_s), place(band.end_s), color="black", alpha=opacity, linewidth=0)
    for outcome in mine.alerts:
        colour = _BAD if outcome.alert.severity == "critical" else _WARN
        ax.axvline(place(outcome.at_s), color=colour, linestyle=":", linewidth=1)
        number = f"{marks.alerts.index(outcome) + 1}"
        ax.annotate(number, (place(outcome.at_s), 1), xycoords=("data", "axes fraction"), color=colour, fontsize=8)
    for moment in mine.moments:
        grave = moment.kind == "out_of_memory"
        ax.axvline(
            place(moment.at_s), 0, 1 if grave else 0.08, color=_BAD if grave else _INK, linewidth=1.5 if grave else 0.8
        )
