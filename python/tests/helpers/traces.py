"""What a trial must leave as it was, and a model that changes everything that it can."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import torch

from tiny_training import OUT_OF_MEMORY


def snapshot(model: Any) -> dict[str, Any]:
    """Everything that a trial must leave as it was, gradients by identity too."""
    numpy_state: Any = np.random.get_state()
    grads = {name: p.grad for name, p in model.named_parameters()}
    return {
        "weights": copy.deepcopy(model.state_dict()),
        "gradients": {name: (id(g), None if g is None else g.clone()) for name, g in grads.items()},
        "modes": [module.training for module in model.modules()],
        "trainable": [p.requires_grad for p in model.parameters()],
        "random": (random.getstate(), numpy_state[1].tolist(), torch.get_rng_state()),
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, torch.Tensor):
        return bool(a.dtype == b.dtype and torch.equal(a, b))
    return bool(a == b)


def used(model: Any) -> Any:
    """With gradients of an interrupted step, some parts in another mode, and one weight frozen."""
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    model.train()
    next(iter(model.children())).eval()
    next(model.parameters()).requires_grad_(False)
    return model


class Noisy(torch.nn.Module):  # type: ignore[misc]
    """Draws from every generator, and changes buffers in place and by putting others there."""

    count: Any

    def __init__(self, limit: int = 10**9, error: Any = None) -> None:
        super().__init__()
        self.inner, self.norm = torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(5)
        self.register_buffer("count", torch.zeros(()))
        self.limit, self.tried = limit, list[int]()
        self.error = error or torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

    def forward(self, x: Any) -> dict[str, Any]:
        self.tried.append(len(x))
        random.random(), np.random.rand(), torch.rand(1)
        self.count = self.count + 1
        out = self.norm(self.inner(x))
        if len(x) > self.limit:
            raise self.error
        return {"loss": out.square().sum()}


def batches(size: int) -> dict[str, Any]:
    return {"x": torch.randn(size, 5, 4)}
