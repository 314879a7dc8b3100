"""The handle of a scan in the library, and what every request for one needs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from .._base import native
from .._base.files import cache_folder
from .._base.progress import Advance

_POLL_MS = 50  # also how long Ctrl-C may wait


def scan_cache(used: bool) -> dict[str, str]:
    """Where the scanner keeps durations, and what marks them as this library's: another may measure otherwise."""
    if not used:
        return {"folder": ""}
    mark, library = "", native.library_path()
    if library.is_file():
        mark = f"{library.stat().st_size} {library.stat().st_mtime_ns}"
    return {"folder": str(cache_folder("durations")), "mark": mark}


@contextlib.contextmanager
def scan_job(op: str, request: dict[str, Any]) -> Iterator[int]:
    """The handle of a scan. Whatever happens, Ctrl-C included, it is cancelled and released."""
    job = native.call(op, *_split(request))["job"]
    try:
        yield job
    finally:
        native.call("scan.cancel", {"job": job})


def _split(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """A request without its paths, and those as bytes: hundreds of thousands cross in milliseconds so."""
    paths = request.get("paths")
    if not paths:
        return request, b""
    joined = "\0".join(paths) + "\0"
    try:
        attached = os.fsencode(joined) if joined.count("\0") == len(paths) else None
    except UnicodeEncodeError:
        attached = None
    if attached is None:
        attached = b"".join(_impossible(path) + b"\0" for path in paths)
    return {**request, "paths": []}, attached


def _impossible(path: str) -> bytes:
    """A path whose characters no file name can have is written out, to be counted as a missing file."""
    try:
        return os.fsencode(path.replace("\0", "\\0"))
    except UnicodeEncodeError:
        return path.encode("utf-8", "backslashreplace")


def wait(job: int, advance: Advance = lambda done, total: None, total: int | None = None) -> None:
    """Until what was started last has ended."""
    while True:
        state = native.call("scan.poll", {"job": job, "wait_ms": _POLL_MS})
        advance(state["done"], total or state["total"])
        if state["finished"]:
            return
