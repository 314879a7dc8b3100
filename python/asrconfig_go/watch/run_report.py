"""The report of a run: its figures, what held it back, what was warned of, and pictures; and two runs side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .._core import native
from .._core.checks import ReportAxis, checked
from .._core.output import first_of
from .._core.records import from_json, json_fields
from .._core.render import Record, Shown, plot_all, render, save_text, text, title
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
    """An alert of the run.

    ``what`` is "came true" (memory ran out, or what was warned of was used up, ``after_s`` seconds later), "averted"
    (cleared by a clean-up), "cleared" or "held" (until the end). ``where`` is the label of a GPU, "" for the host.
    Times count from the run's start.
    """

    alert: Alert
    where: str
    at_s: float
    what: str
    after_s: float | None


T = TypeVar("T")


_VERSION = 1  # of its JSON
_RANKS = 64  # whose peaks are listed


def report(run: Run, args: TrainingArguments | PlanRecord | None = None, *, by: ReportAxis = "time") -> RunReport:
    """The report of ``run``: a ``MemoryMonitor``, a ``RunLog``, the folder of a training, or a monitor's file.

    A folder's ``asrconfig_monitor*.json`` are one run: files of ranks and nodes side by side, of restarts one after
    another. The guard's record and ``trainer_state.json`` beside them are reported, too.

    ``args`` are the training's TrainingArguments or its TrainingConfig, for findings that need them; without, what
    ``training_config.json`` and the others in the folder tell is taken. Charts run ``by`` "time" or "steps".

    Raises ``NotFoundError`` where there is no run, ``CorruptFileError`` for a file that is empty, truncated or not a
    run log, ``VersionMismatchError`` for one of a newer version.

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
class RunReport(Gathered, Shown, kind="run"):
    """The report of a run: ``print`` shows the text, a notebook the card; times count from the run's start.

    ``record`` is the guard's, ``trainer`` the Trainer's own account; None where there is none. ``ranks`` are the peaks
    of other processes of the training. ``notes`` name files beside the run log that cannot be read. ``failures`` say
    what was held when memory ran out. ``figures`` are those of the run logs, as JSON. ``history`` is the Trainer's
    ``log_history``. Where no training steps are known, charts ``by`` "steps" raise ``InvalidArgumentError``.
    """

    figures: Record
    findings: tuple[Finding, ...]
    by: ReportAxis = "time"

    @cached_property
    def gpus(self) -> tuple[GPUFigures, ...]:
        """The figures of each GPU."""
        return self._each("gpus", GPUFigures)

    @cached_property
    def hosts(self) -> tuple[HostFigures, ...]:
        """The figures of each machine."""
        return self._each("hosts", HostFigures)

    @cached_property
    def steps(self) -> StepFigures:
        """The figures of the steps."""
        return from_json(StepFigures, self.figures["steps"])

    @cached_property
    def alerts(self) -> tuple[Outcome, ...]:
        """Every alert, and what became of it."""
        pairs = zip(self._each("alerts", Alert), self.figures["alerts"], strict=True)
        return tuple(Outcome(alert, a["where"], alert.at_s, a["outcome"], a["after_s"]) for alert, a in pairs)

    @cached_property
    def events(self) -> tuple[Moment, ...]:
        """Everything that happened, the guard's doings among it."""
        return self._each("events", Moment)

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """Evaluations, checkpoints, and gaps in the samples."""
        return self._each("bands", Band)

    @property
    def duration_s(self) -> float:
        """From the start of the first run log to the end of the last."""
        return float(self.figures["duration_s"])

    @property
    def gap_s(self) -> float:
        """Seconds without samples."""
        return float(self.figures["gap_s"])

    @property
    def energy_wh(self) -> float | None:
        """Of all GPUs that tell their power; what was not sampled is not counted."""
        energy: float | None = self.figures["energy_wh"]
        return energy

    def _each(self, key: str, cls: type[T]) -> tuple[T, ...]:
        return tuple(from_json(cls, {name: row[name] for name in json_fields(cls)}) for row in self.figures[key])

    @property
    def headline(self) -> str:
        """The run in one sentence, as far as it is known."""
        return title("run", self._figures())

    def to_json(self) -> Record:
        """A JSON object with the keys of docs/reference/watching.md; what is not known is None or empty."""
        return {"report_version": _VERSION, "headline": self.headline, **self._figures()}

    def plot(self, *, gpus: Sequence[int] | None = None) -> Figure:
        """Draw memory, utilisation, steps and the host with matplotlib.

        ``gpus`` are places in ``self.gpus``; None takes the four with the least headroom. Raises ``UnsupportedError``
        without matplotlib, ``NotFoundError`` where nothing was sampled.
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

    def __str__(self) -> str:
        return text("run", self._shown())

    def __repr__(self) -> str:
        return f"RunReport({self.headline!r})"


_COMPARISON = "run comparison"


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


@dataclass(frozen=True, repr=False)
class RunComparison(Shown, kind=_COMPARISON):
    """Two runs beside each other: ``print`` shows the text, a notebook the card. ``record`` is all of it as JSON."""

    record: Record

    @property
    def headline(self) -> str:
        """The comparison in one sentence."""
        return title(_COMPARISON, self.record)

    @property
    def figures(self) -> dict[str, ComparedFigure]:
        """The figures by their keys, such as ``steps_per_s``; those that neither run knows are left out."""
        return {row["key"]: from_json(ComparedFigure, row) for row in self.record["figures"]}

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
        save_text(Path(path), render(_COMPARISON, "csv", self.record)["text"])

    def __str__(self) -> str:
        return text(_COMPARISON, self.record)

    def __repr__(self) -> str:
        return f"RunComparison({self.headline!r})"

    def _shown(self) -> Record:
        return self.record
