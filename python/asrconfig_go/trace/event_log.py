"""The event log of a trace: storages that are allocated and freed, and what operations compute and move.

``Trace`` is the finished log, with its file, whose format core/memory/trace/README.md has.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload

from .._core.files import write_whole
from ..errors import InvalidArgumentError, UnsupportedError
from ._calls import Args, Call, Numbers, costs, type_name

TAGS = ("", "parameter", "buffer", "gradient", "optimizer", "input", "workspace", "output")
FORMAT, VERSION = "asrconfig-trace", 2


class TraceError(UnsupportedError):
    """The step cannot be traced, or a trace file cannot be read; the message names the operation and the module."""


class RefusedBatchError(TraceError):
    """The model's own code raises an error for a batch."""


class CheckpointError(TraceError):
    """The model cannot be trained with this kind of checkpoints."""


class NoLossError(InvalidArgumentError):
    """The model returns no loss for a batch."""


class Names:
    """Names numbered in the order in which they were first seen."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def __call__(self, name: object) -> int:
        """The number of ``name``."""
        return self.numbers.setdefault(name, len(self.numbers))


@dataclass
class Segment:
    """A part of the run. ``events``: the bytes of a storage that is allocated, or -1 - number of one that is freed.

    ``first`` is the number of its first storage, ``calls`` the number of each ``Call`` in order, and ``numbers`` what
    these have of their own, one after the other.
    """

    kind: str
    first: int
    shape: dict[str, int] = field(default_factory=dict)
    events: list[int] = field(default_factory=list)
    op: list[int] = field(default_factory=list)
    module: list[int] = field(default_factory=list)
    tag: list[int] = field(default_factory=list)
    phases: list[list[Any]] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


class EventLog:
    """Watches storages. ``where`` returns the current phase and module."""

    def __init__(self, where: Callable[[], tuple[str, str]]) -> None:
        self.ops, self.modules, self.calls = Names(), Names(), Names()
        self.segments: list[Segment] = []
        self.births = 0
        self._where = where
        self._living: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}
        self._home: list[tuple[Segment, int]] = []  # the segment of each storage, and its place there
        self._open = False
        self._called = ""  # the name of the next allocation; "" for its operation

    def begin(self, kind: str, shape: dict[str, int], phase: str) -> None:
        """Start a segment."""
        self.segments.append(Segment(kind, self.births, shape, phases=[[0, phase]]))
        self._open = True

    def close(self) -> None:
        """Stop recording: what is freed from here on is not part of the run."""
        self._open = False

    def unwatched(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors whose storage was not allocated in this run, or does not lie on the device."""
        living = self._living
        return [tensor for tensor in tensors if tensor.untyped_storage()._cdata not in living]

    def birth(self, tensor: torch.Tensor, op: str, tag: str = "") -> None:
        """Record the tensor's storage, unless it is recorded already or empty."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._living or not self._open:
            return
        size = storage.nbytes()
        if size == 0:
            return
        number = self._write_birth(size, op, tag)

        def died(_: object) -> None:
            last, _ = self._living.pop(key)
            if self._open:
                self.segments[-1].events.append(-1 - last)

        self._living[key] = (number, weakref.ref(storage, died))

    def call(self, op: OpOverload, name: str, args: Args, read: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        """Record what an operation on the device computes and moves."""
        phase = self._timed_phase()
        for layout, numbers in costs(op, args, read, made) if phase else ():
            self._add_call(Call(name, type_name((*made, *read)), phase, layout, len(numbers)), numbers)

    def copied(self, size: int, like: torch.Tensor) -> None:
        """Record a copy of ``size`` bytes into contiguous order that a kernel makes for itself."""
        self._moved(size, "aten.clone.default", like, "strided")

    def transferred(self, tensor: torch.Tensor, op: str, layout: str) -> None:
        """Record a copy between device and host; ``layout`` is "to_pinned" into pinned memory, else "host"."""
        self._moved(tensor.numel() * tensor.element_size(), op, tensor, layout)

    def _moved(self, size: int, op: str, like: torch.Tensor, layout: str) -> None:
        phase = self._timed_phase()
        if phase:
            self._add_call(Call(op, type_name((like,)), phase, layout, 2), (size, size))

    def _timed_phase(self) -> str:
        """The phase of a call that is recorded; "" of others, which follow from the parameters or the first batch."""
        if not self._open or self.segments[-1].kind not in ("micro", "iteration"):
            return ""
        phase = self._where()[0]
        return "" if phase == "optimizer" else phase

    def _add_call(self, call: Call, numbers: Numbers) -> None:
        self.segments[-1].calls.append(self.calls(call))
        self.segments[-1].numbers += numbers

    def passing(self, size: int, op: str) -> None:
        """Record a workspace that an operation allocates and frees."""
        self._write_death(self._write_birth(size, op, "workspace"))

    def sequence(self, sizes: list[int], op: str) -> None:
        """Record workspaces in order; -n frees the n-th, the end all that remain."""
        living, places = dict[int, int](), itertools.count(1)
        for size in sizes:
            if size < 0:
                self._write_death(living.pop(-size))
            else:
                living[next(places)] = self._write_birth(size, op, "workspace")
        for number in living.values():
            self._write_death(number)

    def staying(self, size: int, op: str) -> None:
        """Record a workspace that is kept to the end of the process."""
        self._write_birth(size, op, "workspace")

    @contextmanager
    def during(self, size: int, op: str) -> Iterator[None]:
        """Record a temporary that exists while the body runs."""
        number = self._write_birth(size, op, "workspace") if self._open else -1
        yield
        if number >= 0:
            self._write_death(number)

    @contextmanager
    def padding(self, source: torch.Tensor, multiple: int) -> Iterator[bool]:
        """Name the padded copy that the body makes, which a GPU makes only where rows are no multiple of elements.

        Where it yields True the body must make it at every length, so that all lengths have one structure: the file
        names the tensor and the length of its rows. Where it yields False, the tensor is not of this segment.
        """
        living = self._living.get(source.untyped_storage()._cdata)
        if living is None or self._home[living[0]][0] is not self.segments[-1]:
            yield False
            return
        self.passing(source.shape[-1], "length")
        self._called = f"pad:{multiple}:{self.births - living[0]}"
        yield True
        self._called = ""

    def retag(self, tensor: torch.Tensor, tag: str, module: str = "") -> None:
        """Change the tag of a storage, as to a gradient or a state of the optimizer, and its module."""
        living = self._living.get(tensor.untyped_storage()._cdata)
        if living is not None:
            segment, place = self._home[living[0]]
            segment.tag[place] = TAGS.index(tag)
            if module:
                segment.module[place] = self.modules(module)

    def _write_birth(self, size: int, op: str, tag: str) -> int:
        phase, module = self._where()
        segment = self.segments[-1]
        if segment.phases[-1][1] != phase:
            segment.phases.append([len(segment.events), phase])
        self._home.append((segment, len(segment.op)))
        segment.events.append(size)
        segment.op.append(self.ops(self._called or op))
        segment.module.append(self.modules(module))
        segment.tag.append(TAGS.index(tag))
        self.births += 1
        return self.births - 1

    def _write_death(self, number: int) -> None:
        self.segments[-1].events.append(-1 - number)


@dataclass(frozen=True)
class Trace:
    """One recorded run.

    Attributes:
        about: The model, the versions and the settings.
        ops: The names of operations, by number.
        modules: The paths of modules, by number.
        tags: What tensors are counted as, by number.
        lengths: The lengths that sizes depend on.
        calls: The kinds of calls, by number.
        segments: The parts of the run, with their allocations, frees and calls.
    """

    about: dict[str, Any]
    ops: list[str]
    modules: list[str]
    tags: list[str]
    lengths: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    segments: list[dict[str, Any]]

    @classmethod
    def of(cls, log: EventLog, lengths: list[dict[str, Any]], about: dict[str, Any]) -> Trace:
        """Make the trace of an event log.

        Args:
            log: The events.
            lengths: The lengths that sizes depend on.
            about: The model, the versions and the settings.

        Returns:
            The trace.
        """
        columns = ("events", "op", "module", "tag", "phases", "calls", "numbers")
        segments = [
            {"kind": s.kind, **s.shape, **{name: list(getattr(s, name)) for name in columns}}
            for s in log.segments
            if s.op or s.kind != "iteration"
        ]
        calls = [call._asdict() for call in log.calls.numbers]
        return cls(about, list(log.ops.numbers), list(log.modules.numbers), list(TAGS), lengths, calls, segments)

    def to_bytes(self) -> bytes:
        """Return the content of the trace's file.

        Returns:
            JSON, compressed by gzip.
        """
        body = {"format": FORMAT, "version": VERSION, **self.__dict__}
        return gzip.compress(json.dumps(body, separators=(",", ":")).encode(), compresslevel=1, mtime=0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a file; an older one is replaced whole or not at all.

        Args:
            path: The file.
        """
        write_whole(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a file that ``save`` wrote.

        Args:
            path: The file.

        Returns:
            The trace.

        Raises:
            TraceError: The file cannot be read, or is not a trace of this version.
        """
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
