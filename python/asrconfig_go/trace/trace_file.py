"""A trace and its file, whose format core/memory/trace/README.md has; the errors of making one."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .._core.files import write_whole
from ..errors import InvalidArgumentError, UnsupportedError
from .event_log import TAGS, EventLog


class TraceError(UnsupportedError):
    """The step cannot be traced, or a trace file cannot be read; the message names the operation and the module."""


class RefusedBatchError(TraceError):
    """The model's own code raises an error for a batch."""


class CheckpointError(TraceError):
    """The model cannot be trained with this kind of checkpoints."""


class NoLossError(InvalidArgumentError):
    """The model returns no loss for a batch."""


FORMAT, VERSION = "asrconfig-trace", 2


@dataclass(frozen=True)
class Trace:
    """One recorded run. ``segments`` hold allocations, frees and calls; ``about`` the model, versions and settings."""

    about: dict[str, Any]
    ops: list[str]
    modules: list[str]
    tags: list[str]
    lengths: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    segments: list[dict[str, Any]]

    @classmethod
    def of(cls, log: EventLog, lengths: list[dict[str, Any]], about: dict[str, Any]) -> Trace:
        """The trace of a log."""
        segments = [
            {
                "kind": s.kind,
                **s.shape,
                "events": list(s.events),
                "op": list(s.op),
                "module": list(s.module),
                "tag": list(s.tag),
                "phases": [list(p) for p in s.phases],
                "calls": s.calls.kinds,
                "numbers": [n for numbers in s.calls.numbers for n in numbers],
            }
            for s in log.segments
            if s.op or s.kind != "iteration"
        ]
        calls = [call._asdict() for call in log.calls.numbers]
        return cls(about, list(log.ops.numbers), list(log.modules.numbers), list(TAGS), lengths, calls, segments)

    def to_bytes(self) -> bytes:
        """The file's content: gzip of JSON."""
        body = {"format": FORMAT, "version": VERSION, **self.__dict__}
        return gzip.compress(json.dumps(body, separators=(",", ":")).encode(), compresslevel=1, mtime=0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file; an older one is replaced whole or not at all."""
        write_whole(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a file that ``save`` wrote; ``TraceError`` when it is something else."""
        try:
            with gzip.open(path) as file:
                body = json.load(file)
            if body.pop("format") != FORMAT or body.pop("version") != VERSION:
                raise ValueError(f"not a trace of version {VERSION}")
            return cls(**body)
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TraceError(f"cannot read the trace {os.fspath(path)}: {error}", "record it again") from error

    def __repr__(self) -> str:
        births = sum(len(s["op"]) for s in self.segments)
        return f"Trace({self.about.get('model', 'a loop')}: {len(self.segments)} segments, {births} storages)"


def versions() -> dict[str, str]:
    """Versions of the libraries whose code determines a trace."""
    names = ("torch", "transformers", "accelerate", "peft")
    return {name: metadata.version(name) for name in names if importlib.util.find_spec(name) is not None}
