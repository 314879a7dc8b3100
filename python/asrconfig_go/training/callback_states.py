"""Saves and restores the states of a Trainer's callbacks at checkpoints, and names those without one."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer
from transformers.trainer_callback import ExportableState

from .._base.listing import listed

FILE = "asrconfig_callbacks.pt"
_DEPTH = 4  # of lists, dictionaries and objects that are looked into


class CallbackStates:
    """Of the callbacks of one Trainer. There are three kinds that a restart concerns:

    - those with ``ExportableState``, such as early stopping, which the Trainer saves: a copy is kept by checkpoint;
    - those with ``state_dict`` and ``load_state_dict``, such as averages of weights: a file in the checkpoint;
    - those that hold tensors and have neither: nothing can put them back, see ``lost``.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._exported: dict[Path | None, list[tuple[Any, Any]]] = {}
        self._initial: dict[str, Any] = {}

    def keep(self, checkpoint: Path | None) -> None:
        """Keep what there is at a checkpoint, or where this process begins (None). Raises ``OSError``."""
        exporting = [c for c in self._callbacks() if isinstance(c, ExportableState)]
        self._exported[checkpoint] = [(c, copy.deepcopy(c.state()["attributes"])) for c in exporting]
        if checkpoint is None:
            self._initial = copy.deepcopy(self._dicts())
        elif self._trainer.args.should_save and (states := self._dicts()):
            torch.save(states, checkpoint / FILE)

    def restore(self, checkpoint: Path | None) -> None:
        """Put back what ``keep`` kept in this process."""
        for callback, attributes in self._exported.get(checkpoint, []):
            _set(callback, attributes)
        self._load(self._initial if checkpoint is None else _file(checkpoint))

    def resume(self, checkpoint: Path) -> None:
        """Put back what another process saved: by itself the Trainer restores exported states on request only."""
        state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        by_name: dict[str, list[Any]] = {}
        for callback in self._callbacks():
            if isinstance(callback, ExportableState):
                by_name.setdefault(type(callback).__name__, []).append(callback)
        for name, callbacks in by_name.items():
            saved = state.get("stateful_callbacks", {}).get(name, [])
            saved = (saved if isinstance(saved, list) else [saved])[-len(callbacks) :]  # each save appends to a list
            for callback, values in zip(callbacks, saved, strict=False):
                _set(callback, values.get("attributes", {}))
        self._load(_file(checkpoint))

    def lost(self) -> list[str]:
        """In words, the callbacks whose tensors no checkpoint holds, and where they hold them."""
        own = {id(t) for t in (*self._trainer.model.parameters(), *self._trainer.model.buffers())}
        descriptions = []
        for callback in self._callbacks():
            foreign = type(callback).__module__.split(".")[0] not in ("transformers", "asrconfig_go")
            if foreign and not isinstance(callback, ExportableState) and not _saves(callback):
                names = [n for n, value in vars(callback).items() if any(id(t) not in own for t in _tensors_in(value))]
                if names:
                    descriptions.append(f"{type(callback).__name__} ({listed(names)})")
        return descriptions

    def _callbacks(self) -> list[Any]:
        return list(self._trainer.callback_handler.callbacks)

    def _dicts(self) -> dict[str, Any]:
        return {name: callback.state_dict() for name, callback in self._saving().items()}

    def _saving(self) -> dict[str, Any]:
        """The callbacks with ``state_dict``, by class and number, as a new process will have them."""
        callbacks: dict[str, Any] = {}
        for callback in self._callbacks():
            if _saves(callback) and not isinstance(callback, ExportableState):
                kind = type(callback).__qualname__
                callbacks[f"{kind} {sum(name.startswith(f'{kind} ') for name in callbacks)}"] = callback
        return callbacks

    def _load(self, states: dict[str, Any]) -> None:
        for name, callback in self._saving().items():
            if name in states:
                callback.load_state_dict(copy.deepcopy(states[name]))


def _set(callback: Any, attributes: dict[str, Any]) -> None:
    for name, value in copy.deepcopy(attributes).items():
        setattr(callback, name, value)


def _saves(callback: Any) -> bool:
    return all(callable(getattr(callback, name, None)) for name in ("state_dict", "load_state_dict"))


def _file(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / FILE
    states: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True) if path.is_file() else {}
    return states


def _tensors_in(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """The tensors of a value, its items and its attributes, but not a Trainer's, an optimizer's or a dataset's."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, torch.nn.Module):
        yield from (*value.parameters(), *value.buffers())
        return
    if not depth or isinstance(value, str | bytes | int | float | type(None) | type):
        return
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, list | tuple | set):
        items = list(value)
    else:
        items = [] if _is_library_object(value) else list(getattr(value, "__dict__", {}).values())
    for item in items:
        yield from _tensors_in(item, depth - 1)


def _is_library_object(value: Any) -> bool:
    kinds = (Trainer, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.utils.data.Dataset)
    foreign = type(value).__module__.split(".")[0] in ("transformers", "accelerate", "datasets", "tokenizers")
    return foreign or callable(value) or isinstance(value, (*kinds, torch.utils.data.DataLoader))
