"""Decoded clips in memory, within a budget of bytes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from .._base.checks import checked
from .._base.defaults import SAMPLING_RATE
from .._base.errors import InvalidArgumentError
from ..view.units import exact
from .audio import load_audio
from .cache_keys import Key, clip_key, unchanged
from .clip_cache import ClipCache
from .padded_clips import Array

Load = Callable[[Any], Any]

_ENTRY_BYTES = 500  # of the array object, its key and the dictionary's slots; measured with tracemalloc


class DecodedCache(ClipCache):
    """Keeps the clips that were used last: ``cache(source)`` returns the clip of ``load(source)``, read-only.

    ``max_bytes`` bounds samples and what Python needs to keep them. A file is identified by its path, size and time of
    change, encoded bytes by their digest; arrays pass through. Safe under threads.

    **It belongs to one process.** A DataLoader's workers each have their own: they start empty (spawn) or with what
    the parent had (fork, which shares its memory), so W workers take up to W × ``max_bytes``, and with shuffled data a
    clip is found again only where the same worker had it. Fill it with ``prepare`` before the DataLoader starts, keep
    ``persistent_workers`` on, or use a ``ResampledCache``, which all of them share.

    >>> cache = DecodedCache(1 << 20)
    >>> cache(CLIPS / "test-000.mp3").shape
    (9390,)
    """

    _clips: OrderedDict[Key, Array]
    _pid: int

    def __init__(self, max_bytes: int, *, load: Load = load_audio) -> None:
        if checked("max_bytes", max_bytes, int) < 1:
            raise InvalidArgumentError(f"max_bytes = {max_bytes} keeps nothing", "1 << 30 is a GiB: 4.5 h at 16 kHz")
        self.max_bytes: int = max_bytes
        self.load: Load = load
        self._start()

    @property
    def sample_rate(self) -> int | None:
        """Of the clips in hertz, as far as ``load`` has it."""
        return sample_rate_of(self.load)

    @property
    def nbytes(self) -> int:
        """Memory that the clips take, at most ``max_bytes``."""
        return self._nbytes

    def __len__(self) -> int:
        return len(self._clips)

    def __call__(self, source: Any) -> Array:
        """The clip, from memory or by ``load``, whose errors are raised as they are."""
        if os.getpid() != self._pid:  # forked: another thread may have held the lock in the middle of counting
            clips = self._clips
            self._start()
            self._clips, self._nbytes = clips, sum(_size(*entry) for entry in clips.items())
        key = clip_key(source)
        with self._lock:
            cached = None if key is None else self._clips.get(key)
            if key is not None and cached is not None:
                self._clips.move_to_end(key)
                self._hits += 1
                return cached
            self._misses += 1
        clip: Array = np.asarray(self.load(source))
        self._note_if_silent(source, clip)
        if key is not None and unchanged(source, key):
            clip = self._keep(key, clip)
        return clip

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
                self._nbytes += size
            while self._nbytes > self.max_bytes:
                self._nbytes -= _size(*self._clips.popitem(last=False))
        return own

    def _start(self) -> None:
        self._clips = OrderedDict()
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._hits = self._misses = self._nbytes = 0
        self._silent = []

    def __getstate__(self) -> dict[str, Any]:
        """Settings only: sending the clips to a worker would take longer than decoding them there."""
        return {"max_bytes": self.max_bytes, "load": self.load}

    def __repr__(self) -> str:
        return f"DecodedCache({len(self)} clips, {exact(self._nbytes)} of {exact(self.max_bytes)}{self._hit_rate()})"


def sample_rate_of(load: Any) -> int | None:
    """The sampling rate of a loading function's clips in hertz, None when unknown."""
    if load is load_audio:
        return SAMPLING_RATE
    rate = getattr(load, "sample_rate", None) or getattr(load, "keywords", {}).get("sample_rate")
    return rate if isinstance(rate, int) else sample_rate_of(load.func) if hasattr(load, "func") else None


def _size(key: Key, clip: Array) -> int:
    return int(clip.nbytes) + len(key[0]) + _ENTRY_BYTES
