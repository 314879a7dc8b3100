"""What tells the batches of a ``batch_fn`` from those of another, as far as a trace depends on them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._base.random_state import cpu_generators_kept, seed_cpu
from ._mode import SMALL
from .made_up_batches import BatchFunction, Point


def batch_identity(batch_fn: BatchFunction, points: Sequence[Point]) -> str:
    """A text that changes with the batches at ``points``: their shapes, and the values that the recorder keeps.

    Random numbers are drawn from the same seed each time, and the generators put back.
    """
    digest = hashlib.sha256()
    with cpu_generators_kept():
        seed_cpu(0)
        for point in points:
            leaves, structure = pytree.tree_flatten(batch_fn(*point))
            digest.update(repr((point, structure, [_leaf(each) for each in leaves])).encode())
    return digest.hexdigest()


def _leaf(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    shape = (tuple(value.shape), tuple(value.stride()), str(value.dtype))
    if (value.is_floating_point() or value.is_complex()) and value.numel() > SMALL:
        return shape
    return shape, hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
