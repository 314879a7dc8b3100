"""The pre-flight: tries the worst batches of the whole training before the first step."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .._base.errors import InvalidArgumentError
from .._base.override import override
from ..batching.collated_batch import batch_size
from ..view.render import box
from ..view.units import exact, parameter_count, plural
from .probe import OptimizerStates, optimizer_states, untouched
from .worst_batch import seconds_of, worst_batch

logger: logging.Logger = logging.getLogger("asrconfig_go")

Rehearse = Callable[[str, Any], int | None]


@dataclass(frozen=True)
class Rehearsal:
    """One batch that was tried: ``samples`` of ``seconds`` seconds, None for an unknown input.

    ``source`` is how it was found, ``micro_batch`` how many samples at a time fitted; None when unknown.
    """

    place: str
    samples: int
    seconds: float | None
    source: str
    micro_batch: int | None


@dataclass(frozen=True, repr=False)
class PreflightReport:
    """The trials before the first step: the optimizer's states in bytes, the worst batches, and what was skipped.

    ``seconds`` is the time that they took.
    """

    optimizer: OptimizerStates
    rehearsals: tuple[Rehearsal, ...]
    notes: tuple[str, ...]
    seconds: float

    def __repr__(self) -> str:
        states = self.optimizer
        lines = [
            f"pre-flight in {self.seconds:.1f} s: {states.optimizer} with {exact(states.bytes)} of states for "
            f"{parameter_count(states.parameters)} trainable parameters"
        ]
        lines += [f"  {_rehearsal_text(r)}" for r in self.rehearsals]
        return "\n".join([*lines, *(f"  ! {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return box("Pre-flight", repr(self))


def _rehearsal_text(r: Rehearsal) -> str:
    length = "" if r.seconds is None else f" of {r.seconds:.3g} s"
    fits = "fits, whole or in pieces"
    if r.micro_batch is not None:
        fits = f"fits in micro-batches of {r.micro_batch}" if r.micro_batch < r.samples else "fits"
    return f"{r.place}: {plural(r.samples, 'sample')}{length} ({r.source}): {fits}"


def preflight(
    trainer: Any, rehearse: Rehearse, *, optimizer: Any, batch: Any = None, seconds: float | None = None
) -> PreflightReport:
    """Allocate the optimizer's states, and with them try the worst batches of training and evaluation.

    ``rehearse(place, batch)`` computes a batch as a step of ``"training"`` or ``"evaluation"`` does, in pieces as large
    as fit; it may return their size. Batches are the longest clips by the dataset's column of lengths, or else
    ``batch`` (the first) or the first clips, stretched to ``seconds`` if that is given. Everything is as before
    afterwards. Raises ``InfeasiblePlanError`` when the optimizer's states do not fit, and what ``rehearse`` raises.
    """
    began, rehearsals, notes = time.perf_counter(), list[Rehearsal](), list[str]()
    with untouched(trainer.model), _in_a_window(trainer), optimizer_states(optimizer) as states:
        if states.note:
            notes.append(f"{states.optimizer}: {states.note}")
        for place, size, dataset, collated in _places(trainer, batch):
            try:
                worst, source = worst_batch(trainer, size, seconds, collated, dataset=dataset)
            except InvalidArgumentError as error:
                notes.append(f"{place} was not tried: {error.message}")
                continue
            samples, length_s = batch_size(worst), seconds_of(worst, trainer.model)
            rehearsals.append(Rehearsal(place, samples, length_s, source, rehearse(place, worst)))
            del worst
    report = PreflightReport(states, tuple(rehearsals), tuple(notes), time.perf_counter() - began)
    logger.info("%s", report)
    return report


@contextlib.contextmanager
def _in_a_window(trainer: Any) -> Iterator[None]:
    """Sets how many micro-batches the Trainer divides by, which it does only once it has fetched some."""
    name = "current_gradient_accumulation_steps"
    with contextlib.ExitStack() as stack:
        if name not in vars(trainer):
            stack.callback(override(trainer, name, trainer.args.gradient_accumulation_steps))
        yield


def _places(trainer: Any, batch: Any) -> Iterator[tuple[str, int, Any, Any]]:
    yield "training", trainer.args.train_batch_size, trainer.train_dataset, batch
    evaluated = trainer.eval_dataset
    several = evaluated.values() if isinstance(evaluated, dict) else [] if evaluated is None else [evaluated]
    for dataset in several:
        yield "evaluation", trainer.args.eval_batch_size, dataset, None
