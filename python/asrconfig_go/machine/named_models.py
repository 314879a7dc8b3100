"""Models by name: the core's catalogue, the two tiny ones, and the Hugging Face Hub."""

from __future__ import annotations

import importlib.util
from typing import Any

from .._base import native
from .._base.errors import NotFoundError
from .._base.hub_downloads import from_hub
from .._base.json_files import config_values
from ..demo.tiny_models import TINY


def config_of_name(name: str) -> dict[str, Any]:
    """``name``, ``config`` as transformers writes it, and ``class_name``, "" where the config names it.

    Raises ``NotFoundError`` for a name that neither the catalogue nor the Hub knows.
    """
    if name in TINY:
        return {"name": name, "config": TINY[name], "class_name": TINY[name]["architectures"][0]}
    try:
        return dict(native.call("model.config", {"name": name}))
    except NotFoundError as unknown:
        if name.count("/") != 1 or importlib.util.find_spec("transformers") is None:
            raise
        return {"name": name, "config": _on_hub(name, unknown.hint), "class_name": ""}


def _on_hub(name: str, known: str) -> dict[str, Any]:
    from transformers import AutoConfig

    config = from_hub("the config of", name, lambda: AutoConfig.from_pretrained(name), known)
    read: dict[str, Any] = config_values(config)
    return read
