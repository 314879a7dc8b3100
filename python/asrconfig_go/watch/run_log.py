"""The run log of a monitor as plain data: the JSON of the library's run log, field by field.

Sizes are bytes, times are seconds from the monitor's start (monotonic) unless a name says otherwise; None is not known.
Long runs are kept at a lower resolution, never truncated.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .._core.declared import RUN_LOG_VERSION
from .._core.files import read_object
from .._core.records import from_json
from ..errors import CorruptFileError, InternalError, VersionMismatchError
from .watch_records import RunLogRecord


@dataclass(frozen=True, repr=False)
class RunLog(RunLogRecord):
    """A whole run as a monitor saw it; ``start_unix_nanos`` is the wall clock of time 0."""

    @classmethod
    def from_json(cls, data: dict[str, object]) -> RunLog:
        """A run log from its JSON object. Raises ``VersionMismatchError`` for one of another version."""
        version = data.get("version")
        if version != RUN_LOG_VERSION:
            raise VersionMismatchError(
                f"a run log of version {version!r}, this package reads {RUN_LOG_VERSION}",
                "read it with the version of asrconfig-go that wrote it",
            )
        try:
            return from_json(cls, data)
        except InternalError as error:
            raise CorruptFileError(
                f"this is not a run log: {error.message}", "name a file that a monitor saved"
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> RunLog:
        """The run log that ``MemoryMonitor.save`` wrote. Raises ``NotFoundError`` and ``CorruptFileError``."""
        return cls.from_json(read_object(path, "run log", "name a file that a monitor saved"))

    def __repr__(self) -> str:
        return (
            f"RunLog({self.duration_s:.0f} s, {self.samples} samples, {len(self.gpus)} GPUs, "
            f"{len(self.steps.number)} steps, {len(self.events)} events, {len(self.alerts)} alerts)"
        )
