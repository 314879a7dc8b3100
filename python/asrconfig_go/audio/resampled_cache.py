"""Clips decoded and resampled once, kept on disk for all processes and later runs."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mmap
import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._core.checks import at_least
from .._core.files import user_path, write_whole
from .._core.render import exact
from .._core.settings import SAMPLING_RATE
from ..errors import InvalidArgumentError, NotFoundError, UnsupportedError
from .clip_cache import ClipCache, Key, Load, name_of_load
from .decoding import Array, check_rate, load_audio

SUFFIX, _PARTIAL = ".npy", ".part"
_FORMAT = 1
_HEADER = 128  # bytes; the samples behind them are aligned for every processor
_ABANDONED_S = 3600.0
_KEEP_FREE = 2 << 30
_AGAIN_S = 60.0  # before a full folder is looked at again
_SHARE = 16  # of the remaining space may one process fill before it measures again
# From Python 3.13 on a mapping needs no open file.
_MAPPING: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


def header(samples: int) -> bytes:
    """The header of version 1.0 of NumPy's format for this number of float32, always 128 bytes long."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({samples},), }}"
    return b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + text.ljust(_HEADER - 11).encode() + b"\n"


def write_clip(path: Path, clip: Array) -> int:
    """Write ``clip`` to ``path`` and return the file's size in bytes; ``OSError`` leaves no partial file.

    Not synchronised to the disk: that takes as long as decoding, and a killed process does not need it. What a power
    cut leaves is shorter than its header says, and is not read.
    """
    data = header(len(clip)) + np.ascontiguousarray(clip, dtype="<f4").tobytes()
    path.parent.mkdir(exist_ok=True)
    write_whole(path, data, durable=False, by_way_of=path.parent.parent)
    return len(data)


def read_clip(path: str) -> Array | None:
    """The samples, mapped and read-only; None where there is no such file, or it is not whole.

    Raises ``OSError`` where the file is there but cannot be opened or mapped.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (this runs for every clip)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, **_MAPPING)
    except (FileNotFoundError, ValueError):  # ValueError: an empty file cannot be mapped
        return None
    samples = (len(mapped) - _HEADER) // 4
    if len(mapped) < _HEADER or mapped[:_HEADER] != header(samples) or len(mapped) != _HEADER + 4 * samples:
        return None
    clip: Array = np.frombuffer(mapped, dtype="<f4", offset=_HEADER)
    return clip


def clip_files(folder: Path) -> Iterator[tuple[Path, int]]:
    """The clips of a folder with their sizes in bytes."""
    for path in folder.glob(f"??/*{SUFFIX}"):
        with contextlib.suppress(OSError):  # another process removed it
            yield path, path.stat().st_size


def remove_abandoned(folder: Path) -> None:
    """Remove what killed processes left half written an hour ago or earlier."""
    for path in folder.glob(f"*{_PARTIAL}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()


class Room:
    """The disk space left in a folder, as far as this process knows: others may fill it too."""

    def __init__(self, folder: Path, max_bytes: int | None, keep_free_bytes: int) -> None:
        self._folder, self._max_bytes, self._keep_free_bytes = folder, max_bytes, keep_free_bytes
        self._until_look = 0  # bytes to write before the folder is measured again
        self._full_until = float("-inf")
        self._stopped = ""

    def refusal(self, size: int) -> str:
        """Why a clip of ``size`` bytes must not be written, or \"\"."""
        if self._stopped:
            return self._stopped
        free = shutil.disk_usage(self._folder).free
        if free - size < self._keep_free_bytes:
            return f"the disk has {exact(free)} free, of which {exact(self._keep_free_bytes)} are kept for checkpoints"
        if self._max_bytes is not None and size > self._until_look and not self._look(size):
            return f"the clips take max_bytes = {exact(self._max_bytes)}"
        return ""

    def written(self, size: int) -> None:
        """A file of ``size`` bytes was written."""
        self._until_look -= size

    def stop(self, reason: str) -> str:
        """Refuse all further clips for ``reason``, and return it."""
        self._stopped = reason
        return reason

    def _look(self, size: int) -> bool:
        """Measure the folder, and return whether a clip of ``size`` bytes fits."""
        if self._max_bytes is None or time.monotonic() < self._full_until:
            return False
        remaining = self._max_bytes - sum(size for _, size in clip_files(self._folder))
        self._until_look = max(size, remaining // _SHARE)
        if remaining < size:
            self._until_look, self._full_until = 0, time.monotonic() + _AGAIN_S
        return remaining >= size


class CacheNotKeptWarning(UserWarning):
    """Clips are decoded each time, because the cache cannot keep them."""


class ResampledCache(ClipCache):
    """Keeps each clip as float32 at one sampling rate in a folder.

    ``cache(source)`` maps the clip into memory, read-only. A clip takes 4 bytes a sample: 230 MB an hour at 16 kHz.
    Files are named by what they were made of (path, size and time of change, or a digest of encoded bytes; the rate;
    ``load``), so a changed clip is a new one. All workers and runs share the folder and the page cache of its files.
    They write to a temporary file that is then renamed: whenever a process is killed, a clip is there whole or not at
    all.

    Clips that cannot be kept are decoded each time, counted in ``unsaved``, and reported once by a
    ``CacheNotKeptWarning``: where the disk is full, the folder cannot be written, or a limit is reached.

    Args:
        folder: The folder, which is made if it does not exist. Choose one on a local disk.
        sample_rate: The rate in hertz, 1000 to 1 000 000.
        load: Reads a clip, called as ``load(source, sample_rate=…)``; what it raises is raised as it is. Functions are
            distinguished by name and code, ``functools.partial`` by its arguments too; closures and objects with other
            values need folders of their own.
        max_bytes: The most that the clips may take; None for no limit. Each process measures the folder from time to
            time, so several may pass it by some per cent.
        keep_free_bytes: What has to stay free on the disk, as for checkpoints; 2 GiB by default.

    Raises:
        NotFoundError: The folder cannot be made.
        InvalidArgumentError: A rate or a size is out of its range.

    Example:
        >>> cache = ResampledCache("clips-16k")
        >>> cache(CLIPS / "test-000.mp3").shape
        (9390,)
    """

    unsaved: int
    """How many loaded clips could not be cached."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        sample_rate: int = SAMPLING_RATE,
        load: Load = load_audio,
        max_bytes: int | None = None,
        keep_free_bytes: int = _KEEP_FREE,
    ) -> None:
        check_rate(sample_rate)
        at_least("max_bytes", 0 if max_bytes is None else max_bytes, 0, "pass bytes")
        at_least("keep_free_bytes", keep_free_bytes, 0, "pass bytes")
        self.folder: Path = user_path(folder, "cache folder").absolute()
        self.sample_rate: int = sample_rate
        self.load = load
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
    def nbytes(self) -> int:
        """Bytes of all clips in the folder; looks at each of them."""
        return sum(size for _, size in clip_files(self.folder))

    def __len__(self) -> int:
        return sum(1 for _ in clip_files(self.folder))

    def _loaded(self, source: object) -> Array:
        clip: Array = np.asarray(self.load(source, sample_rate=self.sample_rate), dtype=np.float32)
        if clip.ndim != 1:
            raise InvalidArgumentError(f"load returned an array of shape {clip.shape}", "return shape (samples,)")
        return clip

    def clear(self) -> None:
        """Remove every clip from the folder."""
        for path, _ in clip_files(self.folder):
            path.unlink(missing_ok=True)
        self._start()

    def _start(self) -> None:
        super()._start()
        self._room = Room(self.folder, self.max_bytes, self.keep_free_bytes)
        self.unsaved = 0

    def _path(self, key: Key) -> str:
        name = hashlib.blake2b(f"{key} {self._made_of}".encode(errors="surrogateescape"), digest_size=16).hexdigest()
        return f"{self.folder}{os.sep}{name[:2]}{os.sep}{name}{SUFFIX}"

    def _find(self, key: Key) -> Array | None:
        try:
            return read_clip(self._path(key))
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return None
            raise UnsupportedError(
                f"too many clips of {self.folder} are held at once: {error.strerror}", "copy the clips that you keep"
            ) from error

    def _keep(self, key: Key, clip: Array) -> Array:
        try:
            problem = self._room.refusal(clip.nbytes)
            if not problem:
                self._room.written(write_clip(Path(self._path(key)), clip))
                return clip
        except OSError as error:
            problem = self._room.stop(f"a clip cannot be written: {error.strerror or error}")
        with self._lock:
            self.unsaved += 1
            first = self.unsaved == 1
        if first:
            warnings.warn(f"{self.folder}: {problem}; clips are decoded each time", CacheNotKeptWarning, stacklevel=3)
        return clip

    def __getstate__(self) -> dict[str, object]:
        names = ("folder", "sample_rate", "load", "max_bytes", "keep_free_bytes")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        unsaved = f", {self.unsaved} not kept" if self.unsaved else ""
        return f"ResampledCache({str(self.folder)!r}, {self.sample_rate} Hz{self._hit_rate()}{unsaved})"
