"""Keys that identify a clip in its current state."""

from __future__ import annotations

import hashlib
import os
import time
from functools import partial
from typing import Any

from .clip_ranges import split_range

Key = tuple[str, int, int]  # (path, bytes, nanoseconds of its last change), or (digest, bytes, 0)

_SETTLED_NS = 20_000_000  # a file system's clock ticks every 1 to 10 ms: a second change in one tick leaves no trace


def clip_key(source: Any) -> Key | None:
    """The key of a path, of encoded bytes, or of a dictionary with either; None for what is not worth caching.

    Files are identified by path, size and modification time; bytes by their digest; pieces by their times, too.
    Missing files have no key.
    """
    if isinstance(source, dict):
        if source.get("array") is not None:
            return None
        if source.get("bytes") is not None:
            _, part = split_range(os.fsdecode(source.get("path") or ""), file=False)
            digest, size, _ = _bytes_key(source["bytes"])
            return f"{digest}{part or ''}", size, 0
        source = source.get("path")
    if isinstance(source, bytes | bytearray | memoryview):
        return _bytes_key(source)
    if not isinstance(source, str | os.PathLike):
        return None
    path = os.path.abspath(os.fsdecode(source))  # noqa: PTH100 (a Path for each clip costs more than the lookup)
    try:
        status = os.stat(split_range(path)[0])  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return path, status.st_size, status.st_mtime_ns


def _bytes_key(data: bytes | bytearray | memoryview) -> Key:
    return hashlib.blake2b(data, digest_size=16).hexdigest(), len(data), 0


def name_of_load(load: Any) -> str:
    """What identifies a loading function, in later runs too: module, name, code, the arguments of a partial."""
    if isinstance(load, partial):
        return f"{name_of_load(load.func)} {load.args} {sorted(load.keywords.items())}"
    named = load if hasattr(load, "__qualname__") else type(load)
    module = named.__module__ or ""  # None of a function that exec made
    name, code = f"{module}.{named.__qualname__}", getattr(load, "__code__", None)
    if code is None or module.startswith(__package__ or ""):
        return name
    constants = [constant for constant in code.co_consts if isinstance(constant, int | float | str | bytes | None)]
    values = repr((constants, code.co_names, load.__defaults__, load.__kwdefaults__))
    body = hashlib.blake2b(code.co_code + values.encode(), digest_size=8)
    return f"{name} {body.hexdigest()}"


def unchanged(source: Any, key: Key) -> bool:
    """Whether the clip that was just loaded is the one that ``key`` was made of, and will show a later change."""
    return clip_key(source) == key and abs(time.time_ns() - key[2]) > _SETTLED_NS
