"""Scans of the library: their handles, cache and paths."""

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
    """The folder of the scanner's durations, and a mark of this library: another may measure differently."""
    if not used:
        return {"folder": ""}
    mark, library = "", native.library_path()
    if library.is_file():
        mark = f"{library.stat().st_size} {library.stat().st_mtime_ns}"
    return {"folder": str(cache_folder("durations")), "mark": mark}


@contextlib.contextmanager
def scan_job(op: str, request: dict[str, Any]) -> Iterator[int]:
    """The handle of a scan, which is always cancelled and released, also by Ctrl-C."""
    job = native.call(op, *_split(request))["job"]
    try:
        yield job
    finally:
        native.call("scan.cancel", {"job": job})


def _split(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """A request without its paths, and the paths as bytes, which cross to the library in milliseconds.

    Characters that no file name can have are escaped, so that such paths count as missing files.
    """
    paths = request.get("paths")
    if not paths:
        return request, b""
    joined = "\0".join(paths)
    if joined.count("\0") >= len(paths):
        joined = "\0".join(path.replace("\0", "\\0") for path in paths)
    try:
        attached = os.fsencode(joined + "\0")
    except UnicodeEncodeError:
        attached = b"".join(_escaped(path) + b"\0" for path in joined.split("\0"))
    return {**request, "paths": []}, attached


def _escaped(path: str) -> bytes:
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        return path.encode("utf-8", "backslashreplace")


def wait(job: int, advance: Advance = lambda done, total: None, total: int | None = None) -> None:
    """Wait until what was started last has ended."""
    while True:
        state = native.call("scan.poll", {"job": job, "wait_ms": _POLL_MS})
        advance(state["done"], total or state["total"])
        if state["finished"]:
            return
