"""The record of an out-of-memory error: memory by module, beside what was predicted for that moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._base.json_files import read_object
from .._base.records import from_file

PREFIX = "_asrconfig-oom-"  # the underscore keeps Trainer.push_to_hub from uploading what begins with it
_HINT = "remove it, or report without it"


@dataclass(frozen=True)
class HeldRow:
    """Bytes of one part of the model: ``component`` is parameters, gradients, optimizer, buffers, others or "…".

    ``module`` is "*" for all of a component, "" outside any module. ``predicted`` is None without a prediction.
    """

    component: str
    module: str
    held: int
    predicted: int | None


@dataclass(frozen=True)
class PredictedMoment:
    """The moment of the predicted run that is compared with: the allocation before which its memory is counted."""

    segment: str
    phase: str
    op: str
    module: str
    step: int


@dataclass(frozen=True)
class MemoryFailure:
    """What a training held when GPU memory ran out in ``place``, in bytes: see ``GuardEvent`` for places.

    - ``samples``, ``seconds``: the micro-batch of the prediction, None without one;
    - ``phase``, ``module``: where it ran out, "" where that is not known;
    - ``reserved``: what PyTorch's allocator had, of which ``held`` was in use; the rows sum up to ``held``, and what
      they say of the prediction to ``predicted``;
    - ``moment``: of the predicted run.
    """

    place: str
    step: int
    rank: int
    at_unix_s: float
    samples: int | None
    seconds: float | None
    phase: str
    module: str
    reserved: int
    held: int
    predicted: int | None
    moment: PredictedMoment | None
    rows: tuple[HeldRow, ...]


def read_failure(path: Path) -> MemoryFailure:
    """What the guard wrote. Raises ``CorruptFileError`` for anything else."""
    content: dict[str, Any] = read_object(path, "record of an out-of-memory error", _HINT)
    return from_file(MemoryFailure, content, path, _HINT)
