"""Retries with smaller micro-batches until they fit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._base import native
from .._base.errors import InfeasiblePlanError
from .._base.out_of_memory import classify, clear_frames, first_line, free_memory, note
from ..batching.batch_lengths import Extent
from .lost_gpu import keep_what_can_be_kept
from .micro_batch_budget import Budget
from .oom_snapshots import OomSnapshots
from .training_report import GuardEvent

logger: logging.Logger = logging.getLogger("asrconfig_go")

STATISTICS_HINT = "allow statistics of smaller micro-batches by attach(split_batch_statistics=True)"


@dataclass
class Piece:
    """A micro-batch that is being computed."""

    samples: int
    extent: Extent
    of_replacement: bool = False
    """Made by the user's function from a clip that was too long."""
    whole: str = ""
    """Why it cannot be made smaller, if it cannot."""


@dataclass
class _Met:
    """What one step has met so far."""

    place: str
    budget: Budget
    leave_out: Callable[[Piece], bool]
    halvings: int = 0
    maybes: int = 0
    alone_again: bool = False
    host_oom: bool = False

    def state(self, found: str, samples: int, most: int) -> dict[str, Any]:
        """As core/recovery wants it."""
        return {
            "class": found, "micro_batch": samples,
            "retries": self.halvings, "maybe_retries": self.maybes, "max_retries": most,
        }  # fmt: skip

    def shrink(self, extent: Extent, decided: dict[str, Any]) -> None:
        """Go on with what was decided."""
        self.budget.shrink(extent, decided["micro_batch"])
        self.halvings, self.maybes = decided["retries"], decided["maybe_retries"]


class Attempts:
    """Runs training and evaluation steps of one Trainer, with smaller micro-batches each time that one does not fit."""

    def __init__(
        self,
        trainer: Any,
        max_halvings: int,
        events: list[GuardEvent],
        ran_short: Callable[[Exception], bool],
        snapshots: OomSnapshots,
    ) -> None:
        self._trainer, self._most, self.events, self._ran_short = trainer, max_halvings, events, ran_short
        self._snapshots = snapshots
        self.running: Piece | None = None
        """What is being computed; set by the code that splits the batch."""

    def run(
        self,
        place: str,
        budget: Budget,
        first: Callable[[], Any],
        again: Callable[[], Any],
        leave_out: Callable[[Piece], bool] = lambda _: False,
    ) -> Any:
        """What ``first`` gives, or else ``again``, each time after ``budget`` has shrunk.

        One sample is computed once more as it is: what was in the way may be gone. ``leave_out`` may then take a clip
        that does not fit alone out of the batch; it says whether it did.
        """
        attempt, met = first, None
        while True:
            self.running, begin = None, time.perf_counter()
            try:
                return attempt()
            except Exception as error:
                met = met or _Met(place, budget, leave_out)
                go_on = self._decide(error, met, self.running)
                if go_on is None:
                    raise
                clear_frames(error)
            # Outside of the except block: nothing holds the failed attempt any more.
            free_memory()
            go_on(time.perf_counter() - begin)
            attempt = again

    def note(self, place: str, before: int, after: int, text: str, lost_s: float = 0.0, snapshot: str = "") -> None:
        """Keep the event, and log it."""
        self.events.append(GuardEvent(place, self._trainer.state.global_step, before, after, text, lost_s, snapshot))
        stays = "" if place == "skipped" else "; repeated, the result stays the same"
        logger.warning("%s%s", self.events[-1], stays)

    def _decide(self, error: Exception, met: _Met, piece: Piece | None) -> Callable[[float], None] | None:
        """How to continue after ``error``; None when it is to be raised. Giving up raises ``InfeasiblePlanError``."""
        found, text = classify(error), first_line(error)
        if found["class"] == "host_oom" and not met.host_oom and self._ran_short(error):
            met.host_oom = True  # the same once more: a smaller micro-batch does not help
            return lambda _: None
        saved = self._snapshots.take(met.place, error)
        if found["class"] not in ("gpu_oom", "maybe") or piece is None:
            self.explain(error, found)
            return None

        def goes_on(place: str, after: int) -> Callable[[float], None]:
            return lambda lost_s: self.note(place, piece.samples, after, text, lost_s, saved)

        where = f"; memory snapshot in {saved}" if saved else ""
        if piece.whole and met.alone_again:
            raise InfeasiblePlanError(
                f"step {self._trainer.state.global_step} ({met.place}) ran out of GPU memory: {text}; its batch cannot "
                f"be split: {piece.whole}{where}",
                f"train with smaller batches and more accumulation, or {STATISTICS_HINT}",
            ) from error
        if piece.whole:
            met.alone_again = True
            return goes_on(met.place, piece.samples)
        decided = native.call("recovery.next", met.state(found["class"], piece.samples, self._most))
        if decided["retry"]:
            met.shrink(piece.extent, decided)
            return goes_on(met.place, decided["micro_batch"])
        if found["class"] == "maybe":
            note(error, decided["reason"])
            return None
        if piece.samples == 1 and not met.alone_again:
            met.alone_again = True
            return goes_on(met.place, 1)
        if piece.samples == 1 and met.leave_out(piece):
            return goes_on("skipped", 0)
        step = self._trainer.state.global_step
        raise InfeasiblePlanError(
            f"step {step} ({met.place}) ran out of GPU memory: {text}{where}", decided["reason"]
        ) from error

    def explain(self, error: Exception, found: dict[str, Any]) -> None:
        """Add to an error that is raised what it means, and what was saved."""
        if found["class"] == "poisoned":
            note(error, f"{found['advice']}; {keep_what_can_be_kept(self._trainer, self.events, error)}")
        elif found["class"] != "other":
            note(error, found["advice"])
