"""What the caches of clips share: they count, are filled beforehand, and travel to workers as their settings."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from .audio import name_of
from .cache_filling import Filled, fill
from .channels import is_silent
from .padded_clips import Array


class ClipCache:
    """Returns the clip of a source when it is called, which counts ``_hits`` and ``_misses``."""

    _hits = _misses = 0
    _lock: threading.Lock
    _silent: list[str]  # names of clips that this process loaded

    def __call__(self, source: Any) -> Array:
        """The clip."""
        raise NotImplementedError

    @property
    def hits(self) -> int:
        """Clips that this process found in the cache."""
        return self._hits

    @property
    def misses(self) -> int:
        """Clips that this process loaded."""
        return self._misses

    def prepare(self, sources: Any, *, workers: int | None = None, progress: bool = True) -> Filled:
        """Load all clips of ``sources`` now, in ``workers`` threads (default: one for each core).

        ``sources`` is a folder, a manifest, a ``datasets.Dataset`` with an audio column, or an iterable of clips or of
        rows with ``audio``. Clips that cannot be loaded are counted, and the first error is kept; so are clips that are
        loaded now and are silent.
        """
        earlier = len(self._silent)
        filled = fill(self, sources, workers, progress)
        return replace(filled, silent=tuple(self._silent[earlier:]))

    def _note_if_silent(self, source: Any, clip: Array) -> None:
        if clip.ndim == 1 and clip.dtype.kind == "f" and is_silent(clip):
            with self._lock:
                self._silent.append(name_of(source))

    def _hit_rate(self) -> str:
        requests = self._hits + self._misses
        return f", {self._hits / requests:.0%} of {requests} found" if requests else ""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
