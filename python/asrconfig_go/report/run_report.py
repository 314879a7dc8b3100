"""The report of a run: its figures, what held it back, what was warned of, and pictures of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base import native
from .._base.checks import checked
from .._base.choices import ReportAxis
from .._base.errors import LibraryError
from .._base.listing import first_of
from .._base.records import from_json
from ..training.run_record import RunRecord
from ..view.plot import plot_all
from ..view.render import Record, Shown, save_page, text, title
from .diagnosis import Finding
from .diagnosis_settings import settings_of
from .reported_run import ReportedRun
from .run_files import Source, gather, guard_events

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VERSION = 1  # of its JSON
_RANKS = 64  # whose peaks are listed


def report(run: Any, args: Any = None) -> RunReport:
    """The report of ``run``: a ``MemoryMonitor``, a ``RunLog``, the folder of a training, or a monitor's file.

    A folder's ``asrconfig_monitor*.json`` are one run: files of ranks and nodes side by side, of restarts one after
    another. The guard's record and ``trainer_state.json`` beside them are reported, too.

    ``args`` are the training's TrainingArguments or its TrainingConfig, for findings that need them; without, what
    ``training_config.json`` and the others in the folder tell is taken.

    Raises ``NotFoundError`` where there is no run, ``CorruptFileError`` for a file that is empty, truncated or not a
    run log, ``VersionMismatchError`` for one of a newer version.

    >>> with MemoryMonitor(interval_ms=20) as monitor:
    ...     monitor.step(1, audio_s=4.0)
    >>> report(monitor).headline.split(" in ")[0]
    '1 step'
    """
    files = gather(run)
    answer = _analysed(files.sources, files.record, settings=settings_of((args, files.plan, files.state), files.record))
    findings = tuple(from_json(Finding, finding) for finding in answer["findings"])
    return RunReport(
        files.sources, answer["figures"], findings, files.record, files.trainer, files.ranks, files.notes,
        files.failures, files.history,
    )  # fmt: skip


def _analysed(sources: Sequence[Source], record: RunRecord | None, **settings: Any) -> Record:
    request = {"sources": [source.to_json() for source in sources], "guard": guard_events(record) or []}
    answer: Record = native.call("report.run", request | settings)
    return answer


@dataclass(frozen=True, repr=False)
class RunReport(ReportedRun, Shown, kind="run"):
    """The report of a run: ``print`` shows the text, a notebook the card; times count from the run's start."""

    @property
    def headline(self) -> str:
        """The run in one sentence, as far as it is known."""
        return title("run", self._figures())

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the keys of docs/reference/watching.md; what is not known is None or empty."""
        return {"report_version": _VERSION, "headline": self.headline, **self._figures()}

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

    def _shown(self, by: ReportAxis = "time", gpus: Sequence[int] | None = None) -> Record:
        """What the view of a run shows; without charts where the library cannot be used."""
        checked("by", by, ReportAxis)
        try:
            answer = _analysed(self.sources, self.record, by=by, gpus=gpus, history=self.history)
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
