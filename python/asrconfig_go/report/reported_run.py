"""A run with the figures, alerts and events that follow from its logs: what a report is about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..monitor.rank_peaks import RankPeaks
from ..training.run_record import RunRecord
from .alert_outcomes import Outcome, outcomes
from .diagnosis import Finding
from .marks import Band, bands, guarded
from .run_figures import GPUFigures, HostFigures, StepFigures, gpu_figures, host_figures, step_figures
from .run_files import TrainerState
from .timeline import Moment, Timeline


@dataclass(frozen=True, repr=False)
class ReportedRun:
    """The figures of a run; times count from its start.

    ``record`` is the guard's, ``trainer`` the Trainer's own account; None where there is none. ``ranks`` are the peaks
    of other processes of the training. ``notes`` name files beside the run log that cannot be read.
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
