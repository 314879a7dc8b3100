"""A torch module without its wrappers (torch.compile, PEFT), its tensors and its checkpointed layers."""

from __future__ import annotations

from typing import Any


def bare(model: Any) -> Any:
    """The module inside torch.compile's and PEFT's wrappers, whichever is around the other."""
    while True:
        inside = getattr(model, "get_base_model", None)
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif callable(inside) and (base := inside()) is not model:
            model = base
        else:
            return model


def lora_rank(model: Any) -> int:
    """The largest rank of a model's LoRA adapters; 0 without any."""
    adapters = getattr(model, "peft_config", None) or {}
    return max((int(getattr(adapter, "r", 0)) for adapter in adapters.values()), default=0)


def checkpointing_depth(model: Any) -> int | None:
    """Of how many layers, as transformers counts them, one is computed again; None where none is."""
    layers = [m.gradient_checkpointing for m in model.modules() if _is_layer(m)]
    if not any(layers):
        return None
    return next((i for i, on in enumerate(layers) if i and on), max(1, len(layers)))


def offloads_checkpoints(model: Any) -> bool:
    """Whether what checkpoints save is kept in host memory, by the function that transformers wraps them in then."""
    functions = (getattr(m, "_gradient_checkpointing_func", None) for m in model.modules() if _checkpoints(m))
    return any(getattr(getattr(f, "func", f), "__name__", "") == "checkpoint_func" for f in functions)


def _checkpoints(module: Any) -> bool:
    return getattr(module, "gradient_checkpointing", False) is True


def _is_layer(module: Any) -> bool:
    return any(kind.__name__ == "GradientCheckpointingLayer" for kind in type(module).__mro__)


def all_tensors(model: Any) -> list[tuple[str, Any]]:
    """Parameters and buffers with their names."""
    return [*model.named_parameters(), *model.named_buffers()]


def changing_tensors(model: Any) -> dict[str, Any]:
    """Buffers and trained parameters, detached."""
    buffers = {name for name, _ in model.named_buffers()}
    return {name: t.detach() for name, t in all_tensors(model) if name in buffers or t.requires_grad}
