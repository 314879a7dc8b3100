"""The report of a run: its figures, what held it back, what was warned of, and pictures of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.choices import ReportAxis
from .._base.errors import LibraryError
from ..view.plot import plot_all
from ..view.render import Record, html, save_page, text, title
from .diagnosis import Finding, diagnose
from .diagnosis_settings import settings_of
from .report_json import VERSION, report_figures, run_view
from .reported_run import ReportedRun
from .run_files import gather
from .timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def report(run: Any, args: Any = None) -> RunReport:
    """The report of ``run``: a ``MemoryMonitor``, a ``RunLog``, the folder of a training, or a monitor's file.

    A folder's ``asrconfig_monitor*.json`` are one run: files of ranks and nodes side by side, of restarts one after
    another. The guard's record and ``trainer_state.json`` beside them are told, too.

    ``args`` are the training's TrainingArguments or its TrainingConfig, for findings that need them; without, what
    ``training_config.json`` and the others in the folder tell is taken.

    Raises ``NotFoundError`` where there is no run, ``CorruptFileError`` for a file that is empty, truncated or not a
    run log, ``VersionMismatchError`` for one of a newer version.

    >>> with MemoryMonitor(interval_ms=20) as monitor:
    ...     monitor.step(1, audio_s=4.0)
    >>> report(monitor).headline.split(" in ")[0]
    '1 step'
    """
    found = gather(run)
    line = Timeline(found.sources)
    findings, notes = _findings(line, settings_of((args, found.plan, found.state), found.record))
    return RunReport(line, findings, found.record, found.trainer, found.ranks, (*found.notes, *notes))


def _findings(line: Timeline, settings: dict[str, Any]) -> tuple[tuple[Finding, ...], list[str]]:
    """Of all leading run logs, and a note where the library cannot tell: the rest of a report needs none."""
    try:
        found = [finding for source in line.leads for finding in diagnose(source.run_log, settings)]
    except LibraryError as error:
        return (), [f"no findings: {error.message}"]
    return of_weight(tuple(dict.fromkeys(found))), []


def of_weight(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Without those that say of one part of a run that nothing was found, where another part has more to say."""
    for silent in (("healthy", "too_short"), ("too_short",)):
        left = tuple(finding for finding in findings if finding.kind not in silent)
        if left:
            return left
    return findings


@dataclass(frozen=True, repr=False)
class RunReport(ReportedRun):
    """The report of a run: ``print`` shows the text, a notebook the card; times count from the run's start."""

    @property
    def headline(self) -> str:
        """The run in one sentence, as far as it is known."""
        return title("run", report_figures(self))

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the keys of docs/report.md; what is not known is None or empty."""
        figures = report_figures(self)
        return {"report_version": VERSION, "headline": title("run", figures), **figures}

    def to_html(self, path: str | os.PathLike[str], *, by: ReportAxis = "time") -> None:
        """Write a page that stands alone; its charts run ``by`` "time" or "steps".

        The file is there whole or not at all. Raises ``InvalidArgumentError`` for another suffix than .html, or for
        steps of a run that told of none; ``NotFoundError`` where it cannot be written.
        """
        save_page(Path(path), "run", self._shown(by))

    def plot(self, *, by: ReportAxis = "time", gpus: Sequence[int] | None = None) -> Figure:
        """Draw memory, utilisation, steps and the host with matplotlib, ``by`` "time" or "steps".

        ``gpus`` are places in ``self.gpus``; None takes the four with the least headroom. Raises ``UnsupportedError``
        without matplotlib, ``NotFoundError`` where nothing was sampled.
        """
        figure: Figure = plot_all("run", self._shown(by, gpus))
        return figure

    def _shown(self, by: ReportAxis = "time", gpus: Sequence[int] | None = None) -> Record:
        """What the view of a run shows."""
        return run_view(self, by, gpus)

    def __str__(self) -> str:
        return text("run", self._shown())

    def __repr__(self) -> str:
        return f"RunReport({self.headline!r})"

    def _repr_html_(self) -> str:
        return html("run", self._shown())
