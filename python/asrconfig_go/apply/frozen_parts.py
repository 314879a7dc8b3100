"""Parts of a model that stay as they are while the rest trains."""

from __future__ import annotations

import functools
from typing import Any

from .._base.errors import InvalidArgumentError


def freeze(part: Any) -> Any:
    """Keep ``part`` of a model as it is for the whole training, and return it: ``freeze(model.encoder)``.

    Its parameters get no gradient, and it stays in evaluation mode when the Trainer puts the model into training mode:
    no dropout, no masks, no dropped layers, and batch normalisation by its running statistics instead of those of the
    clips of a batch. So a step that ran out of memory can be computed again in smaller micro-batches, which the guard
    refuses while batch normalisation is in training mode. Call it before the plan, which then counts what is left.

    Args:
        part: A module of the model, or all of it before adapters are added.

    Raises:
        InvalidArgumentError: It is no torch module.

    Example:
        >>> from asrconfig_go.demo.digit_model import small_model
        >>> model = small_model(tokens=12, seed=0)
        >>> freeze(model.wav2vec2.encoder).training, model.train().wav2vec2.encoder.training, model.training
        (False, False, True)
    """
    if not callable(getattr(part, "requires_grad_", None)) or not callable(getattr(part, "eval", None)):
        raise InvalidArgumentError(
            f"cannot freeze a {type(part).__name__}", "pass a module of the model, such as model.encoder"
        )
    part.requires_grad_(False)
    part.eval()
    part.train = functools.partial(_stay, part)  # what model.train() calls for each of its parts; can be pickled
    return part


def _stay(part: Any, mode: bool = True) -> Any:
    """Replaces ``torch.nn.Module.train`` of a frozen part."""
    return part
