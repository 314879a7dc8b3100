"""Clips decoded and resampled once, kept on disk for all processes and later runs."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .._base.checks import checked
from .._base.defaults import SAMPLING_RATE
from .._base.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from .._base.files import user_path
from .audio import load_audio
from .cache_keys import Key, clip_key, name_of_load, unchanged
from .clip_cache import ClipCache
from .clip_files import SUFFIX, clip_files, read_clip, remove_abandoned, write_clip
from .disk_space import Room
from .loading_checks import check_rate
from .padded_clips import Array

_FORMAT = 1
_KEEP_FREE = 2 << 30


class CacheNotKeptWarning(UserWarning):
    """Clips are decoded each time, because the cache cannot keep them."""


class ResampledCache(ClipCache):
    """Keeps each clip as float32 at ``sample_rate`` in ``folder``: ``cache(source)`` maps it, read-only.

    A clip takes 4 bytes a sample: 230 MB an hour at 16 kHz. Files are named by what they were made of (path, size and
    time of change, or a digest of encoded bytes; the rate; ``load``), so a changed clip is a new one. All workers and
    runs share the folder and the page cache behind it. They write to a temporary file that is then renamed: whenever a
    process is killed, a clip is there whole or not at all. Keep it on a local disk.

    Clips that cannot be kept are decoded each time, counted in ``unsaved``, and reported once by a
    ``CacheNotKeptWarning``: where the disk is full or the folder cannot be written, where less than ``keep_free_bytes``
    would be left on the disk (a checkpoint wants room too), and where the clips take ``max_bytes`` (each process looks
    from time to time: several may pass it by some per cent).

    ``load`` is called as ``load(source, sample_rate=…)``; what it raises is raised as it is. Functions are
    distinguished by name and code, ``functools.partial`` by its arguments too; closures and objects with other values
    need folders of their own.

    Raises ``NotFoundError`` when the folder cannot be made.

    >>> cache = ResampledCache("clips-16k")
    >>> cache(CLIPS / "test-000.mp3").shape
    (9390,)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        sample_rate: int = SAMPLING_RATE,
        load: Callable[..., Any] = load_audio,
        max_bytes: int | None = None,
        keep_free_bytes: int = _KEEP_FREE,
    ) -> None:
        check_rate(sample_rate)
        for name, value in (("max_bytes", 0 if max_bytes is None else max_bytes), ("keep_free_bytes", keep_free_bytes)):
            if checked(name, value, int) < 0:
                raise InvalidArgumentError(f"{name} = {value} is less than nothing", "give bytes")
        self.folder: Path = user_path(folder, "cache folder").absolute()
        self.sample_rate: int = sample_rate
        self.load: Callable[..., Any] = load
        self.max_bytes: int | None = max_bytes
        self.keep_free_bytes: int = keep_free_bytes
        self._made_of = f"{_FORMAT} {sample_rate} {name_of_load(load)}"
        self._start()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_abandoned(self.folder)
        except OSError as error:
            raise NotFoundError(
                f"cannot make the cache's folder {self.folder}: {error}", "choose a folder that can be written"
            ) from error

    @property
    def unsaved(self) -> int:
        """Those of the loaded clips that could not be kept."""
        return self._unsaved

    @property
    def nbytes(self) -> int:
        """Bytes of all clips in the folder; looks at each of them."""
        return sum(size for _, size in clip_files(self.folder))

    def __len__(self) -> int:
        return sum(1 for _ in clip_files(self.folder))

    def __call__(self, source: Any) -> Array:
        """The clip, mapped from its file, or by ``load``. To keep more than a batch of them, copy them."""
        if os.getpid() != self._pid:
            self._start()  # in a forked process; another thread may have held the lock
        key = clip_key(source)
        path = None if key is None else self._path(key)
        cached = None if path is None else self._read(path)
        with self._lock:
            self._hits += cached is not None
            self._misses += cached is None
        if cached is not None:
            return cached
        clip: Array = np.asarray(self.load(source, sample_rate=self.sample_rate), dtype=np.float32)
        if clip.ndim != 1:
            raise InvalidArgumentError(f"load returned an array of shape {clip.shape}", "return shape (samples,)")
        self._note_if_silent(source, clip)
        if key is not None and path is not None and unchanged(source, key):
            self._save(path, clip)
        return clip

    def clear(self) -> None:
        """Remove every clip from the folder."""
        for path, _ in clip_files(self.folder):
            path.unlink(missing_ok=True)
        self._start()

    def _start(self) -> None:
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._room = Room(self.folder, self.max_bytes, self.keep_free_bytes)
        self._hits = self._misses = self._unsaved = 0
        self._silent = []

    def _path(self, key: Key) -> str:
        name = hashlib.blake2b(f"{key} {self._made_of}".encode(errors="surrogateescape"), digest_size=16).hexdigest()
        return f"{self.folder}{os.sep}{name[:2]}{os.sep}{name}{SUFFIX}"

    def _read(self, path: str) -> Array | None:
        try:
            return read_clip(path)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return None
            raise UnsupportedError(
                f"too many clips of {self.folder} are held at once: {error.strerror}", "copy the clips that you keep"
            ) from error

    def _save(self, path: str, clip: Array) -> None:
        try:
            problem = self._room.refusal(clip.nbytes)
            if not problem:
                self._room.written(write_clip(Path(path), clip))
                return
        except OSError as error:
            problem = self._room.stop(f"a clip cannot be written: {error.strerror or error}")
        with self._lock:
            self._unsaved += 1
            first = self._unsaved == 1
        if first:
            warnings.warn(f"{self.folder}: {problem}; clips are decoded each time", CacheNotKeptWarning, stacklevel=3)

    def __getstate__(self) -> dict[str, Any]:
        names = ("folder", "sample_rate", "load", "max_bytes", "keep_free_bytes")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        unsaved = f", {self._unsaved} not kept" if self._unsaved else ""
        return f"ResampledCache({str(self.folder)!r}, {self.sample_rate} Hz{self._hit_rate()}{unsaved})"
