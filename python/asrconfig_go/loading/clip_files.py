"""Clips as ``.npy`` files of float32 that are there whole or not at all, and read by mapping them."""

from __future__ import annotations

import contextlib
import mmap
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._base.files import write_whole
from .padded_clips import Array

SUFFIX, _PARTIAL = ".npy", ".part"
_HEADER = 128  # bytes; the samples behind them are aligned for every processor
_ABANDONED_S = 3600.0
# From Python 3.13 on a mapping needs no open file.
_MAPPING: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


def header(samples: int) -> bytes:
    """The header of version 1.0 of NumPy's format for this number of float32, always 128 bytes long."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({samples},), }}"
    return b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + text.ljust(_HEADER - 11).encode() + b"\n"


def write_clip(path: Path, clip: Array) -> int:
    """Write ``clip`` to ``path`` and return the file's size in bytes; ``OSError`` leaves no partial file.

    Not synchronised to the disk: that takes as long as decoding, and a killed process does not need it. What a power
    cut leaves is shorter than its header says, and is not read.
    """
    data = header(len(clip)) + np.ascontiguousarray(clip, dtype="<f4").tobytes()
    path.parent.mkdir(exist_ok=True)
    write_whole(path, data, durable=False, by_way_of=path.parent.parent)
    return len(data)


def read_clip(path: str) -> Array | None:
    """The samples, mapped and read-only; None where there is no such file, or it is not whole.

    Raises ``OSError`` where the file is there but cannot be opened or mapped.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (this runs for every clip)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, **_MAPPING)
    except (FileNotFoundError, ValueError):  # ValueError: an empty file cannot be mapped
        return None
    samples = (len(mapped) - _HEADER) // 4
    if len(mapped) < _HEADER or mapped[:_HEADER] != header(samples) or len(mapped) != _HEADER + 4 * samples:
        return None
    clip: Array = np.frombuffer(mapped, dtype="<f4", offset=_HEADER)
    return clip


def clip_files(folder: Path) -> Iterator[tuple[Path, int]]:
    """The clips of a folder with their sizes in bytes."""
    for path in folder.glob(f"??/*{SUFFIX}"):
        with contextlib.suppress(OSError):  # another process removed it
            yield path, path.stat().st_size


def remove_abandoned(folder: Path) -> None:
    """Remove what killed processes left half written an hour ago or earlier."""
    for path in folder.glob(f"*{_PARTIAL}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()
