"""Filling a cache before a training starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from .._base.checks import checked
from .._base.errors import AsrConfigError, InvalidArgumentError, StorageError
from .._base.listing import listed
from .._base.progress import ProgressBar
from ..view.units import plural

_AHEAD = 4  # clips a thread, so that encoded bytes do not pile up


@dataclass(frozen=True)
class Filled:
    """The result of ``prepare``: ``bad`` of ``clips`` could not be loaded, and ``silent`` names the silent ones."""

    clips: int
    bad: int
    first_error: str
    silent: tuple[str, ...] = ()

    def __str__(self) -> str:
        """In one line, and the first error."""
        text = f"{plural(self.clips - self.bad, 'clip')} prepared"
        if self.silent:
            text += f", {len(self.silent)} silent ({listed(self.silent, shown=3)})"
        return f"{text}, {self.bad} could not be loaded; the first: {self.first_error}" if self.bad else text


def fill(cache: Callable[[Any], Any], sources: Any, workers: int | None, progress: bool) -> Filled:
    """Call ``cache`` with each of ``sources`` in threads: decoding releases the GIL."""
    count = checked("workers", workers, int | None) if workers is not None else usable_cores()
    if count < 1:
        raise InvalidArgumentError(f"workers = {count} load nothing", "leave it out: one for each core")
    items, total = _items(sources)
    errors: list[str] = []
    done = 0
    with ThreadPoolExecutor(count) as pool, ProgressBar("clips", "clip", total, progress) as advance:
        try:
            for finished in _finished(pool, cache, items, _AHEAD * count):
                done += 1
                error = finished.exception()
                if error is not None and (not isinstance(error, AsrConfigError) or isinstance(error, StorageError)):
                    raise error
                errors += [] if error is None else [str(error)]
                advance(done, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return Filled(done, len(errors), errors[0] if errors else "")


def _finished(pool: ThreadPoolExecutor, load: Any, items: Iterable[Any], limit: int) -> Iterator[Future[Any]]:
    pending: set[Future[Any]] = set()
    for item in items:
        if len(pending) >= limit:
            ended, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from ended
        pending.add(pool.submit(load, item))
    yield from wait(pending).done


def _items(sources: Any) -> tuple[Iterable[Any], int | None]:
    if hasattr(sources, "column_names") and hasattr(sources, "features"):
        from ..data.hf_sources import audio_column, undecoded_columns

        column = audio_column(sources)
        clips = (row[column] for row in undecoded_columns(sources).select_columns([column]))
        return clips, len(sources) if hasattr(sources, "__len__") else None
    if isinstance(sources, str | os.PathLike):
        from ..data.scan import scan_audio

        sources = [clip.path for clip in scan_audio(sources, progress=False, allow_empty=True).clips]
    if not hasattr(sources, "__iter__"):
        raise InvalidArgumentError(
            f"cannot prepare a {type(sources).__name__}", "pass a folder, a manifest, a dataset, or a list of clips"
        )
    audio = (item["audio"] if isinstance(item, dict) and "audio" in item else item for item in sources)
    return audio, len(sources) if hasattr(sources, "__len__") else None


def usable_cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
