"""The state of a Trainer: all that a training may change beside the weights of its model."""

from __future__ import annotations

import collections
import contextlib
import functools
import random
import re
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from library_memory import Item
from torch import nn

_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
_OPTIMIZER_ATTRIBUTES = frozenset(vars(torch.optim.SGD([nn.Parameter(torch.zeros(1))])))
_OWN = {
    "library_trainers",
    "library_steps",
    "library_optimizers",
    "library_adapters",
    "library_trl",
    "library_sentences",
    "trl",
    "sentence_transformers",
    "peft",
}
_SKIPPED = {
    "args", "accelerator", "train_dataset", "eval_dataset", "processing_class", "callback_handler", "state", "control",
    "optimizer", "lr_scheduler", "model_card_data", "tokenizer", "_tokenizer", "config", "generation_config",
    "hp_space", "_asrconfig_session", "_memory_tracker", "_total_loss_scalar", "_forward_signature",
    "_signature_columns", "deepspeed",
}  # fmt: skip
_TIMES = re.compile(r"time|_per_second|start_")
_STATE = ("global_step", "epoch", "max_steps", "num_input_tokens_seen", "total_flos")


class Walk:
    """Everything in the state of a Trainer that a training may change: tensors, numbers, texts and generators."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.visited: dict[int, Any] = {}

    def trainer(self, trainer: Any) -> dict[str, Item]:
        self._generators()
        for number, p in enumerate(trained_parameters(trainer, getattr(trainer, "optimizer", None))):
            self.visited[id(p)] = p  # compared as weights
            if p.grad is not None:
                self._put(f"grad.{number}", p.grad.detach().clone(), "grad")
        self._mapping({name: getattr(trainer.state, name, None) for name in _STATE}, "state", "state")
        for callback in trainer.callback_handler.callbacks:
            self.value(callback, type(callback).__name__)
        self.value(trainer.model, "model")
        self._optimizer(getattr(trainer, "optimizer", None))
        scheduler = getattr(trainer, "lr_scheduler", None)
        self._mapping({} if scheduler is None else scheduler.state_dict(), "scheduler", "scheduler")
        self.visited[id(trainer)] = trainer
        self._attributes(vars(trainer), "")
        return {name: item for name, item in self.items.items() if not _TIMES.search(name)}

    def value(self, value: Any, path: str, group: str = "") -> None:
        if value is None or isinstance(value, bool | int | float | str):
            self._put(path, value, group or path)
            return
        if id(value) in self.visited or path.count(".") > 20:
            return
        self.visited[id(value)] = value
        if isinstance(value, torch.Tensor):
            self._tensor(value, path, group)
        elif isinstance(value, np.ndarray | np.number):
            self._put(path, torch.as_tensor(np.array(value)), group or path)
        elif isinstance(value, torch.Generator):
            self._put(path, value.get_state(), path)
        elif isinstance(value, np.random.Generator):
            self._put(path, repr(value.bit_generator.state), path)
        elif isinstance(value, np.random.RandomState):
            self._put(path, repr(value.get_state()), path)
        elif isinstance(value, random.Random):
            self._put(path, repr(value.getstate()), path)
        elif isinstance(value, nn.Module):
            self._module(value, path)
        elif isinstance(value, torch.optim.Optimizer):
            self._optimizer(value, path)
        elif isinstance(value, Mapping):
            self._mapping(value, path, group or path)
        elif isinstance(value, list | tuple | collections.deque):
            for i, part in enumerate(value):
                self.value(part, f"{path}.{i}", group or path)
        elif isinstance(value, functools.partial):
            for part in (value.func, list(value.args), value.keywords):
                self.value(part, path)
        elif isinstance(value, types.GeneratorType):
            self.value(next(value, None), f"{path}.next")
        elif hasattr(value, "_num_yielded"):
            self._put(f"{path}.batches", value._num_yielded, path)
        elif type(value).__module__.split(".")[0] in _OWN and hasattr(value, "__dict__"):
            self._attributes(vars(value), path)
        elif isinstance(value, types.FunctionType) and value.__module__ == __name__:
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                with contextlib.suppress(ValueError):
                    self.value(cell.cell_contents, f"{path}.{name}")
        elif isinstance(value, types.MethodType):
            self.value(value.__self__, path)

    def _put(self, path: str, value: Any, group: str) -> None:
        self.items[path] = Item(value, group)

    def _tensor(self, tensor: Any, path: str, group: str) -> None:
        if tensor.is_meta:
            return
        plain = tensor.detach()
        with contextlib.suppress(Exception):
            plain = plain.dequantize() if type(plain) not in (torch.Tensor, nn.Parameter) else plain
        self._put(path, plain.clone(), group or path)
        if isinstance(tensor, nn.Parameter) and tensor.grad is not None:
            self._put(f"{path}.grad", tensor.grad.detach().clone(), f"{group}.grad")

    def _attributes(self, values: Mapping[str, Any], path: str) -> None:
        for name in sorted(values):
            if name not in _SKIPPED:
                self.value(values[name], f"{path}.{name}" if path else name)

    def _mapping(self, values: Mapping[Any, Any], path: str, group: str) -> None:
        for i, (key, value) in enumerate(values.items()):
            self.value(value, f"{path}.{key if isinstance(key, str | int) else i}", group)

    def _module(self, module: Any, path: str) -> None:
        root = path.split(".")[0]
        for group, tensors in ((f"{root}.p", module._parameters), (f"{root}.b", module._buffers)):
            for name, tensor in tensors.items():
                if tensor is not None:
                    self.value(tensor, f"{path}.{name}", group)
        for name, part in module._modules.items():
            self.value(part, f"{path}.{name}")
        self._attributes({k: v for k, v in vars(module).items() if k not in _MODULE_ATTRIBUTES}, path)

    def _optimizer(self, optimizer: Any, path: str = "optimizer") -> None:
        if type(optimizer).__name__ == "AcceleratedOptimizer":
            optimizer = optimizer.optimizer
        if optimizer is None:
            return
        self.visited[id(optimizer)] = optimizer
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for number, p in enumerate(parameters):
            state = optimizer.state.get(p, {})
            for name, value in state.items() if isinstance(state, Mapping) else [("", state)]:
                self.value(value, f"{path}.state.{number}.{name}", f"{path}.{name}")
        for i, group in enumerate(optimizer.param_groups):
            settings = {name: value for name, value in group.items() if name != "params"}
            self._mapping(settings, f"{path}.groups.{i}", f"{path}.groups")
        own = {name: value for name, value in vars(optimizer).items() if name not in _OPTIMIZER_ATTRIBUTES}
        self._attributes(own, path)
        if isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
            self._optimizer(optimizer.optimizer, f"{path}.inner")

    def _generators(self) -> None:
        self._put("generators.torch", torch.get_rng_state(), "generators")
        self._put("generators.numpy", repr(np.random.get_state()), "generators")
        self._put("generators.python", repr(random.getstate()), "generators")


def trained_parameters(trainer: Any, optimizer: Any) -> list[Any]:
    """Those of the model that require a gradient, and all of the optimizer."""
    parameters = {id(p): p for p in trainer.model.parameters() if p.requires_grad}
    parameters |= {id(p): p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]}
    return list(parameters.values())


def weights_of(trainer: Any, optimizer: Any) -> torch.Tensor:
    """The trained parameters in a row."""
    return torch.cat([p.detach().flatten().double() for p in trained_parameters(trainer, optimizer)])
