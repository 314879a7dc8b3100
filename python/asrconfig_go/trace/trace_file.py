"""Traces as bytes and as a file. core/memory/trace/README.md has the format."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .._base.files import write_whole
from ._log import TAGS, EventLog
from ._trace_errors import TraceError

FORMAT, VERSION = "asrconfig-trace", 2
_MAX_BYTES = 1 << 29  # unpacked


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
                raw = file.read(_MAX_BYTES + 1)
            if len(raw) > _MAX_BYTES:
                raise ValueError("larger than 512 MiB unpacked")
            body = json.loads(raw)
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
