"""Checks of the output folder: writable, no earlier training lost, and a full disk reported as such."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .._base.errors import InvalidArgumentError, NotFoundError
from .._base.files import user_path, utf8
from ..training.checkpoints import checkpoints, incomplete, newest_complete
from ..view.units import exact

MODEL_FILES = (
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "adapter_config.json",
    "training_args.bin",  # with any model: named adapters are in subfolders, and torch's modules have no configuration
)
"""At least one of these is where a Trainer saved a model."""
_FULL = ("no space left", "os error 28", "disk quota", "file write failed", "pytorchstreamwriter", "unexpected pos")
_LITTLE = 256 << 20  # bytes free: as good as none, where an error tells of no cause
_COPIES = 4  # a checkpoint holds weights and two moments of AdamW; the model beside it


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


def check_room(path: Path, model: Any) -> None:
    """Raise ``NotFoundError`` when the disk has no room for one checkpoint and the model."""
    needed = _COPIES * sum(p.numel() * p.element_size() for p in model.parameters())
    free = shutil.disk_usage(path).free
    if free < needed:
        raise NotFoundError(
            f"{path} has {exact(free)} free, and a checkpoint with the model takes {exact(needed)}",
            "free some space, or choose a folder on another disk (--out)",
        )


@contextlib.contextmanager
def full_disk_explained(path: Path, step: Callable[[], int]) -> Iterator[None]:
    """Turn the error of a full disk into a ``NotFoundError`` with the last checkpoint. ``step`` is the current one."""
    try:
        yield
    except Exception as error:
        if not _is_full(error, path):
            raise
        free = exact(shutil.disk_usage(path).free)
        partial = path / f"checkpoint-{step()}"
        if partial.is_dir() and incomplete(partial):
            shutil.rmtree(partial, ignore_errors=True)  # it takes room, and nothing can continue from it
        raise NotFoundError(
            f"{path} is full: it could not be written at step {step()} ({free} free)",
            f"free space on that disk, then continue with resume=True (--resume); {saved_so_far(path)}",
        ) from error


def _is_full(error: BaseException | None, path: Path) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if any(word in str(error).lower() for word in _FULL[:3]):
            return True
        if any(word in str(error).lower() for word in _FULL) and shutil.disk_usage(path).free < _LITTLE:
            return True
        error = error.__cause__ or error.__context__
    return False


def saved_so_far(path: Path) -> str:
    """In words, which checkpoint a resumed training would continue from."""
    newest = newest_complete(path)
    return f"{newest} is complete, and training continues from there" if newest else "no checkpoint was saved yet"


def save_model(trainer: Any, path: Path) -> None:
    """Save model and processor into ``path``, each file atomically, through a temporary folder."""
    with tempfile.TemporaryDirectory(dir=path, prefix=".saving") as folder:
        trainer.save_model(folder)  # in every process: the weights may be spread over them
        for file in sorted(Path(folder).iterdir()):
            file.replace(path / file.name)
