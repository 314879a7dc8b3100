"""What a training holds on its GPU when memory runs out, by module, and as a memory snapshot."""

from __future__ import annotations

import functools
import json
import pickle
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as hooks

from .._core import native
from .._core.files import write_whole
from .._core.out_of_memory import is_gpu_oom
from .._core.output import logger
from .._core.render import plural
from .._core.settings import OomSnapshot
from ..errors import AsrConfigError
from ..predict.snapshot import PROTOCOL, SUFFIX, modules_around
from .training_report import PREFIX

if TYPE_CHECKING:
    from transformers import Trainer

OTHERS = "others"
_CALL = torch.nn.Module._call_impl.__code__
_graph_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
MOST_FILES = 3
MOST_BYTES = 50 * 2**20  # of a file
HISTORY_EVENTS = 50_000  # that PyTorch keeps; more than a step of a large model
_MAX_ERRORS = 100  # looked at, with those that others catch, such as cuDNN's search for an algorithm
_observers: weakref.WeakSet[OomSnapshots] = weakref.WeakSet()


@dataclass(frozen=True)
class Held:
    """Bytes of blocks by component and module, and the snapshot that shows them.

    Memory ran out in a ``phase`` of the step and a ``module``, "" if unknown; ``wanted`` bytes, 0 if unknown.
    """

    snapshot: dict[str, Any]
    blocks: Counter[tuple[str, str]]
    phase: str = ""
    module: str = ""
    wanted: int = 0

    @property
    def reserved(self) -> int:
        """What PyTorch's allocator had."""
        return sum(segment["total_size"] for segment in self.snapshot["segments"])


def held_in(snapshot: dict[str, Any], names: dict[int, tuple[str, str]]) -> Counter[tuple[str, str]]:
    """The blocks of a snapshot; ``names`` has components and names by address."""
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
    return blocks


def place_of(model: torch.nn.Module) -> tuple[str, str]:
    """The phase of a training step and the innermost module of ``model`` that this thread computes."""
    names = {id(module): name for name, module in model.named_modules()}
    frame, module = sys._getframe(), ""
    while frame.f_back is not None and not module:
        frame = frame.f_back
        # Before Python 3.13 a frame keeps the locals that were looked at, and their tensors, as long as it runs.
        if frame.f_code is _CALL:
            module = names.get(id(frame.f_locals["self"]), "")
    return "forward" if _graph_task() == -1 else "backward", module


def compared(held: Held, place: str, prediction: dict[str, Any]) -> dict[str, Any]:
    """Compares allocated and predicted memory by the library's ``memory.compare``."""
    phases = {"optimizer": "optimizer", "training": held.phase, "pre-flight": held.phase}
    rows = [{"component": c, "module": m, "bytes": size} for (c, m), size in held.blocks.items()]
    question = {"held": rows, "phase": phases.get(place, ""), "at": held.module, "wanted": held.wanted}
    try:
        return dict(native.call("memory.compare", {**prediction, **question}))
    except AsrConfigError:  # the trace does not hold this shape, or no evaluation
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

    def _enter(self, module: torch.nn.Module, args: object) -> None:
        name = None if torch.compiler.is_compiling() else self._names.get(id(module))
        if name is not None:  # other modules may run in a forked process, which must not use CUDA
            self._outer.__dict__.setdefault("names", []).append(torch._C._cuda_getMemoryMetadata())
            torch._C._cuda_setMemoryMetadata(name)

    def _leave(self, module: torch.nn.Module, args: object, output: object) -> None:
        names = None if torch.compiler.is_compiling() else self._outer.__dict__.get("names")
        if names and id(module) in self._names:
            torch._C._cuda_setMemoryMetadata(names.pop())


class OomSnapshots:
    """Writes ``_asrconfig-oom-<place>.pickle`` to ``output_dir``: the first error of each place, three at most.

    Beside it, as .json, what was held by module and what is predicted: ``predict`` returns the seconds of the
    micro-batch in a place, and the request for the library, None where nothing is predicted.

    Until memory runs out nothing is done, except in the mode ``"history"``, in which PyTorch records each allocation
    with its Python stack and its module. The underscore keeps ``Trainer.push_to_hub`` from uploading the files. Errors
    here are logged, and never raised: there is an error to recover from already.
    """

    def __init__(
        self,
        trainer: Trainer,
        mode: OomSnapshot,
        predict: Callable[[str], tuple[float, dict[str, Any]] | None] = lambda _: None,
    ) -> None:
        self._trainer, self._mode, self._predict = trainer, mode, predict
        self._files: dict[str, str] = {}
        self._errors = 0
        self._records: NamedAllocations | None = None
        self._newest: Held | None = None

    def begin(self) -> None:
        """Observe out-of-memory errors from here on, before anything is freed."""
        try:
            _observers.add(self)
            _attach()
            if self._mode == "history" and not torch._C._cuda_isHistoryEnabled():
                torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=HISTORY_EVENTS)
                self._records = NamedAllocations(self._trainer.model)
        except Exception as error:  # private to torch: another version may have other names
            logger.warning("memory snapshots of out-of-memory errors are limited here: %r", error)

    def end(self) -> None:
        """Stop observing, and stop PyTorch's recording if it was started here."""
        _observers.discard(self)
        self._newest = None
        if self._records:
            self._records.close()
            self._records = None
            torch.cuda.memory._record_memory_history(enabled=None)

    def ran_out(self, wanted: int) -> None:
        """An allocation of ``wanted`` bytes is failing now."""
        self._newest = None  # an earlier error was caught
        if self._errors < _MAX_ERRORS and len(self._files) < MOST_FILES:
            self._errors += 1
            self._newest = self._held(*place_of(self._trainer.model), wanted)

    def take(self, place: str, error: BaseException) -> str:
        """Write the snapshot of ``error``, before its frames are cleared; returns the file's path, "" without one."""
        state_then, self._newest = self._newest, None
        if not torch.cuda.is_initialized() or not is_gpu_oom(error, maybe=True):
            return ""
        if place in self._files or len(self._files) >= MOST_FILES:
            return ""
        try:
            # Errors of cuBLAS and cuDNN do not pass through the allocator: their state is taken now.
            exact = state_then if isinstance(error, torch.cuda.OutOfMemoryError) else None
            held = exact or self._held()
            self._files[place] = self._write(place, SUFFIX, bounded(held.snapshot))
            self._write(place, ".json", self._compared(place, held))
        except Exception as failed:
            self._files.setdefault(place, "")
            logger.warning("cannot write a memory snapshot of the out-of-memory error: %s", failed)
        return self._files[place]

    def _held(self, phase: str = "", module: str = "", wanted: int = 0) -> Held:
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
        names = dict(_named_addresses(self._trainer))
        _name_blocks(snapshot, names)
        return Held(snapshot, held_in(snapshot, names), phase, module, wanted)

    def _compared(self, place: str, held: Held) -> bytes:
        seconds, prediction = self._predict(place) or (None, {})
        record = {
            "place": place, "step": self._trainer.state.global_step, "rank": self._trainer.args.process_index,
            "at_unix_s": time.time(), "samples": prediction.get("batch"), "seconds": seconds, "phase": held.phase,
            "module": held.module, "reserved": held.reserved, **compared(held, place, prediction),
        }  # fmt: skip
        return json.dumps(record).encode()

    def _write(self, place: str, suffix: str, data: bytes) -> str:
        rank = self._trainer.args.process_index
        folder = Path(self._trainer.args.output_dir)
        path = folder / f"{PREFIX}{place}{f'-rank{rank}' if rank else ''}{suffix}"
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, data, durable=False)
        return str(path)


def bounded(snapshot: dict[str, Any], limit: int = MOST_BYTES) -> bytes:
    """The snapshot as a pickle of at most ``limit`` bytes, without older events where it would be larger."""
    while len(data := pickle.dumps(snapshot, protocol=PROTOCOL)) > limit:
        traces = snapshot["device_traces"]
        if not any(traces):
            raise ValueError(f"its {plural(len(snapshot['segments']), 'segment')} take more than {limit} bytes")
        snapshot = {**snapshot, "device_traces": [trace[len(trace) // 2 + 1 :] for trace in traces]}
    return data


def _named_addresses(trainer: Trainer) -> Iterator[tuple[int, tuple[str, str]]]:
    """The addresses of a training's tensors on GPUs, with their component and name."""
    state = getattr(getattr(trainer, "optimizer", None), "state", None) or {}
    for name, parameter in trainer.model.named_parameters():
        yield from _at(parameter, "parameters", name)
        if parameter.grad is not None:
            yield from _at(parameter.grad, "gradients", name)
        for value in (state.get(parameter) or {}).values():
            yield from _at(value, "optimizer", name)
    for name, buffer in trainer.model.named_buffers():
        yield from _at(buffer, "buffers", name)


def _at(value: object, component: str, name: str) -> Iterator[tuple[int, tuple[str, str]]]:
    if isinstance(value, torch.Tensor) and value.is_cuda:
        yield value.untyped_storage().data_ptr(), (component, name)


def _name_blocks(snapshot: dict[str, Any], names: dict[int, tuple[str, str]]) -> None:
    """Put the component of a block and its modules before the stack that allocated it."""
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block["address"] in names:
                modules = modules_around(names[block["address"]][1].rpartition(".")[0])
                labels = [names[block["address"]], *(("module", module) for module in modules)]
                frames = [{"filename": kind, "line": 0, "name": name} for kind, name in labels]
                block["frames"] = [*frames, *block["frames"]]


@functools.cache  # PyTorch never detaches an observer
def _attach() -> None:
    torch._C._cuda_attach_out_of_memory_observer(_memory_ran_out)


def _memory_ran_out(device: int, requested: int, total: int, free: int) -> None:
    for snapshots in list(_observers):
        try:
            snapshots.ran_out(requested)
        except Exception as error:  # which would replace the out-of-memory error
            logger.warning("cannot take a memory snapshot of the out-of-memory error: %r", error)
