"""The file of a run log, next to the checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .memory_monitor import MemoryMonitor


NAME = "asrconfig_monitor.json"
_EVERY_S = 60.0


class RunFile:
    """Writes ``asrconfig_monitor.json`` into ``folder``, at least once a minute while ``write`` is called.

    Of several nodes, those after the first have ``-rank<n>`` in the name. What a run wrote before the process was
    killed is kept as ``asrconfig_monitor-until-step-<n>.json`` when it is resumed at step n.
    """

    def __init__(
        self, monitor: MemoryMonitor, folder: Path, rank: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._monitor, self._clock = monitor, clock
        self.path = folder / (f"asrconfig_monitor-rank{rank}.json" if rank else NAME)
        self._next = clock() + _EVERY_S

    def keep_earlier(self, step: int) -> None:
        """Put the file of the run that is resumed at ``step`` aside."""
        if step > 0 and self.path.exists():
            self.path.replace(self.path.with_name(f"{self.path.stem}-until-step-{step}.json"))

    @property
    def due(self) -> bool:
        """Whether a minute has passed."""
        return self._clock() >= self._next

    def write(self) -> None:
        """Write the run log so far."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._monitor.save(self.path)
        self._next = self._clock() + _EVERY_S
