"""The result of a benchmark."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.errors import NotFoundError
from ..report.diagnosis import Finding
from ..view.plot import plot_all
from ..view.render import Record, html, render, save_page, save_text, text, title
from .benchmark_json import option_json, side_json
from .measurements import LoaderResult, OptionResult, SideResult, Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure


VERSION = 1


@dataclass(frozen=True)
class Setting:
    """Where and how it was measured."""

    model: str
    device: str
    versions: dict[str, str]
    date: str
    """Of the begin, UTC."""
    epoch_clips: int
    """Usable clips of the whole dataset."""
    effective_batch: int
    steps: int
    rounds: int
    warm_up: int
    seed: int


@dataclass(frozen=True, repr=False)
class BenchmarkResult:
    """Both sides, the loader, single changes, and what holds the plan back. ``print`` shows text, a notebook a card.

    ``speedup`` is the plan's clips a second over the original's, over the rounds; ``cpu_speedup``, on a CPU, the same
    by processor time, which other programs on the machine hardly change. ``stopped``: Ctrl-C ended it early.
    """

    setting: Setting
    plan: SideResult
    original: SideResult | None
    speedup: Spread | None
    cpu_speedup: Spread | None
    loader: tuple[LoaderResult, ...]
    options: tuple[OptionResult, ...]
    bottleneck: Finding | None
    next_change: str
    findings: tuple[Finding, ...] = ()
    """What else the monitor saw, of a GPU."""
    profile: tuple[str, ...] = ()
    """Trace files."""
    notes: tuple[str, ...] = ()
    stopped: bool = False

    def _shown(self) -> Record:
        """What the view of a benchmark shows."""
        return {
            "setting": asdict(self.setting),
            "original": None if self.original is None else side_json(self.original),
            "plan": side_json(self.plan),
            "speedup": None if self.speedup is None else asdict(self.speedup),
            "cpu_speedup": None if self.cpu_speedup is None else asdict(self.cpu_speedup),
            "loader": [asdict(each) for each in self.loader],
            "options": [option_json(each) for each in self.options],
            "bottleneck": None if self.bottleneck is None else asdict(self.bottleneck),
            "next_change": self.next_change,
            "findings": [asdict(each) for each in self.findings],
            "profile": list(self.profile),
            "notes": list(self.notes),
            "stopped": self.stopped,
        }

    @cached_property
    def headline(self) -> str:
        """The result in one sentence."""
        return title("benchmark", self._shown())

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the keys of docs/benchmark.md; what is not known is None or empty."""
        return {"benchmark_version": VERSION, "headline": self.headline, **self._shown()}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a row for each side, option and way to load. Raises ``NotFoundError`` where it cannot be written."""
        save_text(Path(path), render("benchmark", "csv", self._shown())["text"])

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained page. Raises ``InvalidArgumentError`` for another suffix than .html,
        ``NotFoundError`` where it cannot be written.
        """
        save_page(Path(path), "benchmark", self._shown())

    def plot(self) -> Figure:
        """Draw speeds, the parts of a step, the loader and single changes with matplotlib.

        Colours of text and axes are matplotlib's: draw within ``pyplot.style.context("dark_background")`` for dark
        pages. Raises ``UnsupportedError`` without matplotlib, ``NotFoundError`` where nothing was measured.
        """
        if not any(side is not None and side.blocks for side in (self.original, self.plan)):
            raise NotFoundError(
                "nothing was measured, so there is nothing to draw", "let it run for at least one round"
            )
        figure: Figure = plot_all("benchmark", self._shown())
        return figure

    def __str__(self) -> str:
        return text("benchmark", self._shown())

    def __repr__(self) -> str:
        return f"BenchmarkResult({self.headline!r})"

    def _repr_html_(self) -> str:
        return html("benchmark", self._shown())
