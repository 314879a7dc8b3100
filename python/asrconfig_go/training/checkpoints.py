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
    found = _NAME.fullmatch(checkpoint.name)
    return int(found[1]) if found else int(_json(checkpoint / _STATE)["global_step"])


def checkpoints(folder: Path) -> list[Path]:
    """Those of ``folder``, complete or not, the newest last."""
    found = [path for path in folder.glob("checkpoint-*") if path.is_dir() and _NAME.fullmatch(path.name)]
    return sorted(found, key=step_of)


def newest_complete(folder: Path, foreign: Collection[str] = (), processes: int | None = None) -> Path | None:
    """The newest checkpoint of ``folder`` that training can continue from; others are left in place, and logged."""
    for checkpoint in reversed(checkpoints(folder)):
        if checkpoint.name in foreign:
            continue
        why = incomplete(checkpoint, processes)
        if not why:
            return checkpoint
        logger.warning("%s is not complete or damaged (%s): an earlier one is taken", checkpoint, why)
    return None


def incomplete(checkpoint: Path, processes: int | None = None) -> str:
    """What keeps training from continuing exactly from ``checkpoint``; ``""`` when nothing does.

    Files are checked at their beginnings and ends, which finds truncated ones at no cost, then held
    against the checksums that were written when it was complete, if there are any. ``processes`` is the number of those
    that saved; each keeps its random numbers.
    """
    if not (checkpoint / _STATE).is_file():
        return f"it has no {_STATE}"
    weights = weight_files(checkpoint)
    missing = _missing(checkpoint, weights, processes)
    if missing:
        return f"it has no {missing}"
    files = sorted(path for path in {*checkpoint.iterdir(), *weights} if path.is_file())
    truncated = [path.relative_to(checkpoint).as_posix() for path in files if not _whole(path)]
    if truncated:
        return f"{listed(truncated)} cannot be read"
    return _state_problem(checkpoint) or damaged(checkpoint)


def _state_problem(checkpoint: Path) -> str:
    """Of what the Trainer would read of itself."""
    from transformers.trainer_callback import TrainerState

    told = _json(checkpoint / _STATE)
    try:
        state = TrainerState(**told)
        right = [
            _whole_number(state.global_step), _whole_number(state.max_steps),
            state.epoch is None or 0 <= float(state.epoch) < float("inf"),
            all(isinstance(entry, dict) for entry in state.log_history),
            all(isinstance(saved, dict | list) for saved in (state.stateful_callbacks or {}).values()),
            "global_step" in told,
        ]  # fmt: skip
    except Exception as error:  # of whatever the installed version makes of it
        return f"{_STATE} cannot be read: {error!r}"
    return "" if all(right) else f"{_STATE} holds no state of a Trainer"


def _whole_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


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
            return _safetensors_bytes(path) == path.stat().st_size
        if path.match("rng_state*.pth"):  # small, and of each process: checksums are of the first one's files
            with zipfile.ZipFile(path) as file:
                return file.testzip() is None
        return not _ZIPPED.fullmatch(path.name) or zipfile.is_zipfile(path)
    except (OSError, zipfile.BadZipFile, ValueError, LookupError, TypeError, AttributeError):
        return False


def _safetensors_bytes(path: Path) -> int:
    """The size that its header speaks of: 8 bytes of the header's length, the header, the tensors."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            return -1
        header = json.loads(file.read(length))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return 8 + length + int(max(ends, default=0))


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
