"""The GPU memory of a training by module, and where the training is, when memory runs out."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules import module as hooks

from .._base import native
from .._base.errors import AsrConfigError

OTHERS = "others"
_CALL = torch.nn.Module._call_impl.__code__
_graph_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)


@dataclass(frozen=True)
class Place:
    """Where memory ran out: the phase of the step and the module, "" if unknown; ``wanted`` bytes, 0 if unknown."""

    phase: str = ""
    module: str = ""
    wanted: int = 0


@dataclass(frozen=True)
class Held:
    """Bytes of blocks by component and module."""

    blocks: Counter[tuple[str, str]]
    reserved: int
    at: Place


@dataclass(frozen=True)
class Predicted:
    """A micro-batch whose memory is predicted, and the request for the library."""

    samples: int
    seconds: float
    question: dict[str, Any]


def held_in(snapshot: dict[str, Any], names: dict[int, tuple[str, str]], at: Place) -> Held:
    """The blocks of a snapshot; ``names`` has components and names by address, ``at`` is where memory ran out."""
    modules = {
        e["addr"]: e.get("user_metadata", "") for t in snapshot["device_traces"] for e in t if e["action"] == "alloc"
    }
    blocks = Counter[tuple[str, str]]()
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                component, name = names.get(block["address"], (OTHERS, ""))
                module = name.rpartition(".")[0] if name else modules.get(block["address"], "")
                blocks[component, module] += block["size"]
    return Held(blocks, sum(segment["total_size"] for segment in snapshot["segments"]), at)


def place_of(model: torch.nn.Module, wanted: int) -> Place:
    """The phase of a training step and the innermost module of ``model`` that this thread computes."""
    names = {id(module): name for name, module in model.named_modules()}
    frame, module = sys._getframe(), ""
    while frame.f_back is not None and not module:
        frame = frame.f_back
        # Before Python 3.13 a frame keeps the locals that were looked at, and their tensors, as long as it runs.
        if frame.f_code is _CALL:
            module = names.get(id(frame.f_locals["self"]), "")
    return Place("forward" if _graph_task() == -1 else "backward", module, wanted)


def compared(held: Held, place: str, predicted: Predicted | None) -> dict[str, Any]:
    """Compares allocated and predicted memory by the library's ``memory.compare``."""
    phases = {"optimizer": "optimizer", "training": held.at.phase, "pre-flight": held.at.phase}
    rows = [{"component": c, "module": m, "bytes": size} for (c, m), size in held.blocks.items()]
    question = {"held": rows, "phase": phases.get(place, ""), "at": held.at.module, "wanted": held.at.wanted}
    if predicted is not None:
        try:
            return dict(native.call("memory.compare", {**predicted.question, **question}))
        except AsrConfigError:  # the trace does not hold this shape, or no evaluation
            pass
    return dict(native.call("memory.compare", question))


class NamedAllocations:
    """Adds the running module to what PyTorch records of each allocation, until ``close``.

    It uses torch.cuda.memory._set_memory_metadata of torch 2.15, and does nothing without it.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._names = {id(module): name for name, module in model.named_modules()}
        self._outer = threading.local()  # as PyTorch's own: backward passes have threads of their own
        self._stack = ExitStack()
        if hasattr(torch._C, "_cuda_setMemoryMetadata"):
            for handle in (
                hooks.register_module_forward_pre_hook(self._enter),
                hooks.register_module_forward_hook(self._leave, always_call=True),
            ):
                self._stack.callback(handle.remove)

    def close(self) -> None:
        """Remove the hooks."""
        self._stack.close()

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        name = None if torch.compiler.is_compiling() else self._names.get(id(module))
        if name is not None:  # other modules may run in a forked process, which must not use CUDA
            self._outer.__dict__.setdefault("names", []).append(torch._C._cuda_getMemoryMetadata())
            torch._C._cuda_setMemoryMetadata(name)

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        names = None if torch.compiler.is_compiling() else self._outer.__dict__.get("names")
        if names and id(module) in self._names:
            torch._C._cuda_setMemoryMetadata(names.pop())
