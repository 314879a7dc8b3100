"""Checksums of a checkpoint's files, written when it is complete, so that damage is found before a resume."""

from __future__ import annotations

import json
import os
import re
import zlib
from pathlib import Path

from .errors import AsrConfigError
from .files import write_whole
from .json_files import read_object
from .listing import listed
from .weight_files import INDICES, weight_files

NAME = "asrconfig_checksums.json"
_SCHEMA = 1
_CHUNK = 1 << 20
STREAM_FILE = "asrconfig_stream{}.json"
"""What a process writes of its place in a stream; ``_1`` and so on of any but the first."""
# Of other processes, which may not have written theirs yet.
_OTHERS = re.compile(r"rng_state_\d+\.pth|asrconfig_stream_\d+\.json|.*\.part")
_HINT = "remove it to go without checksums"


def write_checksums(checkpoint: Path) -> None:
    """Write the size and CRC-32 of each file in ``checkpoint``; in subfolders, of adapters' weights only.

    A CRC-32 finds every flipped bit and every zeroed block at some gigabytes a second; it is not a signature. Raises
    ``OSError``.
    """
    files = sorted(path for path in {*checkpoint.iterdir(), *weight_files(checkpoint)} if path.is_file())
    own = {path.relative_to(checkpoint).as_posix(): path for path in files if path.name != NAME}
    sums = {name: [path.stat().st_size, _crc32(path)] for name, path in own.items() if not _OTHERS.fullmatch(name)}
    write_whole(checkpoint / NAME, json.dumps({"schema": _SCHEMA, "files": sums}, indent=1).encode())


def damaged(checkpoint: Path) -> str:
    """Name the file that differs from what was written, and how; ``""`` if none does, or without checksums."""
    if not (checkpoint / NAME).is_file():
        return ""
    try:
        content = read_object(checkpoint / NAME, "list of checksums", _HINT)
        files = {str(name): (int(size), int(crc)) for name, (size, crc) in content["files"].items()}
        weights = {path.relative_to(checkpoint).as_posix() for path in weight_files(checkpoint)}
        if weights.isdisjoint(files):  # saved anew since, such as in shards: the files before are not needed any more
            files = {name: sums for name, sums in files.items() if not _was_weights(checkpoint / name)}
        for name, (size, _) in files.items():  # sizes first: they cost nothing
            current_size = (checkpoint / name).stat().st_size
            if current_size != size:
                return f"{name} has {current_size} bytes, {size} were written"
        wrong = [name for name, (_, crc) in files.items() if _crc32(checkpoint / name) != crc]
    except OSError as error:
        return f"{os.path.relpath(error.filename or checkpoint, checkpoint)} cannot be read: {error.strerror}"
    except (AsrConfigError, LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return f"{NAME} cannot be read; {_HINT}"
    return f"{listed(wrong)} changed since it was written" if wrong else ""


def _was_weights(path: Path) -> bool:
    return not path.exists() and (path.suffix in (".safetensors", ".bin") or path.name in INDICES)


def _crc32(path: Path) -> int:
    crc, chunk = 0, memoryview(bytearray(_CHUNK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(chunk):
            crc = zlib.crc32(chunk[:count], crc)
    return crc
