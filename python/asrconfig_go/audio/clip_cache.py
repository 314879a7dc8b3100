"""Caches of clips: what identifies a clip, how a cache is filled, and the cache in memory."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from .._core.checks import at_least
from .._core.output import ProgressBar, kind_of, listed
from .._core.render import exact, plural
from .._core.settings import SAMPLING_RATE
from .._core.stored_clip import StoredClip
from ..data.columns import audio_column, audio_key
from ..data.scan import scan_audio
from ..data.segments import split_range
from ..data.source import open_source
from ..data.table_sources import schema_of
from ..errors import AsrConfigError, InvalidArgumentError, StorageError
from .decoding import Array, is_silent, load_audio, name_of

Key = tuple[str, int, int]  # (path, bytes, nanoseconds of its last change), or (digest, bytes, 0)
Load = Callable[..., Any]
_SETTLED_NS = 20_000_000  # a file system's clock ticks every 1 to 10 ms: a second change in one tick leaves no trace
_AHEAD = 16  # clips a thread, so that encoded bytes do not pile up
_ENTRY_BYTES = 500  # of the array object, its key and the dictionary's slots; measured with tracemalloc


def clip_key(source: object) -> Key | None:
    """The key of a path, of encoded bytes, or of a dictionary with either; None for what is not worth caching.

    Files are identified by path, size and modification time; bytes by their digest; pieces by their times, too.
    Missing files have no key.
    """
    clip = StoredClip.of(source)
    if clip.kind == "bytes":
        _, part = split_range(clip.path, file=False)
        digest = hashlib.blake2b(clip.value, digest_size=16).hexdigest()
        return f"{digest}{part or ''}", len(clip.value), 0
    if clip.kind != "path":
        return None
    path = os.path.abspath(clip.path)  # noqa: PTH100 (a Path for each clip costs more than the lookup)
    try:
        status = os.stat(split_range(path)[0])  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return path, status.st_size, status.st_mtime_ns


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


def unchanged(source: object, key: Key) -> bool:
    """Whether the clip that was just loaded is the one that ``key`` was made of, and will show a later change."""
    return clip_key(source) == key and abs(time.time_ns() - key[2]) > _SETTLED_NS


@dataclass(frozen=True)
class Filled:
    """The result of a cache's ``prepare``.

    Attributes:
        clips: The number of clips.
        bad: How many of them could not be loaded.
        first_error: The first error; ``""`` where all were loaded.
        silent: The names of silent clips.
    """

    clips: int
    bad: int
    first_error: str
    silent: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A line with the counts, and the first error."""
        text = f"{plural(self.clips - self.bad, 'clip')} prepared"
        if self.silent:
            text += f", {len(self.silent)} silent ({listed(self.silent, shown=3)})"
        return f"{text}, {self.bad} could not be loaded; the first: {self.first_error}" if self.bad else text


def fill(cache: Callable[[object], object], sources: object, workers: int | None, progress: bool) -> Filled:
    """Call ``cache`` with each of ``sources`` in threads: decoding releases the GIL."""
    count = usable_cores() if workers is None else at_least("workers", workers, 1, "leave it out: one for each core")
    items, total = _items(sources)
    clips, errors, done = iter(items), list[str](), 0

    def problem_of(item: object) -> str:
        try:
            cache(item)
        except StorageError:
            raise
        except AsrConfigError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(count) as pool, ProgressBar("clips", "clip", total, progress) as advance:
        while chunk := list(islice(clips, _AHEAD * count)):
            for problem in pool.map(problem_of, chunk):
                done += 1
                errors += [problem] if problem else []
                advance(done, total)
    return Filled(done, len(errors), errors[0] if errors else "")


def _items(sources: object) -> tuple[Iterable[object], int | None]:
    source = open_source(sources)
    if source.kind in ("dataset", "stream"):
        column = audio_column(schema_of(source.data))
        return (row[column] for row in source.undecoded().select_columns([column])), source.length
    if source.kind in ("path", "address"):
        paths = scan_audio(source.data, progress=False, allow_empty=True).clips.column("path")
        return paths, len(paths)
    if source.kind not in ("paths", "list", "indexed", "iterable") or not hasattr(source.data, "__iter__"):
        raise InvalidArgumentError(
            f"cannot prepare {kind_of(sources)}", "pass a folder, a manifest, a dataset, or a list of clips"
        )
    audio = (item if (name := audio_key(item)) is None else item[name] for item in source.data)
    return audio, source.length


def usable_cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ClipCache:
    """Returns the clip of a source when it is called."""

    load: Load
    hits: int
    """Clips that this process found in the cache."""
    misses: int
    """Clips that this process loaded."""
    _lock: threading.Lock
    _pid: int
    _silent: list[str]  # names of clips that this process loaded

    def __call__(self, source: object) -> Array:
        """Return the clip of a source, from the cache or by ``load``, whose errors are raised as they are.

        Args:
            source: What ``load`` takes.

        Returns:
            The samples; read-only where they are kept.
        """
        if os.getpid() != self._pid:
            self._forked()
        key = clip_key(source)
        cached = None if key is None else self._find(key)
        with self._lock:
            self.hits += cached is not None
            self.misses += cached is None
        if cached is not None:
            return cached
        clip = self._loaded(source)
        if clip.ndim == 1 and clip.dtype.kind == "f" and is_silent(clip):
            with self._lock:
                self._silent.append(name_of(source))
        return self._keep(key, clip) if key is not None and unchanged(source, key) else clip

    def _find(self, key: Key) -> Array | None:
        raise NotImplementedError

    def _loaded(self, source: object) -> Array:
        clip: Array = np.asarray(self.load(source))
        return clip

    def _keep(self, key: Key, clip: Array) -> Array:
        """Keep ``clip``, and return it or its copy."""
        raise NotImplementedError

    def prepare(self, sources: object, *, workers: int | None = None, progress: bool = True) -> Filled:
        """Load all clips of a dataset now.

        Args:
            sources: A folder, a manifest, a ``datasets.Dataset`` with an audio column, or an iterable of clips or of
                rows with ``audio``.
            workers: The number of threads; None for one for each core.
            progress: Whether to show a progress bar.

        Returns:
            The number of clips, of those that could not be loaded with the first error, and the names of clips that
            were loaded now and are silent.

        Raises:
            InvalidArgumentError: ``sources`` is of another type, or ``workers`` is less than 1.
            StorageError: The disk or the mount of a clip does not answer.
        """
        earlier = len(self._silent)
        filled = fill(self, sources, workers, progress)
        return replace(filled, silent=tuple(self._silent[earlier:]))

    def _start(self) -> None:
        """Count from zero, with a lock of this process."""
        self._lock, self._pid = threading.Lock(), os.getpid()
        self.hits = self.misses = 0
        self._silent = []

    def _forked(self) -> None:
        """Another thread may have held the lock in the middle of counting."""
        self._start()

    def _hit_rate(self) -> str:
        requests = self.hits + self.misses
        return f", {self.hits / requests:.0%} of {requests} found" if requests else ""

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]


class DecodedCache(ClipCache):
    """Keeps the clips that were used last in memory.

    ``cache(source)`` returns the clip of ``load(source)``, read-only. A file is identified by its path, size and time
    of change, encoded bytes by their digest; arrays are not kept. It may be used by several threads.

    **It belongs to one process.** A DataLoader's workers each have their own: they start empty (spawn) or with what the
    parent had (fork, which shares its memory), so W workers take up to W × ``max_bytes``, and with shuffled data a clip
    is found again only where the same worker had it. Fill it with ``prepare`` before the DataLoader starts, keep
    ``persistent_workers`` on, or use a ``ResampledCache``, which all of them share.

    Args:
        max_bytes: The most memory of the samples and of what Python needs to keep them; 1 GiB is 4.5 hours at 16 kHz.
        load: Reads a clip, called as ``load(source)``.

    Raises:
        InvalidArgumentError: ``max_bytes`` is less than 1.

    Example:
        >>> cache = DecodedCache(1 << 20)
        >>> cache(CLIPS / "test-000.mp3").shape
        (9390,)
    """

    _clips: OrderedDict[Key, Array]
    nbytes: int
    """Memory that the clips take, at most ``max_bytes``."""

    def __init__(self, max_bytes: int, *, load: Load = load_audio) -> None:
        self.max_bytes: int = at_least("max_bytes", max_bytes, 1, "1 << 30 is a GiB: 4.5 h at 16 kHz")
        self.load = load
        self._start()

    @property
    def sample_rate(self) -> int | None:
        """The sampling rate of the clips in hertz; None where ``load`` has none."""
        return sample_rate_of(self.load)

    def __len__(self) -> int:
        return len(self._clips)

    def _find(self, key: Key) -> Array | None:
        with self._lock:
            clip = self._clips.get(key)
            if clip is not None:
                self._clips.move_to_end(key)
            return clip

    def _forked(self) -> None:
        clips = self._clips
        self._start()
        self._clips, self.nbytes = clips, sum(_size(*entry) for entry in clips.items())

    def clear(self) -> None:
        """Forget every clip and start counting again."""
        self._start()

    def _keep(self, key: Key, clip: Array) -> Array:
        size = _size(key, clip)
        if size > self.max_bytes:
            return clip
        own = clip if clip.base is None else clip.copy()  # a view would keep all of what it is a view of
        own.setflags(write=False)
        with self._lock:
            if key not in self._clips:
                self._clips[key] = own
                self.nbytes += size
            while self.nbytes > self.max_bytes:
                self.nbytes -= _size(*self._clips.popitem(last=False))
        return own

    def _start(self) -> None:
        super()._start()
        self._clips, self.nbytes = OrderedDict(), 0

    def __getstate__(self) -> dict[str, object]:
        """Settings only: sending the clips to a worker would take longer than decoding them there."""
        return {"max_bytes": self.max_bytes, "load": self.load}

    def __repr__(self) -> str:
        return f"DecodedCache({len(self)} clips, {exact(self.nbytes)} of {exact(self.max_bytes)}{self._hit_rate()})"


def sample_rate_of(load: object) -> int | None:
    """The sampling rate of a loading function's clips in hertz, None when unknown."""
    if load is load_audio:
        return SAMPLING_RATE
    rate = getattr(load, "sample_rate", None) or getattr(load, "keywords", {}).get("sample_rate")
    return rate if isinstance(rate, int) else sample_rate_of(load.func) if hasattr(load, "func") else None


def _size(key: Key, clip: Array) -> int:
    return int(clip.nbytes) + len(key[0]) + _ENTRY_BYTES
