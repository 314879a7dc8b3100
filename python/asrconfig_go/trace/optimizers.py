"""Optimizers by the Trainer's names, as its ``create_optimizer`` makes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ..errors import InvalidArgumentError

_BLOCK = 256  # elements that share one scale in bitsandbytes' 8-bit states
_SMALLEST = 4096  # tensors below this size keep float32 states there
# transformers.Trainer.get_decay_parameter_names, 5.x
_NO_DECAY = re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)")


class EightBitAdam(torch.optim.Optimizer):  # type: ignore[misc]
    """The memory of bitsandbytes' 8-bit Adam, which runs on GPUs only: two bytes an element and a scale per block.

    Source: bitsandbytes/optim/optimizer.py, Optimizer2State.init_state with block-wise quantization.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Callable[[], float] | None = None) -> None:
        """Allocate the states at the first call; the update itself works in place."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and p not in self.state:
                    self.state[p] = _eight_bit_state(p)


def _eight_bit_state(p: torch.Tensor) -> dict[str, torch.Tensor]:
    if p.numel() < _SMALLEST:
        return {name: torch.zeros_like(p, dtype=torch.float32) for name in ("state1", "state2")}
    states = {name: torch.zeros_like(p, dtype=torch.uint8) for name in ("state1", "state2")}
    return states | {name: torch.zeros(-(-p.numel() // _BLOCK)) for name in ("absmax1", "absmax2")}


def _adafactor(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    from transformers.optimization import Adafactor

    made: torch.optim.Optimizer = Adafactor(groups, lr=1e-3, scale_parameter=False, relative_step=False)
    return made


_BUILDERS: dict[str, Callable[[list[dict[str, Any]]], torch.optim.Optimizer]] = {
    "adamw_torch": lambda groups: torch.optim.AdamW(groups, lr=1e-3, foreach=True),
    "adamw_torch_fused": lambda groups: torch.optim.AdamW(groups, lr=1e-3, fused=True),
    "adafactor": _adafactor,
    "adamw_8bit": EightBitAdam,
    "adamw_bnb_8bit": EightBitAdam,
    "sgd": lambda groups: torch.optim.SGD(groups, lr=1e-3, foreach=True),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=1e-3, foreach=True),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=1e-3, foreach=True),
}


def build(
    optimizer: str | Callable[[list[dict[str, Any]]], torch.optim.Optimizer], model: nn.Module
) -> torch.optim.Optimizer:
    """The optimizer over the model's trainable parameters, in the Trainer's two groups.

    ``optimizer`` is one of the Trainer's names, or a function of the parameter groups.
    """
    builder = optimizer if callable(optimizer) else _BUILDERS.get(optimizer)
    if builder is None:
        names = ", ".join(_BUILDERS)
        raise InvalidArgumentError(
            f"the memory of optimizer {optimizer!r} is not known",
            f"choose one of {names}, or pass a function: parameter groups -> optimizer",
        )
    return builder(_groups(model))


def _groups(model: nn.Module) -> list[dict[str, Any]]:
    """Weights, which decay by the optimizer's default, as in plans, and norms and biases, which do not decay."""
    norms = {id(p) for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters(recurse=False)}
    split: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for name, p in model.named_parameters():
        if p.requires_grad:
            split[id(p) in norms or _NO_DECAY.search(name.lower()) is not None].append(p)
    if not any(split):
        raise InvalidArgumentError(
            "the model has no trainable parameters", "set requires_grad on the parameters to train"
        )
    weights, norms_and_biases = split
    return [{"params": weights}, {"params": norms_and_biases, "weight_decay": 0.0}]
