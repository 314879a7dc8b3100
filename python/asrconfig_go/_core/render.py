"""Renders records by the library: text, HTML, CSV, or charts, which matplotlib draws; figures with units."""

from __future__ import annotations

import itertools
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError, LibraryError, NotFoundError
from . import native
from .files import save_whole
from .output import show
from .records import to_json
from .requirements import imported

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = dict[str, Any]

WIDTH, NARROWEST, WIDEST, TERMINAL = 110, 20, 1000, 80
"""Columns of text, where a caller names none; the fewest and the most; those of a terminal."""
_BLUE, _RED, _INK = "#4e79a7", "#c62828", "#59636e"
_LEVELS = {"serious": "#c62828", "warning": "#9a6700"}
_SPANS = {"evaluation": 0.1, "checkpoint": 0.25, "gap": 0.06}
_ROW = 0.42  # inches of a bar


def render(kind: str, form: str, record: Record, width: int = 0) -> Any:
    """``record`` as ``"text"``, ``"brief"``, ``"html"``, ``"page"``, ``"title"``, ``"csv"`` or ``"charts"``."""
    return native.call("view.render", {"kind": kind, "format": form, "width": width, "record": record})


def text(kind: str, record: Record, width: int = 0) -> str:
    """For terminals, at most ``width`` columns wide (0: 110). Where the library cannot be used, a line that says so."""
    return _shown(kind, "text", record, width)


def brief(kind: str, record: Record, width: int = 0) -> str:
    """The same on one screen, a plan in 80 columns: what to do, what it gives, what matters most."""
    return _shown(kind, "brief", record, width)


def html(kind: str, record: Record) -> str:
    """A card for notebooks: no script, no external resources, light and dark."""
    return _shown(kind, "html", record)


def title(kind: str, record: Record) -> str:
    """The record in one sentence."""
    return _shown(kind, "title", record)


def _shown(kind: str, form: str, record: Record, width: int = 0) -> str:
    """Showing a record never raises in a forked child, which cannot use the library."""
    try:
        return str(render(kind, form, record, width)["text"])
    except LibraryError as error:
        return f"({kind}: {error.message})"


def save_page(path: Path, kind: str, record: Record) -> None:
    """Write a self-contained page, whole or not at all.

    Raises ``InvalidArgumentError`` for another suffix than .html, ``NotFoundError`` where it cannot be written.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise InvalidArgumentError(f"{path.name!r} does not end with .html", "name a file .html")
    save_text(path, render(kind, "page", record)["text"])


def save_text(path: Path, content: str) -> None:
    """Write a text atomically."""
    save_whole(path, content.encode("utf-8", "backslashreplace"))


def box(name: str, content: str) -> str:
    """Text in a titled card, line by line as it is."""
    return html("box", {"title": name, "lines": content.splitlines()})


class Shown:
    """A record that people look at, by the view of a ``kind``: ``print`` shows text, a notebook a card."""

    _kind = ""

    def __init_subclass__(cls, kind: str = "", **more: object) -> None:
        super().__init_subclass__(**more)
        if kind:
            cls._kind = kind

    def _shown(self) -> Record:
        """What the view shows."""
        return dict(to_json(self))

    def brief(self, width: int = 0) -> str:
        """Return the first screen: what to do, and what matters most.

        Args:
            width: The most columns of a line; 0 for 110, of a plan for 80.

        Returns:
            The text.
        """
        return brief(self._kind, self._shown(), width)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained page, completely or not at all.

        Args:
            path: The file, which ends in ``.html``.

        Raises:
            InvalidArgumentError: The suffix is another one.
            NotFoundError: The file cannot be written.
        """
        save_page(Path(path), self._kind, self._shown())

    def __repr__(self) -> str:
        return text(self._kind, self._shown())

    def _repr_html_(self) -> str:
        return html(self._kind, self._shown())


class Headlined(Shown):
    """A record that ``repr`` shows in one sentence, and ``print`` completely."""

    @property
    def headline(self) -> str:
        """The record in one sentence, as far as it is known."""
        return title(self._kind, self._figures())

    def _figures(self) -> Record:
        """What the sentence is made of."""
        return self._shown()

    def __str__(self) -> str:
        return text(self._kind, self._shown())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.headline!r})"


def plot(kind: str, record: Record, ax: Axes | None = None) -> Axes:
    """Draw the first chart of a view, on ``ax`` or a new figure, and return its axes.

    Raises ``UnsupportedError`` without matplotlib, ``NotFoundError`` where there is nothing to draw.
    """
    title, charts = _charts(kind, record)
    ax = ax or imported("matplotlib.pyplot", "drawing").subplots(figsize=(10, 4), layout="constrained")[1]
    _draw(charts[0], ax)
    ax.set_title("\n".join(filter(None, (title, charts[0].get("note")))), fontsize=9, loc="left", pad=20)
    return ax


def plot_all(kind: str, record: Record) -> Figure:
    """Draw all charts of a view below each other, and return the figure. Raises what ``plot`` raises."""
    title, charts = _charts(kind, record)
    pyplot = imported("matplotlib.pyplot", "drawing")
    heights = [_ROW * max(2, len(chart["rows"])) + 0.5 if chart["kind"] == "bars" else 2.0 for chart in charts]
    figure: Figure
    figure, axes = pyplot.subplots(
        len(charts), 1, squeeze=False, figsize=(11, 0.8 + sum(heights)), layout="constrained", height_ratios=heights
    )
    for chart, ax in zip(charts, axes[:, 0], strict=True):
        _draw(chart, ax, beside=chart["kind"] == "curves")
    figure.suptitle(title, fontsize=10, x=0.01, ha="left", wrap=True)
    return figure


def _charts(kind: str, record: Record) -> tuple[str, list[Record]]:
    answer = render(kind, "charts", record)
    if not answer["charts"]:
        raise NotFoundError(f"there is nothing to draw: {answer['text']}", "show it as text")
    return answer["text"], answer["charts"]


def _draw(chart: Record, ax: Axes, beside: bool = False) -> None:
    {"bars": _bars, "histogram": _histogram, "curves": _curves}[chart["kind"]](chart, ax)
    ax.set_title(chart["title"], fontsize=9, loc="left")
    if ax.get_legend_handles_labels()[1]:
        where: dict[str, str | int] = {"loc": "lower right", "ncols": 6} if not beside else {"loc": "upper left"}
        ax.legend(fontsize=7, frameon=False, bbox_to_anchor=(1, 1), borderaxespad=0.1, **where)


def _bars(chart: Record, ax: Axes) -> None:
    for i, row in enumerate(chart["rows"]):
        start = 0.0
        for part in row["parts"]:
            name = part["name"] if chart["legend"] and i == 0 else None
            colour = part["colour"] if part["colour"].startswith("#") else _INK if row["pale"] else _BLUE
            ax.barh(i, part["value"], left=start, height=0.62, color=colour, label=name)
            start += part["value"]
        if row["low"] is not None:
            around = [[start - row["low"]], [row["high"] - start]]
            ax.errorbar(start, i, xerr=around, color=ax.xaxis.label.get_color(), capsize=3)
        ax.annotate(row["text"], (row["high"] or start, i), (6, 0), textcoords="offset points", va="center", fontsize=8)
    for level in chart["levels"] or ():
        ax.axvline(
            level["at"], color=_RED if level["limit"] else _INK, linestyle="--", linewidth=1, label=level["name"]
        )
    ax.set_yticks(range(len(chart["rows"])), [row["name"] for row in chart["rows"]], fontsize=8)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.1 * chart["top"])
    ax.set_xlabel(chart["unit"])


def _histogram(chart: Record, ax: Axes) -> None:
    edges = chart["edges"]
    widths = [high - low for low, high in itertools.pairwise(edges)]
    ax.bar(edges[:-1], chart["counts"], width=widths, align="edge", edgecolor="white", linewidth=0.5, color=_BLUE)
    for mark in chart["marks"] or ():
        colour = _RED if mark["limit"] else ax.xaxis.label.get_color()
        ax.axvline(mark["at"], color=colour, linewidth=1, linestyle="--" if mark["limit"] else "-", label=mark["text"])
    ax.set_xlim(edges[0], edges[-1])
    ax.set_xlabel(chart["unit"])
    ax.set_ylabel(f"{chart['noun']}s")


def _curves(chart: Record, ax: Axes) -> None:
    stacked = [series for series in chart["series"] if series["stacked"]]
    if stacked:
        x = [at for at, _ in stacked[0]["pieces"][0]]
        rows = [[value for _, value in series["pieces"][0]] for series in stacked]
        ax.stackplot(x, rows, labels=[s["name"] for s in stacked], colors=[s["colour"] for s in stacked])
    for series in chart["series"]:
        if not series["stacked"]:
            _line(series, ax)
    top, limit = chart["top"], chart["limit"]
    if limit:
        top = max(top, 1.04 * limit["at"])
        ax.axhline(limit["at"], color=_RED, linestyle="--", linewidth=1, label=limit["name"])
    for span in chart["spans"] or ():
        ax.axvspan(span["from"], span["to"], color="black", alpha=_SPANS[span["kind"]], linewidth=0)
    for event in chart["events"] or ():
        _event(event, ax)
    ax.set_xlim(chart["x"]["low"], chart["x"]["high"])
    ax.set_ylim(0, top)
    ax.set_xlabel(chart["x_unit"])
    ax.set_ylabel(chart["unit"])


def _line(series: Record, ax: Axes) -> None:
    colour, name = series["colour"] or ax.xaxis.label.get_color(), series["name"]
    for piece in series["pieces"]:
        x, y = zip(*piece, strict=True)
        ax.plot(x, y, "." if len(x) == 1 else "-", color=colour, linewidth=1.2, label=name)
        if series["area"]:
            ax.fill_between(x, y, color=colour, alpha=0.2, linewidth=0)
        name = None


def _event(event: Record, ax: Axes) -> None:
    level = event["level"]
    if level == "phase":
        ax.axvline(event["at"], color="black", alpha=0.3, linewidth=0.8, linestyle=":")
        ax.text(event["at"], 0.99, f" {event['text']}", transform=ax.get_xaxis_transform(), fontsize=7, va="top")
    elif level in _LEVELS:
        ax.axvline(event["at"], color=_LEVELS[level], linestyle=":", linewidth=1)
        at = (event["at"], 1)
        ax.annotate(event["label"], at, xycoords=("data", "axes fraction"), color=_LEVELS[level], fontsize=8)
    else:
        grave = level == "out of memory"
        ax.axvline(event["at"], 0, 1 if grave else 0.08, color=_RED if grave else _INK, linewidth=1.5 if grave else 0.8)


GIB = 2**30


def gib(size: float | None) -> str:
    """``15.0 GiB``; a dash for an unknown size."""
    return "–" if size is None else f"{size / GIB:.1f} GiB"


def exact(size: float | None) -> str:
    """``12.41 GiB``, small amounts as MiB, KiB or B; a dash for an unknown size."""
    if size is None:
        return "–"
    if abs(size) >= 0.095 * GIB:
        return f"{size / GIB:.2f} GiB"
    if abs(size) >= 0.095 * 2**20:
        return f"{size / 2**20:.1f} MiB"
    return f"{size / 2**10:.1f} KiB" if abs(size) >= 0.095 * 2**10 else f"{size:.0f} B"


def parameter_count(count: int) -> str:
    """``315.5 M``, ``8.2 k``, ``12``."""
    if count >= 1e5:
        return f"{count / 1e6:.1f} M"
    return f"{count / 1e3:.1f} k" if count >= 1000 else f"{count}"


def plural(count: int, noun: str, many: str = "") -> str:
    """``1 clip``, ``2 clips``; ``many`` where an s is not enough."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def visible(text: str) -> str:
    """``text`` with unsafe characters escaped: control characters, marks that turn text around."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_STAGE = 10
"""Columns of a stage's name."""


def say(verbose: bool, stage: str, value: object) -> None:
    """Print one stage: its name, then ``value``, a text or in its short form if it has one, aligned."""
    if verbose:
        width = TERMINAL - _STAGE - 1
        shown = value.brief(width) if isinstance(value, Shown) else repr(value)
        first, *others = textwrap.wrap(value, width) if isinstance(value, str) else shown.splitlines()
        show("\n".join([f"{stage + ':':<{_STAGE}} {first}", *(f"{'':<{_STAGE}} {line}" for line in others)]))
