"""What a guard says of something that did not fit."""

from __future__ import annotations

from dataclasses import dataclass

from .._base.listing import listed


@dataclass(frozen=True)
class GuardEvent:
    """Something that did not fit, and what was done about it.

    ``place`` is ``"training"``, ``"evaluation"``, ``"optimizer"``, ``"saving"``, ``"loading"`` (host memory),
    ``"skipped"`` (a clip that does not fit alone) or ``"pre-flight"``. ``micro_batch_before`` and ``after`` are samples
    of the micro-batch that failed and of those that follow, both 1 where one sample was computed again; of
    ``"loading"`` they are loader workers, and otherwise 0. ``lost_s`` is how many seconds the failed attempt took, and
    what it held took to be freed. ``snapshot`` is the file with a memory snapshot of that moment, "" where none was
    written: see ``Guard``. ``not_restored`` is what the failed attempt may have changed and could not be put back, such
    as an iterator that the step reads from; everything else is as if nothing had failed.
    """

    place: str
    global_step: int
    micro_batch_before: int
    micro_batch_after: int
    error: str
    lost_s: float = 0.0
    snapshot: str = ""
    not_restored: tuple[str, ...] = ()

    @property
    def lost(self) -> str:
        """What could not be put back, in words; "" for nothing."""
        return f"{listed(self.not_restored)} could not be put back" if self.not_restored else ""

    def __str__(self) -> str:
        before, after = self.micro_batch_before, self.micro_batch_after
        sizes = f"{before} → {after}" if before != after else "once more"
        action = "a clip was left out" if self.place == "skipped" else sizes
        snapshot = f"; memory snapshot in {self.snapshot}" if self.snapshot else ""
        lost = f"; {self.lost}" if self.not_restored else ""
        return f"step {self.global_step} ({self.place}): {action} after {self.error}{snapshot}{lost}"
