"""A predicted run as a memory snapshot of PyTorch.

pytorch.org/memory_viz and ``torch.cuda._memory_viz`` read snapshots. Their format is that of
``torch.cuda.memory._snapshot()`` in torch 2.15. Added is ``category``, which the viewer colours.
"""

from __future__ import annotations

import functools
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.files import save_whole, user_path
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from .opened_trace import OpenedTrace

_Frame = dict[str, Any]

SUFFIX = ".pickle"
PROTOCOL = 4  # the newest that the viewer reads
_ACTIONS = {0: "alloc", 2: "segment_alloc", 3: "segment_free", 4: "segment_map", 5: "segment_unmap"}
_FREE = 1
_ALLOCATED = {"state": "active_allocated"}
_POOL = (0, 0)  # PyTorch's own
_UNKNOWN = "unknown"  # the viewer fails on categories without this one
_CONF = "PYTORCH_CUDA_ALLOC_CONF"


@dataclass(frozen=True)
class SavedSnapshot:
    """A memory snapshot that was written.

    Attributes:
        path: The file.
        events: The allocations, frees and segment events in it.
        left_out: The earlier events that are not in it.
    """

    path: Path
    events: int
    left_out: int


class PredictedRun:
    """The run behind an estimate. It keeps the trace open, and is dropped when the estimate is copied or pickled."""

    def __init__(self, memory: OpenedTrace | None = None, question: dict[str, Any] | None = None) -> None:
        self._memory = memory
        self._question = question or {}

    def __reduce__(self) -> tuple[type[PredictedRun], tuple[()]]:
        return (PredictedRun, ())

    def save(self, path: Path) -> SavedSnapshot:
        """Replay the run and write its snapshot."""
        if self._memory is None or not self._memory.is_open:
            reason = "the estimate was copied" if self._memory is None else "its memory model is closed"
            raise InvalidArgumentError(
                f"cannot save a snapshot to {path}: {reason}",
                "save it inside the with block of the MemoryModel, or ask estimate_memory again",
            )
        run = native.call("memory.snapshot", self._question)
        events = len(run["events"]["action"])
        save_whole(path, pickle.dumps(snapshot_of(run, self._question["settings"]), protocol=PROTOCOL))
        return SavedSnapshot(path, events, run["left_out"])


def snapshot_path(path: str | os.PathLike[str]) -> Path:
    """The path of a snapshot; ``InvalidArgumentError`` for another suffix than .pickle."""
    file = user_path(path, "snapshot")
    if file.suffix.lower() != SUFFIX:
        raise InvalidArgumentError(
            f"cannot save a snapshot to {file.name!r}: the name does not end in {SUFFIX}", f"name a file {SUFFIX}"
        )
    return file


def snapshot_of(run: dict[str, Any], settings: str) -> dict[str, Any]:
    """The library's columns as PyTorch's dictionary."""
    stacks = _Stacks(run["names"], run["stacks"])
    return {
        "segments": [_segment(segment, stacks) for segment in run["segments"]],
        "device_traces": [_events(run["events"], run["left_out"], stacks)],
        "allocator_settings": {_CONF: settings, **run["settings"]},
        "external_annotations": [],
        "host_segments": [],
        "host_traces": [],
    }


class _Stacks:
    """The frames of each stack. Equal frames are one object, and so are equal stacks."""

    def __init__(self, names: list[str], stacks: dict[str, list[int]]) -> None:
        parts = (stacks[name] for name in ("op", "module", "segment", "phase"))
        rows = [tuple(names[i] for i in row) for row in zip(*parts, strict=True)]
        self.components = [names[i] for i in stacks["component"]]
        frame = functools.cache(_frame)

        @functools.cache
        def frames(stack: int, step: int) -> list[_Frame]:
            """A stack in one step of the optimizer, innermost first: operation, modules, phase."""
            op, module, segment, phase = rows[stack]
            part = phase if segment == phase else f"{segment} {phase}"
            around = [frame("module", path, 0) for path in modules_around(module)]
            return [frame("operation", op, 0), *around, frame("step", part, step)]

        self.frames = frames  # a cached method would keep the object alive until garbage is collected


def _frame(kind: str, name: str, line: int) -> _Frame:
    return {"filename": kind, "line": line, "name": name}


def modules_around(path: str) -> list[str]:
    """A module and those that contain it, innermost first, without lists of modules: ``layers.3``, not ``layers``."""
    steps = path.split(".") if path else []
    ends = range(len(steps), 0, -1)
    return [".".join(steps[:end]) for end in ends if end == len(steps) or not steps[end].isdecimal()]


def _events(columns: dict[str, list[int]], left_out: int, stacks: _Stacks) -> list[dict[str, Any]]:
    """The trace of the device. Its times are event numbers, as a simulation has no clock."""
    events: list[dict[str, Any]] = []
    rows = list(zip(*(columns[name] for name in ("action", "address", "bytes", "stack", "step")), strict=True))
    for time, (action, address, size, stack, step) in enumerate(rows, left_out):
        component = stacks.components[stack]  # of a segment: that of the block which first needed it
        made = _event(address, size, time, stacks.frames(stack, step))
        made |= {"user_metadata": component, "category": component}
        names = ("free_requested", "free_completed") if action == _FREE else (_ACTIONS[action],)
        events.extend({"action": name, **made} for name in names)
    return [*events, {"action": "snapshot", **_event(0, 0, left_out + len(rows), []), "category": _UNKNOWN}]


def _event(address: int, size: int, time: int, frames: list[_Frame]) -> dict[str, Any]:
    return {
        "addr": address, "size": size, "stream": 0, "time_us": time, "compile_context": "N/A", "user_metadata": "",
        "frames": frames, "pool_id": _POOL,
    }  # fmt: skip


def _segment(segment: dict[str, Any], stacks: _Stacks) -> dict[str, Any]:
    blocks, address = [], segment["address"]
    columns = (segment[name] for name in ("sizes", "requested", "stacks", "steps"))
    for size, requested, stack, step in zip(*columns, strict=True):
        block = {"address": address, "size": size, "requested_size": requested, "state": "inactive", "frames": []}
        blocks.append(block if stack < 0 else {**block, **_ALLOCATED, "frames": stacks.frames(stack, step)})
        address += size
    allocated = sum(block["size"] for block in blocks if block["state"] != "inactive")
    return {
        "device": 0, "address": segment["address"], "total_size": segment["bytes"], "allocated_size": allocated,
        "active_size": allocated, "requested_size": sum(segment["requested"]), "stream": 0,
        "segment_type": "small" if segment["small"] else "large", "segment_pool_id": _POOL,
        "is_expandable": segment["expandable"], "frames": stacks.frames(segment["stack"], segment["step"]),
        "blocks": blocks,
    }  # fmt: skip
