"""The report of a run: its figures, what held it back, what was warned of, and pictures of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.choices import ReportAxis
from .._base.errors import LibraryError
from ..monitor.rank_peaks import RankPeaks
from ..training.run_record import RunRecord
from ..view.plot import plot_all
from ..view.render import Record, html, save_page, text, title
from .alert_outcomes import Outcome, outcomes
from .diagnosis import Finding, diagnose
from .diagnosis_settings import settings_of
from .marks import Band, bands, guarded
from .run_figures import GPUFigures, HostFigures, StepFigures, gpu_figures, host_figures, step_figures
from .run_files import TrainerState, gather
from .timeline import Moment, Timeline

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
class RunReport:
    """What became of a run. ``print`` shows the text, a notebook the card; times count from the run's start.

    ``record`` is the guard's, ``trainer`` the Trainer's own account; None where there is none. ``ranks`` are the peaks
    that other processes of the training told. ``notes`` name files beside the run log that cannot be read.
    """

    timeline: Timeline
    findings: tuple[Finding, ...]
    record: RunRecord | None = None
    trainer: TrainerState | None = None
    ranks: tuple[RankPeaks, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def gpus(self) -> tuple[GPUFigures, ...]:
        """The figures of each GPU."""
        return tuple(gpu_figures(self.timeline, view) for view in self.timeline.gpus)

    @cached_property
    def hosts(self) -> tuple[HostFigures, ...]:
        """The figures of each machine."""
        return host_figures(self.timeline)

    @cached_property
    def steps(self) -> StepFigures:
        """The figures of the steps."""
        return step_figures(self.timeline)

    @cached_property
    def alerts(self) -> tuple[Outcome, ...]:
        """Every alert, and what became of it."""
        return outcomes(self.timeline)

    @cached_property
    def events(self) -> tuple[Moment, ...]:
        """Everything that happened, the guard's doings among it."""
        told = self.timeline.events()
        told += guarded(self.timeline, self.record, {moment.text for moment in told})
        return tuple(sorted(told, key=lambda moment: moment.at_s))

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """Evaluations, checkpoints, and gaps in the samples."""
        return bands(self.timeline)

    @property
    def gap_s(self) -> float:
        """Seconds without samples."""
        return sum(band.end_s - band.begin_s for band in self.bands if band.kind == "gap")

    @property
    def energy_wh(self) -> float | None:
        """Of all GPUs that tell their power; what was not sampled is not counted."""
        known = [gpu.energy_wh for gpu in self.gpus if gpu.energy_wh is not None]
        return sum(known) if known else None

    @property
    def headline(self) -> str:
        """The run in one sentence, as far as it is known."""
        from .report_json import report_figures

        return title("run", report_figures(self))

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the keys of docs/report.md; what is not known is None or empty."""
        from .report_json import VERSION, report_figures

        return {"report_version": VERSION, "headline": self.headline, **report_figures(self)}

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
        from .report_json import run_view

        return run_view(self, by, gpus)

    def __str__(self) -> str:
        return text("run", self._shown())

    def __repr__(self) -> str:
        return f"RunReport({self.headline!r})"

    def _repr_html_(self) -> str:
        return html("run", self._shown())
