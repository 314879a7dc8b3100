"""What a benchmark found."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.errors import InvalidArgumentError
from .._base.files import save_whole
from ..report.diagnosis import Finding
from ..view.markup import page
from .measurements import LoaderResult, OptionResult, SideResult, Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Setting:
    """Where and how it was measured."""

    model: str
    device: str
    versions: dict[str, str]
    date: str
    """Of the begin, UTC."""
    epoch_clips: int
    """Usable clips of the whole data set."""
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

    @cached_property
    def headline(self) -> str:
        """The result in one sentence."""
        from .benchmark_words import headline

        return headline(self)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the keys of docs/benchmark.md; what is not known is None or empty."""
        from .benchmark_export import benchmark_json

        return benchmark_json(self)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a row for each side, option and way to load. Raises ``NotFoundError`` where it cannot be written."""
        from .benchmark_export import benchmark_csv

        save_whole(Path(path), benchmark_csv(self).encode("utf-8", "backslashreplace"))

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page that stands alone. Raises ``InvalidArgumentError`` for another suffix than .html,
        ``NotFoundError`` where it cannot be written.
        """
        from ..view.style import PAGE
        from .benchmark_html import benchmark_html

        file = Path(path)
        if file.suffix.lower() not in (".html", ".htm"):
            raise InvalidArgumentError(f"{file.name!r} does not end with .html", "name a file .html")
        save_whole(file, page(self.headline, benchmark_html(self), PAGE).encode("utf-8", "backslashreplace"))

    def plot(self) -> Figure:
        """Draw speeds, the parts of a step, the loader and single changes with matplotlib.

        Colours of text and axes are matplotlib's: draw within ``pyplot.style.context("dark_background")`` for dark
        pages. Raises ``UnsupportedError`` without matplotlib.
        """
        from .benchmark_plot import plot_benchmark

        return plot_benchmark(self)

    def __str__(self) -> str:
        from .benchmark_text import benchmark_text

        return benchmark_text(self)

    def __repr__(self) -> str:
        return f"BenchmarkResult({self.headline!r})"

    def _repr_html_(self) -> str:
        from .benchmark_html import benchmark_html

        return benchmark_html(self)
