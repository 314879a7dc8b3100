"""Probes the memory of a training, and restores model and optimizer whatever happens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .._core.modules import LAYER_DROPS
from .._core.out_of_memory import classify, clear_frames, free_memory
from .._core.random_state import rng_state, set_rng_state
from .._core.render import exact, parameter_count
from ..errors import InfeasiblePlanError, UnsupportedError

if TYPE_CHECKING:
    from torch import nn


_CHUNK = 1 << 22  # values summed at a time: a sum over integers is of a copy with 8 bytes each
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


@dataclass(frozen=True)
class OptimizerStates:
    """The states of an optimizer in bytes, 0 where nothing was allocated, and the number of trainable values.

    ``note`` is what was skipped, and why.
    """

    optimizer: str
    parameters: int
    bytes: int
    note: str = ""


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Restores random numbers, gradients, modes and buffers afterwards; gradients are set aside without a copy.

    No layer is dropped inside: a step that drops some takes less memory than one that drops none.

    Raises ``UnsupportedError`` for a model whose optimizer steps within backward, and afterwards when weights have
    changed, which cannot be restored.
    """
    named = dict(model.named_parameters())
    if any(getattr(p, "_post_accumulate_grad_hooks", None) for p in named.values()):
        raise UnsupportedError(
            "the model's weights have hooks that run within backward, as optimizers that step layer by layer put there",
            "no step can be tried without training: start from a small micro-batch",
        )
    sums = tensor_sums(named.values())
    with contextlib.ExitStack() as back:
        back.callback(set_rng_state, rng_state())
        back.enter_context(modes_kept(model))
        back.callback(_put_buffers, _buffers(model))
        back.enter_context(_no_layer_dropped(model))
        back.enter_context(gradients_aside(list(named.values())))
        yield
    changed = changed_tensors(named.values(), sums)
    if changed:
        names = [list(named)[i] for i in changed]
        raise UnsupportedError(
            f"trying a step changed {len(names)} weights, {names[0]} first",
            "load the model again, and train it without this search or pre-flight",
        )


@contextlib.contextmanager
def on_gpu(model: nn.Module, optimizer: object, *, movable: bool) -> Iterator[str]:
    """Moves a model from the CPU to a GPU, if there is one and it is ``movable``, and yields a note about it.

    Its weights on the CPU are set aside and restored. It stays on the CPU where its ``optimizer`` has states, which
    would not be moved. Raises ``InfeasiblePlanError`` where the weights alone do not fit.
    """
    weights, buffers = list(model.parameters()), _buffers(model)
    if not torch.cuda.is_available() or any(t.device.type != "cpu" for t in (*weights, *(b[2] for b in buffers))):
        yield ""
        return
    if not movable or (hasattr(optimizer, "param_groups") and _state_tensors(_unwrapped(optimizer))):
        whose = "the optimizer's states are" if movable else "the trainer trains"
        yield f"{whose} on the CPU, beside a GPU: sizes are those of host memory, and say nothing about the GPU"
        return
    device = torch.device("cuda", torch.cuda.current_device())
    before = [p.data for p in weights]
    try:
        try:
            model.to(device)
        except Exception as error:
            if classify(error)["class"] != "gpu_oom":
                raise
            raise InfeasiblePlanError(
                f"the weights of {type(model).__name__} do not fit on {device}",
                "free the GPU's memory, or choose a smaller model",
            ) from error
        yield f"the model was on the CPU: moved to {device} for the search, and back"
    finally:
        for p, data in zip(weights, before, strict=True):
            p.data = data
        for module, name, buffer, _ in buffers:
            module._buffers[name] = buffer
        free_memory()


@contextlib.contextmanager
def optimizer_states(optimizer: torch.optim.Optimizer) -> Iterator[OptimizerStates]:
    """Allocates the optimizer's states inside, by a step with gradients, learning rate and decay of zero.

    The step's temporaries are allocated once, too. Settings, gradients and the empty state are restored. An optimizer
    that has states already is left alone. One that changes weights even so is detected with the smallest weights, which
    are restored, and has no states then. Raises ``InfeasiblePlanError`` when the states do not fit.
    """
    raw = _unwrapped(optimizer)
    parameters = [p for group in raw.param_groups for p in group["params"] if p.requires_grad]
    name, count = type(raw).__name__, sum(p.numel() for p in parameters)
    if _state_tensors(raw):
        yield OptimizerStates(name, count, _state_bytes(raw), "its states were there already")
        return
    with contextlib.ExitStack() as back:
        back.enter_context(_as_it_was(raw))
        back.enter_context(gradients_aside(parameters))
        note = _allocate(raw, parameters)
        yield OptimizerStates(name, count, _state_bytes(raw), note)


def _unwrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def _state_tensors(raw: torch.optim.Optimizer) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors of the state, with their weights."""
    return [(p, v) for p, state in raw.state.items() for v in state.values() if isinstance(v, torch.Tensor)]


def _state_bytes(raw: torch.optim.Optimizer) -> int:
    return sum(v.numel() * v.element_size() for _, v in _state_tensors(raw))


@contextlib.contextmanager
def _as_it_was(raw: torch.optim.Optimizer) -> Iterator[None]:
    """Empties the state afterwards, and restores attributes and the groups in place, as schedulers refer to them."""
    attributes, groups = dict(vars(raw)), [(group, dict(group)) for group in raw.param_groups]
    try:
        yield
    finally:
        raw.state.clear()
        vars(raw).clear()
        vars(raw).update(attributes)
        for group, before in groups:
            group.clear()
            group.update(before)


@contextlib.contextmanager
def gradients_aside(parameters: list[torch.Tensor]) -> Iterator[None]:
    """Clears the gradients inside, and restores the same tensors afterwards."""
    before = [p.grad for p in parameters]
    try:
        for p in parameters:
            p.grad = None
        yield
    finally:
        for p, grad in zip(parameters, before, strict=True):
            p.grad = grad


def _allocate(raw: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> str:
    """Allocate the states; returns the reason where that is impossible."""
    for group in raw.param_groups:
        group.update({name: 0.0 for name in ("lr", "weight_decay") if name in group})
    if hasattr(raw, "train"):  # optimizers without a schedule refuse to step otherwise
        raw.train()
    try:
        if not _stays(raw, _smallest(raw)):
            raw.state.clear()
            return "it changes weights even without gradients, so its states were not tried"
        sums = tensor_sums(parameters)
        _step(raw, parameters)
    except Exception as error:
        if classify(error)["class"] != "gpu_oom":
            raise
        infeasible = _too_large(raw, parameters)
        clear_frames(error)
        raise infeasible from error
    if changed_tensors(parameters, sums):
        raise UnsupportedError(
            f"{type(raw).__name__} changed weights in a step without gradients and learning rate",
            "load the model again, and turn the pre-flight off",
        )
    return ""


def _smallest(raw: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The smallest weight of each group and kind that an optimizer may distinguish."""
    kinds: dict[Any, Any] = {}
    for place, group in enumerate(raw.param_groups):
        for p in sorted((p for p in group["params"] if p.requires_grad), key=lambda p: int(p.numel())):
            kinds.setdefault((place, p.dim(), p.dtype, p.device), p)
    return list(kinds.values())


def _stays(raw: torch.optim.Optimizer, few: list[torch.Tensor]) -> bool:
    """Whether a step of zeros leaves these weights unchanged; if not, they are restored."""
    copies, sums = [p.detach().clone() for p in few], tensor_sums(few)
    _step(raw, few)
    if not changed_tensors(few, sums):
        return True
    with torch.no_grad():
        for p, value in zip(few, copies, strict=True):
            p.copy_(value)
    return False


def _step(raw: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> None:
    """One step of the class itself with zero gradients, without the wrappers of schedulers and accelerate."""
    hooks = {name: vars(raw)[name] for name in _HOOKS if name in vars(raw)}
    try:
        vars(raw).update({name: type(installed)() for name, installed in hooks.items()})
        for p in parameters:
            p.grad = torch.zeros_like(p)
        type(raw).step(raw)
    finally:
        vars(raw).update(hooks)
        for p in parameters:
            p.grad = None


def _too_large(raw: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> InfeasiblePlanError:
    """The error with the size of all states, extrapolated from those that were allocated."""
    made = {p for p, _ in _state_tensors(raw)}
    count = sum(p.numel() for p in parameters)
    values = sum(p.numel() for p in made)
    size = f"about {exact(_state_bytes(raw) * count / values)} of " if values else ""
    return InfeasiblePlanError(
        f"{type(raw).__name__} needs {size}states for {parameter_count(count)} trainable parameters, and the GPU's "
        "memory runs out while they are allocated",
        "use an 8-bit optimizer (optim='adamw_bnb_8bit') or Adafactor, freeze the feature encoder, or train with LoRA",
    )


def tensor_sums(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """A checksum of each tensor that changes with any one of its bits; a tensor, to avoid a synchronization."""
    return [_sum(t.detach()) for t in tensors]


def _sum(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    bits = tensor.reshape(-1).view(_BITS[tensor.element_size()])
    return sum((part.sum(dtype=torch.int64) for part in bits.split(_CHUNK)), torch.zeros_like(bits[:0].sum()))


def changed_tensors(tensors: Iterable[torch.Tensor], sums: list[torch.Tensor]) -> list[int]:
    """The indices of the tensors that have changed."""
    pairs = zip(tensor_sums(tensors), sums, strict=True)
    return [i for i, (now, then) in enumerate(pairs) if not torch.equal(now, then)]


def _buffers(model: nn.Module) -> list[tuple[nn.Module, str, torch.Tensor, torch.Tensor]]:
    """Running statistics and the like, which a forward changes in place or replaces."""
    return [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]


def _put_buffers(buffers: list[tuple[nn.Module, str, torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for module, name, buffer, value in buffers:
            module._buffers[name] = buffer
            buffer.copy_(value)


@contextlib.contextmanager
def _no_layer_dropped(model: nn.Module) -> Iterator[None]:
    owners = {id(owner): owner for m in model.modules() for owner in (m, getattr(m, "config", None))}.values()
    rates = [(o, name, vars(o).get(name)) for o in owners if hasattr(o, "__dict__") for name in LAYER_DROPS]
    with contextlib.ExitStack() as back:
        for owner, name, rate in rates:
            if isinstance(rate, float) and rate > 0:
                back.callback(setattr, owner, name, rate)
                setattr(owner, name, 0.0)
        yield


@contextlib.contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Restores which modules are in training mode."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
