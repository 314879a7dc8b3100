"""The result of a benchmark."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .._core.records import to_json
from .._core.render import Record, Shown, plot_all, render, save_text, text, title
from ..errors import NotFoundError
from ..watch.watch_records import Finding
from .measurements import ENOUGH_ROUNDS, LoaderResult, OptionResult, SideResult, Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def side_json(side: SideResult) -> dict[str, Any]:
    """One side."""
    spreads = {name: getattr(side, name) for name in ("clips_per_s", "audio_per_s", "step_s", "cpu_use")}
    figures = {name: getattr(side, name) for name in ("padding", "shares", "queueing", "peak_bytes")}
    return asdict(side) | {name: value and asdict(value) for name, value in spreads.items()} | figures


def option_json(option: OptionResult) -> dict[str, Any]:
    """One change; ``verdict`` is ``better`` in words."""
    return {
        **asdict(option),
        "side": None if option.side is None else side_json(option.side),
        "better": bool(option.better),
        "verdict": option.better or ("slower" if option.worse else "no clear change"),
    }


VERSION = 2


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
    minutes: float | None = None


@dataclass(frozen=True, repr=False)
class BenchmarkResult(Shown, kind="benchmark"):
    """Both sides, the loader, single changes, and what holds the plan back. ``print`` shows text, a notebook a card.

    ``original`` is the baseline. ``unfinished`` names what was left out when the time was up, or after Ctrl-C
    (``stopped``).
    """

    setting: Setting
    plan: SideResult
    original: SideResult | None
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
    unfinished: tuple[str, ...] = ()

    @cached_property
    def speedup(self) -> Spread | None:
        """How many times faster the plan trains: the ratio of both sides' ``clips_per_s``."""
        return self._ratio("seconds")

    @cached_property
    def cpu_speedup(self) -> Spread | None:
        """The same by processor time, on a CPU, which other programs on the machine hardly change."""
        return self._ratio("cpu_s")

    def _ratio(self, of: str) -> Spread | None:
        if self.original is None:
            return None
        original, plan = ([getattr(turn, of) for turn in side.rounds] for side in (self.original, self.plan))
        return Spread.ratio(original, plan)

    @property
    def too_few_rounds(self) -> bool:
        """Whether fewer rounds were measured than a conclusion takes."""
        return len(self.plan.rounds) < ENOUGH_ROUNDS

    @property
    def verdict(self) -> Literal["", "faster", "slower", "undecided"]:
        """Of the plan, in every one of enough rounds; ``""`` where nothing is compared."""
        if self.speedup is None:
            return ""
        if self.too_few_rounds or self.speedup.low <= 1 <= self.speedup.high:
            return "undecided"
        return "faster" if self.speedup.low > 1 else "slower"

    def _shown(self) -> Record:
        return {
            **to_json(self),
            "plan": side_json(self.plan),
            "original": None if self.original is None else side_json(self.original),
            "options": [option_json(option) for option in self.options],
            "speedup": None if self.speedup is None else asdict(self.speedup),
            "cpu_speedup": None if self.cpu_speedup is None else asdict(self.cpu_speedup),
            "too_few_rounds": self.too_few_rounds,
            "verdict": self.verdict,
        }

    @cached_property
    def headline(self) -> str:
        """The result in one sentence."""
        return title("benchmark", self._shown())

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the keys of docs/reference/benchmark.md; what is not known is None or empty."""
        return {"benchmark_version": VERSION, "headline": self.headline, **self._shown()}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a row for each side, option and way to load. Raises ``NotFoundError`` where it cannot be written."""
        save_text(Path(path), render("benchmark", "csv", self._shown())["text"])

    def plot(self) -> Figure:
        """Draw speeds, the parts of a step, the loader and single changes with matplotlib.

        Colours of text and axes are matplotlib's: draw within ``pyplot.style.context("dark_background")`` for dark
        pages. Raises ``UnsupportedError`` without matplotlib, ``NotFoundError`` where nothing was measured.
        """
        if not any(side is not None and side.blocks for side in (self.original, self.plan)):
            raise NotFoundError("nothing was measured to draw", "let it run for at least one round")
        figure: Figure = plot_all("benchmark", self._shown())
        return figure

    def __str__(self) -> str:
        return text("benchmark", self._shown())

    def __repr__(self) -> str:
        return f"BenchmarkResult({self.headline!r})"
