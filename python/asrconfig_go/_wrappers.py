"""The model inside what others wrap around it."""

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
