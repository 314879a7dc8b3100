"""What the caches of clips share: they count, are filled beforehand, and travel to workers as their settings."""

from __future__ import annotations

from typing import Any

from .cache_filling import Filled, fill
from .padded_clips import Array


class ClipCache:
    """Calling one with a clip's source gives the clip; ``_hits`` and ``_misses`` are counted there."""

    _hits = _misses = 0

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
        rows with ``audio``. Clips that cannot be loaded are counted, and the first error is kept.
        """
        return fill(self, sources, workers, progress)

    def _share_found(self) -> str:
        """For ``repr``; empty before the first clip."""
        asked = self._hits + self._misses
        return f", {self._hits / asked:.0%} of {asked} found" if asked else ""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
