"""Memory estimates drawn with matplotlib, which is optional."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .._base.errors import InvalidArgumentError, UnsupportedError
from ..view.markup import colour_of
from ..view.units import GIB
from .memory_html import phase_starts
from .memory_text import heading, ordered, short_verdict

if TYPE_CHECKING:
    from .estimate import MemoryEstimate
    from .run_memory import RunEstimate


def _axes(ax: Any, size: tuple[float, float]) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise UnsupportedError("drawing needs matplotlib", 'pip install "asrconfig-go[plot]"') from error
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def plot_estimate(e: MemoryEstimate, ax: Any) -> Any:
    """Components stacked over the run's events, reserved memory, the limit, and where phases begin."""
    t = e.timeline
    if t is None or len(t.event) < 2:
        raise InvalidArgumentError(
            "the estimate has no timeline", 'only estimator="trace" has one; ask without timeline=0'
        )
    ax = _axes(ax, (10, 4.5))
    names = [name for name, _ in ordered({name: max(held, default=0) for name, held in t.components.items()})]
    rows = [[n / GIB for n in t.components[name]] for name in names]
    ax.stackplot(t.event, rows, labels=names, colors=[colour_of(name) for name in names])
    ax.plot(t.event, [n / GIB for n in t.reserved], color="black", linewidth=1.2, label="reserved")
    if e.target.limit_bytes is not None:
        ax.axhline(e.target.limit_bytes / GIB, color="tab:red", linestyle="--", label=f"limit of {e.target.name}")
    _mark_phases(ax, phase_starts(e, t), t.event[-1] - t.event[0])
    ax.set_xlim(t.event[0], t.event[-1])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("allocations and frees")
    ax.set_ylabel("GiB")
    ax.set_title(f"{heading(e)}\n{short_verdict(e)}", fontsize=9, loc="left")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    return ax


def _mark_phases(ax: Any, starts: list[tuple[int, str]], span: int) -> None:
    for (event, name), (following, _) in zip(starts, [*starts[1:], (math.inf, "")], strict=True):
        ax.axvline(event, color="black", alpha=0.3, linewidth=0.8, linestyle=":")
        if following - event >= 0.03 * span:
            ax.text(event, 0.99, f" {name}", transform=ax.get_xaxis_transform(), fontsize=7, va="top", rotation=90)


def plot_run(r: RunEstimate, ax: Any) -> Any:
    """The peaks of each order, with the median, and the limit."""
    ax = _axes(ax, (7, 3.5))
    numbers = range(1, len(r.seeds) + 1)
    ax.plot(numbers, [s.peak_reserved / GIB for s in r.seeds], "o", color="black", label="reserved")
    ax.plot(numbers, [s.peak_allocated / GIB for s in r.seeds], "o", color="tab:blue", label="allocated")
    ax.axhline(r.peak_reserved.median / GIB, color="black", linewidth=0.8, label="median reserved")
    ax.axhline(r.largest_batch_only.peak_reserved / GIB, color="grey", linestyle=":", label="longest batch alone")
    if r.target.limit_bytes is not None:
        ax.axhline(r.target.limit_bytes / GIB, color="tab:red", linestyle="--", label=f"limit of {r.target.name}")
    ax.set_xticks(list(numbers))
    ax.set_xlabel("order of the clips")
    ax.set_ylabel("GiB")
    ax.set_title(f"{r.model}, batch {r.batch}, {r.steps} steps, {r.order} order", fontsize=9, loc="left")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    return ax
