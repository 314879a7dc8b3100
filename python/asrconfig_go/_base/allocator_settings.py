"""The settings of torch's CUDA allocator in the environment of this process."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

NEW, OLD = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"


@lru_cache(maxsize=4)
def alloc_conf_names(folder: Path | None = None) -> tuple[str, ...]:
    """The variables from which the installed torch reads allocator settings, the preferred one first.

    The names are read from the library that uses them. torch 2.9 has the new name in libc10 only, and CUDA's allocator
    ignores it, so CUDA's own library is checked first. Without torch the new name is returned. ``folder`` holds torch's
    libraries.
    """
    spec = find_spec("torch")
    if folder is None and spec and spec.origin:
        folder = Path(spec.origin).parent / "lib"
    for pattern in ("*c10_cuda.*", "*c10_hip.*", "*c10.*"):
        for path in sorted(folder.glob(pattern)) if folder else ():
            content = b"\0" + path.read_bytes()
            names = tuple(name for name in (NEW, OLD) if b"\0" + name.encode() + b"\0" in content)
            if names:
                return names
    return (NEW,)


def allocator_in_force() -> str:
    """The allocator settings that torch reads in this process; "" for the defaults and for other allocator backends."""
    text = next((os.environ[name] for name in alloc_conf_names() if os.environ.get(name)), "")
    return text if (parse_alloc_conf(text) or {}).get("backend", "native") == "native" else ""


def parse_alloc_conf(text: str) -> dict[str, str] | None:
    """Parse ``key:value`` pairs, separated by commas outside brackets; None for malformed texts."""
    pairs, depth, start = [], 0, 0
    for i, letter in enumerate(text + ","):
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            pairs.append(text[start:i].strip())
            start = i + 1
    split = [pair.partition(":") for pair in pairs if pair]
    if depth != 0 or any(not (key.strip() and mark and value.strip()) for key, mark, value in split):
        return None
    return {key.strip(): value.strip() for key, _, value in split}
