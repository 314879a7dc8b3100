"""The interface of ``MemoryMonitor`` that watching uses."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from .._base.choices import StepKind

if TYPE_CHECKING:
    from .memory_monitor import MemoryHistory, MemorySnapshot
    from .run_log import Activity, Alert, RunLog


class MemoryReader(Protocol):
    """See ``MemoryMonitor`` for each."""

    @property
    def running(self) -> bool:
        """Whether samples are being taken."""

    @property
    def alert_changes(self) -> int:
        """How many alerts were raised or cleared."""

    def step(
        self,
        number: int | None = None,
        *,
        kind: StepKind = "train",
        waited_s: float | None = None,
        audio_s: float | None = None,
        padded_s: float | None = None,
        longest_s: float | None = None,
        arithmetic_s: float | None = None,
    ) -> None:
        """An optimizer step, an evaluation batch or a checkpoint has ended."""

    def event(self, kind: str, text: str, gpu: int = -1) -> None:
        """Something happened."""

    def headroom(self) -> tuple[int | None, ...]:
        """Bytes that can still be allocated on each GPU."""

    def host_fraction(self) -> float | None:
        """Used share of the host's memory."""

    def read(self) -> MemorySnapshot:
        """The newest sample; after the stop the last one."""

    def activity(self) -> Activity:
        """The newest reading of what is read once a second."""

    def history(self, max_points: int = 0) -> MemoryHistory:
        """Memory since the start."""

    def alerts(self) -> tuple[Alert, ...]:
        """All warnings so far."""

    def run_log(self) -> RunLog:
        """All of it; also after the stop."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the run log; also after the stop."""

    def stop(self) -> None:
        """Take no more samples."""
