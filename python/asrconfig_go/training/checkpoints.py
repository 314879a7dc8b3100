"""Finds the complete checkpoints of a Trainer, after processes that were killed while saving."""

from __future__ import annotations

import json
import logging
import re
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from .._base.checksums import damaged
from .._base.listing import listed
from .._base.weight_files import INDICES, shards, weight_files

logger: logging.Logger = logging.getLogger("asrconfig_go")

_NAME = re.compile(r"checkpoint-(\d+)")
_STATE = "trainer_state.json"  # written last
_SHARDED = ("global_step*", "*fsdp*")  # what DeepSpeed and FSDP write in place of weights and optimizer
_ZIPPED = re.compile(r".*\.(pt|pth)|(pytorch_model.*|adapter_model|optimizer|training_args)\.bin")


def step_of(checkpoint: Path) -> int:
    """The optimizer steps that were made when it was saved."""
    match = _NAME.fullmatch(checkpoint.name)
    return int(match[1]) if match else int(_json(checkpoint / _STATE)["global_step"])


def checkpoints(folder: Path) -> list[Path]:
    """Those of ``folder``, complete or not, the newest last."""
    return sorted((p for p in folder.glob("checkpoint-*") if p.is_dir() and _NAME.fullmatch(p.name)), key=step_of)


def newest_complete(folder: Path, foreign: Collection[str] = (), processes: int | None = None) -> Path | None:
    """The newest checkpoint of ``folder`` that training can continue from; others are left in place, and logged."""
    for checkpoint in reversed(checkpoints(folder)):
        if checkpoint.name in foreign:
            continue
        if not (reason := incomplete(checkpoint, processes)):
            return checkpoint
        logger.warning("%s is not complete or damaged (%s): an earlier one is taken", checkpoint, reason)
    return None


def incomplete(checkpoint: Path, processes: int | None = None) -> str:
    """What keeps training from continuing exactly from ``checkpoint``; ``""`` when nothing does.

    Files are checked at their beginnings and ends, which finds truncated ones at no cost, then compared with the
    checksums that were written when it was complete, if there are any. ``processes`` is how many saved their random
    numbers.
    """
    if not (checkpoint / _STATE).is_file():
        return f"it has no {_STATE}"
    weights = weight_files(checkpoint)
    if missing := _missing(checkpoint, weights, processes):
        return f"it has no {missing}"
    files = sorted(path for path in {*checkpoint.iterdir(), *weights} if path.is_file())
    if truncated := [path.relative_to(checkpoint).as_posix() for path in files if not _whole(path)]:
        return f"{listed(truncated)} cannot be read"
    state = _json(checkpoint / _STATE)
    if not isinstance(state, dict) or not isinstance(state.get("global_step"), int):
        return f"{_STATE} holds no state of a Trainer"
    return damaged(checkpoint)


def _missing(checkpoint: Path, weights: list[Path], processes: int | None) -> str:
    if any(path.is_dir() for pattern in _SHARDED for path in checkpoint.glob(pattern)):
        return ""
    if not weights:
        return "weights"
    optimizer = "optimizer.bin" if weights[0].name == "pytorch_model_fsdp.bin" else "optimizer.pt"
    wanted = [*weights, checkpoint / optimizer, checkpoint / "scheduler.pt"]
    if processes:
        names = ["rng_state.pth"] if processes == 1 else [f"rng_state_{rank}.pth" for rank in range(processes)]
        wanted += [checkpoint / name for name in names]
    elif not any(checkpoint.glob("rng_state*.pth")):
        return "rng_state.pth"
    return next((path.relative_to(checkpoint).as_posix() for path in wanted if not path.is_file()), "")


def _whole(path: Path) -> bool:
    """False when a file of a known format is truncated."""
    try:
        if path.name in INDICES:
            return bool(shards(path))
        if path.suffix == ".json":
            return isinstance(_json(path), dict | list)
        if path.suffix == ".safetensors":
            return _is_safetensors(path)
        if path.match("rng_state*.pth"):  # small, and of each process: checksums are of the first one's files
            with zipfile.ZipFile(path) as file:
                return file.testzip() is None
        return not _ZIPPED.fullmatch(path.name) or zipfile.is_zipfile(path)
    except (OSError, zipfile.BadZipFile, ValueError, LookupError, TypeError, AttributeError):
        return False


def _is_safetensors(path: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):  # compares the header with the file's size
            return True
    except SafetensorError:
        return False


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
