"""Scans that run in the library: their handles, and the parts of a scan on a cluster."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from .._core import native
from .._core.files import cache_folder
from .._core.output import Advance
from .._core.requirements import imported
from .._core.settings import Cluster
from ..errors import AsrConfigError, NotFoundError, UnsupportedError
from .scan_result import PAGE
from .scan_rows import Piece, ScanInput

_POLL_MS = 50  # also how long Ctrl-C may wait
_RUNNING = Path("/tmp/ray/ray_current_cluster")  # the address that ray start wrote, which ray.init takes by default
_ANSWER_S = 10  # within which a cluster is to answer
_PARTS = 4  # per machine: balances load and limits the loss of a machine, but each part lists the source again


def scan_cache(used: bool) -> dict[str, str]:
    """The folder of the scanner's durations, and a mark of this library: another may measure differently."""
    if not used:
        return {"folder": ""}
    mark, library = "", native.library_path()
    if library.is_file():
        mark = f"{native.package_version()} {library.stat().st_size} {library.stat().st_mtime_ns}"
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
    """A request without its paths, and the paths as bytes, which cross to the library in milliseconds."""
    paths = request.get("paths")
    if not paths:
        return request, b""
    return {**request, "paths": []}, os.fsencode("\0".join(paths) + "\0")


def wait(job: int, advance: Advance = lambda done, total: None, total: int | None = None) -> None:
    """Wait until what was started last has ended."""
    while True:
        state = native.call("scan.poll", {"job": job, "wait_ms": _POLL_MS})
        advance(state["done"], total or state["total"])
        if state["finished"]:
            return


Task = Callable[[int, int], Any]
"""A function of a part's index and the number of parts."""


def _by_ray(task: Task) -> Iterator[Any]:
    """On the cluster that this process is connected to, that RAY_ADDRESS names or that runs here; else on this machine.

    A task takes a machine, as the scanner reads with all cores.
    """
    ray = imported("ray", "a scan by ray")
    if not ray.is_initialized():
        _reach(os.environ.get("RAY_ADDRESS") or (_RUNNING.read_text().strip() if _RUNNING.is_file() else ""))
        ray.init(log_to_driver=False)
    cores = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    cores = [count for count in cores if count] or [1]  # a head alone: its autoscaler starts the others
    count = _PARTS * len(cores)
    remote = ray.remote(num_cpus=min(cores), scheduling_strategy="SPREAD")(lambda index: task(index, count))
    return map(ray.get, [remote.remote(index) for index in range(count)])


def _reach(address: str) -> None:
    """Raise ``NotFoundError`` for a cluster that does not answer: Ray itself would wait for it without an end."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if not port.isdigit():  # "auto" or "local", or none
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except OSError as error:
        raise NotFoundError(
            f"the Ray cluster at {address} does not answer: {error}",
            "start it, correct RAY_ADDRESS, or forget it by ray stop",
        ) from error


def _by_spark(task: Task) -> Iterator[Any]:
    """Run in the Spark session of this process, or in a new one, configured as by spark-submit.

    What executors send is kept on their disks until the driver takes it, one partition after another.
    """
    pyspark = imported("pyspark", "a scan by spark")
    context = imported("pyspark.sql", "a scan by spark").SparkSession.builder.getOrCreate().sparkContext
    count = context.defaultParallelism
    parts = context.parallelize(range(count), count).map(lambda index: task(index, count))
    parts.persist(pyspark.StorageLevel.DISK_ONLY).count()
    return parts.toLocalIterator()  # type: ignore[no-any-return]


MAPS: dict[Cluster, Callable[[Task], Iterator[Any]]] = {"ray": _by_ray, "spark": _by_spark}


@dataclass(frozen=True)
class ScannedPart:
    """The result of one task: the library's name of the source, and every clip in pages."""

    source: str
    pages: list[tuple[dict[str, Any], bytes]]


def read_parts(source: ScanInput, cluster: Cluster, options: dict[str, Any]) -> ScanInput:
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
    pages = ((page, columns) for part in chain([first], parts) for page, columns in part.pages if page["count"])
    pieces = (Piece({"page": page}, columns) for page, columns in pages)
    filled = next(pieces, None)
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
