"""A torch module without its wrappers (torch.compile, PEFT), and its tensors."""

from __future__ import annotations

from typing import Any


def bare(model: Any) -> Any:
    """The module inside torch.compile's and PEFT's wrappers, whichever is around the other."""
    while True:
        inside = getattr(model, "get_base_model", None)
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif callable(inside) and (found := inside()) is not model:
            model = found
        else:
            return model


def all_tensors(model: Any) -> list[tuple[str, Any]]:
    """Parameters and buffers with their names."""
    return [*model.named_parameters(), *model.named_buffers()]


def changing_tensors(model: Any) -> dict[str, Any]:
    """Buffers and trained parameters, detached."""
    buffers = {name for name, _ in model.named_buffers()}
    return {name: t.detach() for name, t in all_tensors(model) if name in buffers or t.requires_grad}
