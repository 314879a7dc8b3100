"""What traces told the planner, kept between sessions: the same question takes half a second of simulation otherwise.

An answer is found by everything that decides it: the trace's own key, the question, the GPU, the clips, and the code.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from .._base import native
from .._base.files import cache_folder
from .._base.fingerprint import fingerprint
from ..memory.trace_cache import TraceCache, code_digest

_MAX_BYTES = 16 * 2**20  # of all answers
_LARGEST = 2**20  # of one; most have a few thousand bytes
_DIGEST = 64  # hexadecimal digits before the answer


@dataclass(frozen=True)
class KeptTable:
    """One answer in the cache."""

    key: str

    @classmethod
    def of(cls, *decided: Any) -> KeptTable:
        """The answer that these JSON values, the library and this package's code decide."""
        library = native.library_path().stat()
        code = [library.st_mtime_ns, library.st_size, code_digest("batching", "memory", "plan")]
        return cls(fingerprint(*decided, code))

    def find(self) -> dict[str, Any] | None:
        """None when there is none, or none that is whole: that is removed."""
        path = self._cache().find(self.key)
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                data = file.read(_LARGEST + 1)
        except OSError:
            return None
        if len(data) > _LARGEST or data[:_DIGEST] != _digest(data[_DIGEST:]):
            self._cache().discard(self.key)
            return None
        found: dict[str, Any] = json.loads(data[_DIGEST:])
        return found

    def store(self, answer: dict[str, Any]) -> None:
        """Keep an answer; where nothing can be written, nothing is kept."""
        body = json.dumps(answer, separators=(",", ":")).encode()
        if len(body) <= _LARGEST - _DIGEST:
            self._cache().store(self.key, _digest(body) + body)

    @staticmethod
    def _cache() -> TraceCache:
        return TraceCache(cache_folder("tables"), _MAX_BYTES)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
