"""Weights that are stored in 16 bits and trained as they are."""

from __future__ import annotations

from typing import Any

IN_32_BIT = "call model.float() before the Trainer is made, or load it by from_pretrained(…, dtype=torch.float32)"


def half_weights(model: Any) -> str:
    """``"float16"`` or ``"bfloat16"`` where trained weights of a module are stored so; "" elsewhere."""
    parameters = getattr(model, "parameters", None)
    if isinstance(model, type) or not callable(parameters):
        return ""
    stored = {str(p.dtype).removeprefix("torch.") for p in parameters() if p.requires_grad}
    return next((name for name in ("float16", "bfloat16") if name in stored), "")


def half_words(model: Any, stored: str) -> str:
    """What becomes of training weights that are stored in ``stored``."""
    lost = {
        "float16": "squares of gradients underflow in Adam's state, and there is no copy in float32",
        "bfloat16": "they are updated without a copy in float32, which loses changes of less than 1/256 of a weight",
    }
    return f"the trained weights of {type(model).__name__} are stored in {stored}: {lost[stored]}"
