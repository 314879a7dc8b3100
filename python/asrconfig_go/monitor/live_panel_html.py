"""The live panel as HTML: where the training is, memory over time, what is left, what is warned of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..view.card import notice, section
from ..view.markup import BAR_COLOUR, LIMIT_COLOUR, escaped, share, svg
from ..view.quantities import lasting
from ..view.style import ROOT, stylesheet
from ..view.units import GIB

if TYPE_CHECKING:
    from .live_panel import PanelState

_HEIGHT = 110  # pixels of the curve
_COLOURS = (BAR_COLOUR, "#f28e2b", "#59a14f", "#b07aa1", "#9c755f", "#76b7b2", "#ff9da7", "#edc948")
_HOST_COLOUR = "#8c8c8c"
_LEVELS = {"critical": "serious", "warn": "warning"}
_SHOWN = 4  # alerts
_TILES = "grid-template-columns:repeat(auto-fill,minmax(158px,1fr))"


def panel_html(state: PanelState) -> str:
    """The whole card."""
    held = [alert for alert in state.alerts if alert.cleared_s is None][-_SHOWN:]
    notices = [notice(_LEVELS.get(alert.severity, "note"), alert.text, _advice(alert.advice)) for alert in held]
    parts = [
        f'<div class="head" role="heading" aria-level="2">{escaped(_headline(state))}</div>',
        _progress(state),
        "".join(reversed(notices)),
        f'<div class="tiles" style="{_TILES}">{"".join(_tiles(state))}</div>',
        section("Memory", _curves(state), "used share, PyTorch's cache included"),
    ]
    return f'<div class="{ROOT}"><style>{stylesheet()}</style>{"".join(parts)}</div>'


def _headline(state: PanelState) -> str:
    left = "" if state.left_s is None else f" · about {lasting(_roughly(state.left_s))} left"
    return f"{'Stopped after step' if state.stopped else 'Step'} {state.step} of {state.steps}{left}"


def _roughly(seconds: float) -> float:
    return float(max(1, round(seconds))) if seconds < 90 else 60.0 * round(seconds / 60)


def _advice(advice: str) -> list[str]:
    return [f"→ {advice}"] if advice else []


def _progress(state: PanelState) -> str:
    done = share(min(1.0, state.step / state.steps)) if state.steps else "0"
    return f'<span class="meter" style="width:{done};margin:0 0 8px"></span>'


def _tiles(state: PanelState) -> Iterator[str]:
    for i, gpu in enumerate(state.shot.gpus):
        name = f"GPU {i}" if len(state.shot.gpus) > 1 else "GPU"
        yield _tile(f"{name} memory", _of(gpu.used, gpu.total), "with PyTorch's cache", gpu.fraction)
        yield _tile("can be allocated", _size(gpu.headroom), "unused cache is free")
        yield from _busy(state, i)
    yield _tile("host memory", _of(state.shot.host_used, state.shot.host_total), "", state.shot.host_fraction)
    if state.activity.workers_rss_bytes:
        yield _tile("loader's workers", _size(state.activity.workers_rss_bytes), "RAM")
    if state.waited is not None:
        yield _tile("waits for the loader", f"{100 * state.waited:.0f} %", "of the time")


def _busy(state: PanelState, place: int) -> Iterator[str]:
    if place >= len(state.activity.gpus):
        return
    gpu = state.activity.gpus[place]
    if gpu.utilization is not None:
        facts = [(gpu.power_w, "W"), (gpu.temperature_c, "°C")]
        said = " · ".join(f"{x:.0f} {unit}" for x, unit in facts if x is not None)
        yield _tile("busy", f"{100 * gpu.utilization:.0f} %", said, gpu.utilization)


def _tile(name: str, value: str, note: str, filled: float | None = None) -> str:
    meter = f'<span class="meter" style="width:{share(min(1.0, filled))}"></span>' if filled is not None else ""
    return (
        f'<div class="tile"><span>{escaped(name)}</span><b>{escaped(value)}</b>'
        f"<span>{escaped(note) or '&nbsp;'}</span>{meter}</div>"
    )


def _of(used: float | None, total: float | None) -> str:
    return "unknown" if used is None or not total else f"{used / GIB:.1f} of {total / GIB:.1f} GiB"


def _size(size: float | None) -> str:
    return "unknown" if size is None else f"{size / GIB:.1f} GiB"


def _curves(state: PanelState) -> str:
    """One line for each GPU and one for the host, over the time since the start."""
    history = state.history
    series = [(f"GPU {i}", gpu.used_bytes, gpu.total_bytes) for i, gpu in enumerate(history.gpus)]
    series.append(("host", history.host_used_bytes, history.host_total_bytes))
    lines, keys = "", ""
    for i, (name, used, total) in enumerate(series):
        colour = _HOST_COLOUR if name == "host" else _COLOURS[i % len(_COLOURS)]
        if total:
            lines += _line(history.times_s, used, total, colour)
            keys += f'<span><span class="chip" style="background:{colour}"></span>{name}</span>'
    frame = "".join(_level(y) for y in (0.0, 0.5, 1.0))
    # The lines are stretched to the width, and texts are not: two coordinate systems.
    body = (
        f'<svg x="0" y="0" width="100%" height="{_HEIGHT}" viewBox="0 0 1000 {_HEIGHT}" preserveAspectRatio="none">'
        f"{frame}{lines}</svg>"
        f'<text x="0" y="{_HEIGHT + 14}" fill="currentColor">start</text>'
        f'<text x="100%" y="{_HEIGHT + 14}" text-anchor="end" fill="currentColor">'
        f"{lasting(history.times_s[-1]) if history.times_s else ''}</text>"
        f'<text class="asrconfig-label" x="0" y="13" fill="currentColor">100 %</text>'
    )
    return svg(body, "used share of memory over time", height=_HEIGHT + 18) + f'<div class="keys">{keys}</div>'


def _level(of: float) -> str:
    y = _y(of)
    look = f'stroke="{LIMIT_COLOUR}"' if of == 1.0 else 'stroke="currentColor" stroke-opacity="0.25"'
    return f'<line x1="0" x2="1000" y1="{y}" y2="{y}" {look} vector-effect="non-scaling-stroke"/>'


def _line(times: Sequence[float], used: Sequence[float | None], total: float, colour: str) -> str:
    """A path with gaps where nothing is known."""
    end = max(times[-1], 1e-9) if times else 1.0
    path, pen = [], "M"
    for t, size in zip(times, used, strict=True):
        if size is None:
            pen = "M"
        else:
            path.append(f"{pen}{1000 * t / end:.0f} {_y(min(1.0, size / total))}")
            pen = "L"
    return (
        f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round" '
        f'vector-effect="non-scaling-stroke"/>'
    )


def _y(of: float) -> str:
    return f"{1 + (_HEIGHT - 2) * (1 - of):.1f}"
