"""The report of a run: its figures, what held it back, what was warned of, and pictures; and two runs side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from .._core import native
from .._core.checks import checked
from .._core.output import first_of
from .._core.records import from_json, json_fields
from .._core.render import Headlined, Record, plot_all, render, save_text
from ..errors import LibraryError
from ..train.run_record import RunRecord
from .run_files import FILE_NAME, Gathered, Run, Source, gather, guard_events, settings_of
from .watch_records import Alert, Band, ComparedFigure, Finding, GPUFigures, HostFigures, Moment, StepFigures

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import TrainingArguments

    from ..plan.plan_record import PlanRecord


@dataclass(frozen=True)
class Outcome:
    """An alert of the run, and what became of it.

    Attributes:
        alert: The alert.
        where: The label of a GPU, ``""`` for the host.
        at_s: The seconds from the run's start to the alert.
        what: ``"came true"`` (memory ran out, or what was warned of was used up), ``"averted"`` (cleared by a
            clean-up), ``"cleared"`` or ``"held"`` (until the end).
        after_s: The seconds from the alert until it came true or was cleared; None where it held.
    """

    alert: Alert
    where: str
    at_s: float
    what: str
    after_s: float | None


T = TypeVar("T")


ReportAxis = Literal["time", "steps"]
"""The horizontal axis of a report's charts."""
_VERSION = 1  # of its JSON
_RANKS = 64  # whose peaks are listed


def report(run: Run, args: TrainingArguments | PlanRecord | None = None, *, by: ReportAxis = "time") -> RunReport:
    """Report a run: its figures, what held it back and what to change.

    Args:
        run: A ``MemoryMonitor``, a ``RunLog``, the folder of a training, or a monitor's file. A folder's
            ``asrconfig_monitor*.json`` are one run: files of ranks and nodes side by side, of restarts one after
            another. The guard's record and ``trainer_state.json`` beside them are reported, too.
        args: The training's ``TrainingArguments`` or its ``TrainingConfig``, for findings that need settings. None for
            those of ``training_config.json`` and the other files in the folder.
        by: The horizontal axis of charts: ``"time"`` or ``"steps"``.

    Returns:
        The report.

    Raises:
        InvalidArgumentError: ``run`` is none of these.
        NotFoundError: There is no run.
        CorruptFileError: The run's only file is empty, truncated or not a run log. Where another one can be read,
            ``notes`` of the report name it instead.
        VersionMismatchError: Likewise, the file has another version.

    Example:
        >>> with MemoryMonitor(interval_ms=20) as monitor:
        ...     monitor.step(1, audio_s=4.0)
        >>> report(monitor).headline.split(" in ")[0]
        '1 step'
    """
    checked("by", by, ReportAxis)
    files = gather(run)
    answer = _analysed(files.sources, files.record, settings=settings_of((args, files.plan, files.state), files.record))
    findings = tuple(from_json(Finding, finding) for finding in answer["findings"])
    return RunReport(**vars(files), figures=answer["figures"], findings=findings, by=by)


def _analysed(sources: Sequence[Source], record: RunRecord | None, **settings: object) -> Record:
    request = {"sources": [source.to_json() for source in sources], "guard": guard_events(record) or []}
    answer: Record = native.call("report.run", request | settings)
    return answer


@dataclass(frozen=True, repr=False, kw_only=True)
class RunReport(Headlined, Gathered, kind="run"):
    """The report of a run: ``print`` shows the text, a notebook the card. Times are seconds from the run's start.

    Where no training steps are recorded, charts by ``"steps"`` raise ``InvalidArgumentError``.

    Attributes:
        sources: The run logs.
        record: The guard's record; None where there is none.
        trainer: The Trainer's own figures, from ``trainer_state.json``; None where there is none.
        ranks: The memory peaks of other processes of the training.
        failures: What memory held whenever it ran out.
        plan: The plan, as JSON; None where there is none.
        state: ``trainer_state.json``; None where there is none.
        history: The Trainer's ``log_history``.
        notes: The files beside the run log that cannot be read, and why.
        figures: The figures of the run logs, as JSON.
        findings: What held the run back, and what to change.
        by: The horizontal axis of charts.
    """

    figures: Record
    findings: tuple[Finding, ...]
    by: ReportAxis = "time"

    @cached_property
    def gpus(self) -> tuple[GPUFigures, ...]:
        """The figures of each GPU of the run."""
        return self._each("gpus", GPUFigures)

    @cached_property
    def hosts(self) -> tuple[HostFigures, ...]:
        """The figures of each machine."""
        return self._each("hosts", HostFigures)

    @cached_property
    def steps(self) -> StepFigures:
        """The figures of optimizer steps, evaluation batches and checkpoints."""
        return from_json(StepFigures, self.figures["steps"])

    @cached_property
    def alerts(self) -> tuple[Outcome, ...]:
        """Every alert, and what became of it."""
        pairs = zip(self._each("alerts", Alert), self.figures["alerts"], strict=True)
        return tuple(Outcome(alert, a["where"], alert.at_s, a["outcome"], a["after_s"]) for alert, a in pairs)

    @cached_property
    def events(self) -> tuple[Moment, ...]:
        """All events of the run, with those of the guard."""
        return self._each("events", Moment)

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """Evaluations, checkpoints, and gaps in the samples."""
        return self._each("bands", Band)

    @property
    def duration_s(self) -> float:
        """The seconds from the start of the first run log to the end of the last."""
        return float(self.figures["duration_s"])

    @property
    def gap_s(self) -> float:
        """The seconds without samples."""
        return float(self.figures["gap_s"])

    @property
    def energy_wh(self) -> float | None:
        """The energy of all GPUs that report their power, in watt-hours; what was not sampled is not counted."""
        energy: float | None = self.figures["energy_wh"]
        return energy

    def _each(self, key: str, cls: type[T]) -> tuple[T, ...]:
        return tuple(from_json(cls, {name: row[name] for name in json_fields(cls)}) for row in self.figures[key])

    def to_json(self) -> Record:
        """Return the report as a JSON object.

        Returns:
            The object, with the keys of docs/reference/watching.md; what is not known is None or empty.
        """
        return {"report_version": _VERSION, "headline": self.headline, **self._figures()}

    def plot(self, *, gpus: Sequence[int] | None = None) -> Figure:
        """Draw memory, utilisation, steps and the host with matplotlib.

        Args:
            gpus: The places in ``self.gpus`` of those to draw; None for the four with the least headroom.

        Returns:
            The figure.

        Raises:
            UnsupportedError: matplotlib is not installed.
            NotFoundError: Nothing was sampled.
            InvalidArgumentError: ``gpus`` is out of range, or the axis is ``"steps"`` and no steps are recorded.
        """
        figure: Figure = plot_all("run", self._shown(gpus))
        return figure

    def _figures(self) -> Record:
        """Figures, not series: those are in the run's own file, and in its exports."""
        kinds = ("events", "restarts", "bad_batches")
        guard = self.record and {kind: list(map(asdict, getattr(self.record, kind))) for kind in kinds}
        return {
            **self.figures,
            "findings": [asdict(finding) for finding in self.findings],
            "trainer": self.trainer and asdict(self.trainer),
            "guard": guard,
            "ranks": [asdict(peaks) for peaks in self.ranks],
            "notes": list(self.notes),
            "out_of_memory": [asdict(failure) for failure in self.failures],
        }

    def _shown(self, gpus: Sequence[int] | None = None) -> Record:
        """What the view of a run shows; without charts where the library cannot be used."""
        try:
            answer = _analysed(self.sources, self.record, by=self.by, gpus=gpus, history=self.history)
        except LibraryError:
            return self._figures()
        words = first_of(self.ranks, _RANKS)
        bad = first_of(self.record.bad_batches) if self.record else []
        charts = {"charts": answer["charts"], "rank_words": words, "bad_clip_words": bad}
        return {**self._figures(), **answer["figures"], **charts}


_COMPARISON = "run comparison"


def compare_runs(a: Run, b: Run) -> RunComparison:
    """Compare two runs: speed, memory, losses and the settings that differ.

    Runs of different length are compared over the steps that both made.

    Args:
        a: The run to compare with, as ``report`` takes it: a folder, a file, a monitor or its run log.
        b: The other run. Ratios are ``b`` over ``a``.

    Returns:
        The comparison.

    Raises:
        InvalidArgumentError: One of them is not a run.
        NotFoundError: There is no such run.
        CorruptFileError: A run's files cannot be read: see ``report``.
        VersionMismatchError: A run's files have another version.

    Example:
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


@dataclass(frozen=True, repr=False)
class RunComparison(Headlined, kind=_COMPARISON):
    """Two runs beside each other: ``print`` shows the text, a notebook the card.

    Attributes:
        record: The whole comparison as JSON.
    """

    record: Record

    @property
    def figures(self) -> dict[str, ComparedFigure]:
        """The figures by their keys, such as ``steps_per_s``, without those that neither run has."""
        return {row["key"]: from_json(ComparedFigure, row) for row in self.record["figures"]}

    @property
    def settings(self) -> dict[str, tuple[object, object]]:
        """The settings of ``training_config.json`` that differ: a's value and b's of each."""
        return {row["name"]: (row["a"], row["b"]) for row in self.record["settings"]}

    def to_json(self) -> Record:
        """Return the comparison as a JSON object.

        Returns:
            The object, with the keys of docs/reference/watching.md; what is not known is None or empty.
        """
        figures = {key: value for key, value in self.record.items() if key != "charts"}
        return {"comparison_version": _VERSION, "headline": self.headline, **figures}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a CSV file with a row for each figure and setting.

        Args:
            path: The file to write.

        Raises:
            NotFoundError: The file cannot be written.
        """
        save_text(Path(path), render(_COMPARISON, "csv", self.record)["text"])

    def _shown(self) -> Record:
        return self.record
