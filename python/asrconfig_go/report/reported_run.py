"""A run with the figures, alerts and events that follow from its logs: what a report is about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from .._base.records import from_json, json_fields
from ..memory.memory_failure import MemoryFailure
from ..monitor.rank_peaks import RankPeaks
from ..monitor.run_log import Alert
from ..training.run_record import RunRecord
from ..view.render import Record
from .diagnosis import Finding
from .run_figures import Band, GPUFigures, HostFigures, Moment, Outcome, StepFigures
from .run_files import Logged, Source, TrainerState

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class ReportedRun:
    """The figures of a run; times count from its start.

    ``record`` is the guard's, ``trainer`` the Trainer's own account; None where there is none. ``ranks`` are the peaks
    of other processes of the training. ``notes`` name files beside the run log that cannot be read. ``failures`` say
    what was held when memory ran out. ``figures`` are those of the run logs, as JSON. ``history`` is the Trainer's
    ``log_history``.
    """

    sources: tuple[Source, ...]
    figures: Record
    findings: tuple[Finding, ...]
    record: RunRecord | None = None
    trainer: TrainerState | None = None
    ranks: tuple[RankPeaks, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[MemoryFailure, ...] = ()
    history: tuple[Logged, ...] = ()

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
