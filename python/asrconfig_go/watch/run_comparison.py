"""Two runs beside each other: their figures over the steps that both made, and the settings that differ."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .._core import native
from .._core.render import Record, Shown, render, save_text, text, title
from .diagnosis import settings_of
from .run_files import FILE_NAME, Run, gather, guard_events

_KIND, _VERSION = "run comparison", 1


def compare_runs(a: Run, b: Run) -> RunComparison:
    """Compare run ``b`` with run ``a``; both are whatever ``report`` takes, and ratios are ``b`` over ``a``.

    Runs of different length are compared over the steps that both made. Raises what ``report`` raises.

    >>> compare_runs("base", "compiled").figures["steps_per_s"].ratio  # doctest: +SKIP
    1.24
    """
    names = (_name(a, "A"), _name(b, "B"))
    if names[0] == names[1]:
        names = (str(a), str(b)) if isinstance(a, str | os.PathLike) and str(a) != str(b) else ("A", "B")
    return RunComparison(native.call("report.compare", {"a": _run(names[0], a), "b": _run(names[1], b)}))


def _name(run: Run, otherwise: str) -> str:
    if not isinstance(run, str | os.PathLike):
        return otherwise
    path = Path(run).absolute()
    return (path.parent if path.stem == FILE_NAME else path).name or otherwise


def _run(name: str, run: Run) -> Record:
    files = gather(run)
    return {
        "name": name,
        "sources": [source.to_json() for source in files.sources],
        "settings": settings_of((files.plan, files.state), files.record),
        "guard": guard_events(files.record),
        "history": files.history,
        "config": files.plan,
        "notes": files.notes,
    }


@dataclass(frozen=True)
class ComparedFigure:
    """A figure of both runs, None where it is not known; ``ratio`` is b over a. Sizes are bytes, shares 0 to 1."""

    name: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None


@dataclass(frozen=True, repr=False)
class RunComparison(Shown, kind=_KIND):
    """Two runs beside each other: ``print`` shows the text, a notebook the card. ``record`` is all of it as JSON."""

    record: Record

    @property
    def headline(self) -> str:
        """The comparison in one sentence."""
        return title(_KIND, self.record)

    @property
    def figures(self) -> dict[str, ComparedFigure]:
        """The figures by their keys, such as ``steps_per_s``; those that neither run knows are left out."""
        rows: list[Record] = self.record["figures"]
        return {row["key"]: ComparedFigure(**{k: v for k, v in row.items() if k != "key"}) for row in rows}

    @property
    def settings(self) -> dict[str, tuple[object, object]]:
        """The settings of ``training_config.json`` that differ, each of a and of b."""
        return {row["name"]: (row["a"], row["b"]) for row in self.record["settings"]}

    def to_json(self) -> Record:
        """A JSON object with the keys of docs/reference/watching.md; what is not known is None or empty."""
        figures = {key: value for key, value in self.record.items() if key != "charts"}
        return {"comparison_version": _VERSION, "headline": self.headline, **figures}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a row for each figure and setting. Raises ``NotFoundError`` where it cannot be written."""
        save_text(Path(path), render(_KIND, "csv", self.record)["text"])

    def __str__(self) -> str:
        return text(_KIND, self.record)

    def __repr__(self) -> str:
        return f"RunComparison({self.headline!r})"

    def _shown(self) -> Record:
        return self.record
