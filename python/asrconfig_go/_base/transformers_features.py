"""What the installed transformers can do, read in its source: importing it takes longer than many a plan or trace."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

LAYER_DROPS = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")  # of configs, and of modules


def has_any_depth() -> bool:
    """Whether it checkpoints each n-th layer alone, ``every_n_layers``: from 5.23 on."""
    return _says("modeling_utils.py", "every_n_layers:")


def can_offload_checkpoints() -> bool:
    """Whether it keeps what checkpoints save in pinned host memory, ``offload``: from 5.23 on."""
    return _says("modeling_utils.py", " offload: bool = False")


def checkpoint_options(every_n_layers: int, offload_checkpoints: bool) -> dict[str, Any]:
    """Transformers' keywords for checkpointing that differs from every layer on the device."""
    depth = {"every_n_layers": every_n_layers} if every_n_layers > 1 else {}
    return {**depth, **({"offload": True} if offload_checkpoints else {})}


def trainer_stops_caching() -> bool:
    """Whether the Trainer writes its own ``use_cache``, False unless asked for, into the config: from 5 on."""
    return _says("training_args.py", "use_cache:")


@functools.cache
def _says(module: str, text: str) -> bool:
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        return False
    source = Path(spec.origin).with_name(module)
    return source.exists() and text in source.read_text(encoding="utf-8")
