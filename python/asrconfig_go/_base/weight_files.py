"""The files in which transformers' Trainer and PEFT save a model's weights."""

from __future__ import annotations

import json
from pathlib import Path

INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
"""Of weights in several files, called shards."""
_ADAPTER_CONFIG = "adapter_config.json"
_ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
# In the order in which Trainer._load_from_checkpoint looks for them; the first is FSDP's full state dict.
_MODEL_WEIGHTS = ("pytorch_model_fsdp.bin", "model.safetensors", "pytorch_model.bin", *INDICES)


def weight_files(folder: Path) -> list[Path]:
    """The files from which the Trainer reads the weights in ``folder``; empty where it has none.

    PEFT saves the adapter named "default" in ``folder`` itself, any other in a subfolder of its name. Shards that an
    index names are among the files even where they are missing, and so are the weights of an adapter whose
    configuration is there: the Trainer would resume without them, with that adapter's initial weights.
    """
    file = next((folder / name for name in _MODEL_WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        subfolders = sorted(path for path in folder.glob("*") if path.is_dir())
        return [weights for path in (folder, *subfolders) for weights in _adapter_weights(path)]
    return [file, *(folder / name for name in shards(file))] if file.name in INDICES else [file]


def shards(index: Path) -> list[str]:
    """The names of the files that ``index`` lists; empty where it is malformed."""
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return sorted({Path(name).name for name in weight_map.values()})  # they lie beside the index
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []


def _adapter_weights(folder: Path) -> list[Path]:
    files = [folder / name for name in _ADAPTER_WEIGHTS]
    saved = [file for file in files if file.is_file()]
    return saved[:1] or (files[:1] if (folder / _ADAPTER_CONFIG).is_file() else [])
