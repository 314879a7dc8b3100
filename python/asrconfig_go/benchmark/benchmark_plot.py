"""A benchmark's charts with matplotlib, which is optional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._base.errors import NotFoundError, UnsupportedError
from ..explain.plan_charts import ink_on
from ..view.quantities import percent, short
from .benchmark_charts import NEEDED, PART_COLOURS, sides_of
from .measurements import SideResult, Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .benchmark_result import BenchmarkResult

_BLUE, _GREY, _RED = "#4e79a7", "#8c8c8c", "#d62728"
_INCHES = 0.42  # of a bar


def plot_benchmark(r: BenchmarkResult) -> Figure:
    """Speeds, the parts of a step, the loader and single changes, one under the other."""
    sides = sides_of(r)
    if not sides:
        raise NotFoundError("nothing was measured: there is nothing to draw", "let it run for at least one round")
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise UnsupportedError("drawing needs matplotlib", 'pip install "asrconfig-go[plot]"') from error
    loader = [(f"{e.workers} × {e.prefetch}" if e.workers else "no workers", e.clips_per_s) for e in r.loader]
    tried = [(f"{e.option} {e.value}", e.gain, e.better) for e in r.options if e.gain is not None]
    heights = [max(2, len(rows)) for rows in (sides, sides, loader, tried) if rows]
    figure: Figure
    figure, axes = pyplot.subplots(
        len(heights), 1, squeeze=False, figsize=(9, 0.6 + sum(_INCHES * n + 0.75 for n in heights)),
        layout="constrained", height_ratios=[_INCHES * n + 0.4 for n in heights],
    )  # fmt: skip
    left = iter(axes[:, 0])
    speeds = [(side.name, side.clips_per_s) for side in sides if side.clips_per_s is not None]
    _bars(next(left), "samples/s", speeds, [_BLUE] * len(speeds))
    _parts(next(left), sides)
    if loader:
        _bars(next(left), "the loader alone, workers × prefetch: clips/s", loader, [_BLUE] * len(loader))
    if tried:
        ax, colours = next(left), [_BLUE if better else _GREY for _, _, better in tried]
        _bars(ax, "single changes: speed beside the plan", [(n, g) for n, g, _ in tried if g], colours)
        ax.axvline(1, color=_RED, linestyle="--", linewidth=1)
    figure.suptitle(r.headline, fontsize=10, x=0.01, ha="left", wrap=True)
    return figure


def _bars(ax: Any, title: str, rows: Sequence[tuple[str, Spread]], colours: Sequence[str]) -> None:
    """Medians, with the lowest and the highest."""
    middle = [spread.median for _, spread in rows]
    around = [[s.median - s.low for _, s in rows], [s.high - s.median for _, s in rows]]
    ink = ax.xaxis.label.get_color()
    ax.barh(range(len(rows)), middle, color=colours, height=0.62, xerr=around, ecolor=ink, capsize=3)
    for i, (_, spread) in enumerate(rows):
        ax.annotate(short(spread.median), (spread.high, i), xytext=(6, 0), textcoords="offset points", va="center")
    ax.margins(x=0.12)
    _named(ax, title, [name for name, _ in rows])


def _parts(ax: Any, sides: Sequence[SideResult]) -> None:
    for i, side in enumerate(sides):
        start = 0.0
        for part, part_share in side.shares.items():
            colour = PART_COLOURS[part]
            ax.barh(i, part_share, left=start, color=colour, height=0.62, label=None if i else part)
            if part_share > NEEDED:
                place = (start + part_share / 2, i)
                ax.annotate(percent(part_share), place, color=ink_on(colour), ha="center", va="center", fontsize=8)
            start += part_share
    ax.legend(fontsize=7, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.1, ncols=5)
    ax.xaxis.set_major_formatter(lambda value, _: percent(value))
    _named(ax, "parts of a step", [side.name for side in sides])


def _named(ax: Any, title: str, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.invert_yaxis()
    ax.tick_params(axis="x", labelsize=7)
    ax.set_title(title, fontsize=9, loc="left")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
