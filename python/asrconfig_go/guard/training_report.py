"""The report of a guarded training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._base.listing import first_of
from ..bad_clips.bad_clip_record import BadBatch
from ..recovery.guard_event import GuardEvent
from ..view.render import box
from ..view.units import plural

_BATCHES = 10  # bad ones that are listed
FINISHED = (
    "the run in output_dir has made all its steps; for more of them raise num_train_epochs or max_steps, for a new run "
    "choose another output_dir or call manager.train(trainer, resume=False)"
)


@dataclass(frozen=True)
class Restart:
    """GPU memory ran out where no step can be computed again; training continued from ``since``, a step before.

    ``before`` and ``after`` are the limits of the micro-batch.
    """

    step: int
    since: int
    place: str
    before: int
    after: int
    error: str

    def __str__(self) -> str:
        again = plural(self.step - self.since, "step")
        return (
            f"step {self.step} (outside of {self.place} steps): continued from step {self.since}, {again} made again, "
            f"{self.before} → {self.after} after {self.error}"
        )


@dataclass(frozen=True)
class Change:
    """A setting that is another than when the run began, as JSON has its values.

    ``in_force`` is False where the run's value stays: a checkpoint's optimizer brings learning rate, weight decay and
    betas of its own, and random numbers continue from the run's seed.
    """

    name: str
    before: Any
    now: Any
    in_force: bool

    @property
    def difference(self) -> str:
        """Both values, in words."""
        return f"{self.name} was {self.before!r}, is {self.now!r}"

    def __str__(self) -> str:
        effect = "in effect from here on" if self.in_force else "the run's stays in effect"
        return f"{self.difference}: {effect}"


@dataclass(frozen=True)
class TrainingReport:
    """A training that ``manager.train`` ran, from its beginning, resumed processes included.

    - ``steps``, ``planned_steps``: optimizer steps made and planned;
    - ``resumed_from``: the checkpoint that this process began with, ``""`` for none;
    - ``restarts``: those within a process, ``recomputed_steps`` the optimizer steps that they made again;
    - ``events``: steps that ran out of memory and were computed again, none of which is lost;
    - ``skipped_samples``: those that did not fit alone, where skipping them was allowed;
    - ``bad_batches``: those whose loss or gradient went wrong, or of which a clip did not fit alone, with the clips to
      blame; ``bad_samples`` is how many of these this process left out;
    - ``batch``: samples a device and batch, accumulation, devices: their product is the effective batch;
    - ``limit_samples``, ``limit_values``: what a micro-batch may hold by now, None without limit;
    - ``seconds``: of this process; ``error``: what ended it, ``""`` when it came to its end;
    - ``finished``: the run had made all its steps before, so that nothing was trained;
    - ``changes``: settings that are others than when the run that is resumed began;
    - ``profile``: a Chrome trace and a table of operators by PyTorch's profiler, where they were recorded;
    - ``stopped``: what ``save_by`` did, ``""`` where it did not end the training.
    """

    steps: int
    planned_steps: int
    resumed_from: str
    restarts: tuple[Restart, ...]
    events: tuple[GuardEvent, ...]
    skipped_samples: int
    batch: tuple[int, int, int]
    limit_samples: int | None
    limit_values: int | None
    seconds: float
    error: str
    finished: bool = False
    changes: tuple[Change, ...] = ()
    stopped: str = ""
    profile: tuple[str, ...] = ()
    bad_batches: tuple[BadBatch, ...] = ()
    bad_samples: int = 0

    @property
    def recomputed_steps(self) -> int:
        """Optimizer steps that were made more than once."""
        return sum(restart.step - restart.since for restart in self.restarts)

    def __repr__(self) -> str:
        size, accumulation, devices = self.batch
        named = ((self.limit_samples, "sample"), (self.limit_values, "value"))
        limits = [plural(limit, noun) for limit, noun in named if limit is not None]
        incidents = (*self.events, *self.restarts)
        times = plural(len(incidents), "time")
        lines = [
            f"{self.steps} of {plural(self.planned_steps, 'step')} in {self.seconds:.1f} s"
            + (f", resumed from {self.resumed_from}" if self.resumed_from else ""),
            f"effective batch {size * accumulation * devices}: {size} × {accumulation}"
            + (f" × {devices} devices" if devices > 1 else "")
            + (f"; micro-batches of at most {' and '.join(limits)}" if limits else ""),
            f"memory {f'ran out {times}; no step was lost' if incidents else 'never ran out'}",
            *(f"  {line}" for line in first_of(incidents)),
        ]
        if self.changes:
            lines.append(f"{plural(len(self.changes), 'setting')} changed since the run began")
            lines += [f"  {change.difference if self.finished else change}" for change in self.changes]
        if self.finished:
            lines.insert(0, f"nothing was trained: {FINISHED}")
        if self.skipped_samples:
            lines.append(f"{plural(self.skipped_samples, 'sample')} left out or replaced: too long to fit alone")
        if self.bad_samples:
            lines.append(f"{plural(self.bad_samples, 'sample')} left out: loss or gradient not finite")
        lines += [f"  {line}" for line in first_of(self.bad_batches, _BATCHES)]
        if self.stopped:
            lines.append(f"{self.stopped}: the same call with resume=True continues")
        if self.profile:
            lines.append(f"profile for ui.perfetto.dev: {self.profile[0]}; by operator: {self.profile[1]}")
        if self.error:
            lines.append(f"ended by {self.error}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return box("Training", repr(self))
