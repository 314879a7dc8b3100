"""The output folder: writable, no earlier training lost, and the model saved whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from .._base.errors import InvalidArgumentError, NotFoundError
from .._base.files import user_path, utf8
from ..training.checkpoints import checkpoints

MODEL_FILES = (
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "adapter_config.json",
    "training_args.bin",  # with any model: named adapters are in subfolders, and torch's modules have no configuration
)
"""At least one of these is where a Trainer saved a model."""


def output_folder(folder: str | os.PathLike[str], resume: bool | str | os.PathLike[str]) -> Path:
    """``folder``, made if need be. Raises before anything is spent on a training that could not be kept.

    ``NotFoundError`` where nothing can be written, ``InvalidArgumentError`` where an earlier training's checkpoints or
    model lie, unless that one is resumed: the Trainer removes old checkpoints.
    """
    path = user_path(folder, "output folder")
    utf8(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"x")
    except OSError as error:
        raise NotFoundError(
            f"cannot write to the output folder {path}: {error}", "choose a folder that can be written (--out)"
        ) from error
    there = [file.name for file in checkpoints(path)] + [name for name in MODEL_FILES if (path / name).exists()]
    if there and resume is False:
        raise InvalidArgumentError(
            f"{path} holds an earlier training ({', '.join(there[:3])})",
            "continue with it by resume=True (--resume), or choose another folder (--out)",
        )
    return path


def save_model(trainer: Any, path: Path) -> None:
    """Save model and processor into ``path``, each file atomically, through a temporary folder."""
    with tempfile.TemporaryDirectory(dir=path, prefix=".saving") as folder:
        trainer.save_model(folder)  # in every process: the weights may be spread over them
        for file in sorted(Path(folder).iterdir()):
            file.replace(path / file.name)
