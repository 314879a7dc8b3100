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
    """Calling one with a clip's source gives the clip; ``_hits`` and ``_misses`` are counted there."""

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

    def _loaded(self, source: Any, clip: Array) -> None:
        """Note a clip in which nothing is heard."""
        if clip.ndim == 1 and clip.dtype.kind == "f" and is_silent(clip):
            with self._lock:
                self._silent.append(name_of(source))

    def _share_found(self) -> str:
        """For ``repr``; empty before the first clip."""
        asked = self._hits + self._misses
        return f", {self._hits / asked:.0%} of {asked} found" if asked else ""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
