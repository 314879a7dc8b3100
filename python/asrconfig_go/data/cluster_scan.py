"""A source measured by many machines, each a part of it; the library joins the parts to one scan."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from .._base import native
from .._base.choices import Cluster
from .._base.errors import AsrConfigError, NotFoundError, UnsupportedError
from .clips import PAGE
from .cluster_maps import MAPS
from .pieces import Piece, Source
from .scan_jobs import scan_cache, scan_job, wait


@dataclass(frozen=True)
class ScannedPart:
    """The result of one task: the library's name of the source, and every clip in pages."""

    source: str
    pages: list[tuple[dict[str, Any], bytes]]


def read_parts(source: Source, cluster: Cluster, options: dict[str, Any]) -> Source:
    """The source with the clips of all parts as its pieces; unchanged if there are none, which one machine can report.

    Raises what a part raised, and ``UnsupportedError`` for a source that only this process has.
    """
    if source.request is None or not set(source.request) <= {"folder", "manifest", "paths", "shards"}:
        raise UnsupportedError(
            f"{cluster} cannot scan what this process has in memory or reads with Python (Parquet, datasets, arrays)",
            "pass a folder of audio, a manifest, tar shards or paths, or leave cluster out",
        )
    task = partial(scan_part, {**source.request, **options}, os.getcwd())  # noqa: PTH109  # workers have their own
    parts = map(_checked, MAPS[cluster](task))
    first = next(parts)
    pieces = (Piece(page=page, columns=columns) for part in chain([first], parts) for page, columns in part.pages)
    filled = next((piece for piece in pieces if piece.page and piece.page["count"]), None)
    if filled is None:
        return source
    return replace(source, request=None, pieces=lambda: chain([filled], pieces), label=first.source)


def scan_part(request: dict[str, Any], folder: str, index: int, count: int) -> ScannedPart | AsrConfigError:
    """Measure one part, in the working folder of the process that asked. Errors are returned: clusters wrap them."""
    cache = scan_cache(bool(request["cache"]["folder"]))  # of this machine's library
    request = {**request, "cache": cache, "part": {"index": index, "count": count}, "allow_empty": True}
    try:
        with _working_in(folder), scan_job("scan.start", request) as job:
            wait(job)
            return ScannedPart(native.call("scan.result", {"job": job})["source"], list(_pages(job)))
    except AsrConfigError as error:
        return error


def _pages(job: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    at = 0
    while True:
        page, columns = native.exchange("scan.clips", {"job": job, "offset": at, "limit": PAGE})
        yield page, bytes(columns)
        at += page["count"]
        if page["count"] < PAGE:
            return


@contextlib.contextmanager
def _working_in(folder: str) -> Iterator[None]:
    before = os.getcwd()  # noqa: PTH109
    try:
        os.chdir(folder)
    except OSError as error:
        raise NotFoundError(
            f"a machine of the cluster does not have the working folder {folder}: {error.strerror}",
            "start from a folder that all of them share",
        ) from None
    try:
        yield
    finally:
        os.chdir(before)


def _checked(part: ScannedPart | AsrConfigError) -> ScannedPart:
    if isinstance(part, AsrConfigError):
        raise part
    return part
