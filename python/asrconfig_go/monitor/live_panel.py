"""A panel in a notebook that shows a training while it runs, through one display handle: no widgets, no script."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..view.render import html

if TYPE_CHECKING:
    from .memory_monitor import MemoryHistory, MemorySnapshot
    from .run_log import Activity, Alert
    from .thresholds import PeakUse


@dataclass(frozen=True)
class PanelState:
    """What is shown: steps made and planned, seconds left, shares of the time, and a monitor's figures.

    ``waited`` is the loader's share, ``model_flops_utilization`` that of useful work.
    ``stopped`` is a training that did not come to its end.
    """

    step: int
    steps: int
    left_s: float | None
    waited: float | None
    model_flops_utilization: float | None
    fullest: PeakUse | None
    shot: MemorySnapshot
    activity: Activity
    history: MemoryHistory
    alerts: tuple[Alert, ...]
    stopped: bool = False


class Panel:
    """Draws on request. ``display`` is IPython's, or a replacement."""

    points = 240
    """Of the memory's curve."""

    def __init__(self, display: Callable[..., Any] | None = None) -> None:
        self._display = display
        self._handle: Any = None

    def show(self, state: PanelState) -> None:
        """Draw, in the place of what was drawn before."""
        card = _Card(html("panel", asdict(state)))
        if self._handle is None:
            self._handle = (self._display or _ipython_display())(card, display_id=True)
        else:
            self._handle.update(card)


class _Card:
    def __init__(self, html: str) -> None:
        self._html = html

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return "(a live panel of the training's memory)"


def _ipython_display() -> Any:
    from IPython.display import display

    return display


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
