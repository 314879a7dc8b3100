"""The clips of a scan in columns: a million of them are a few arrays, and each ``Clip`` is made on access."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, repeat
from typing import Any, overload


@dataclass(frozen=True)
class Clip:
    """One audio file or buffer; ``duration_s`` is None and ``error`` has the reason when it cannot be used.

    ``claimed_duration_s`` is the length in the header, only when the file holds something else. ``bits`` are those of a
    stored sample, 0 where the codec has none. ``method`` is how the duration is known: ``"header"`` (and the file's
    size agrees), ``"tail"`` (from the end of the file), ``"walked"`` (frames were counted one by one), ``"estimated"``
    (from a rate or a sample of frames, where counting is impossible or takes too long), ``"given"`` (by the caller).
    """

    path: str
    duration_s: float | None
    claimed_duration_s: float | None
    sample_rate: int
    channels: int
    bits: int
    codec: str
    method: str
    size_bytes: int
    error: str


PAGE = 1 << 16  # clips a page; all but the last are full
_KIND = ("sample_rate", "channels", "bits", "codec", "method")
COLUMNS = ("path", "duration_s", "claimed_duration_s", *_KIND, "size_bytes", "error")


class _Page:
    """Some clips as the library sends them (core/dataset/page.go)."""

    def __init__(self, sent: dict[str, Any], view: memoryview) -> None:
        self.count: int = sent["count"]
        n = self.count
        self.durations: array[float] = _numbers("d", view[: 8 * n])
        self.sizes: array[int] = _numbers("q", view[8 * n : 16 * n])
        self.kinds: array[int] = _numbers("I", view[24 * n : 28 * n])  # behind the digests
        self.lengths: array[int] = _numbers("I", view[28 * n : 32 * n])
        self.paths = str(view[32 * n :], "utf-8")
        self.claims: dict[int, float] = {claim["index"]: claim["seconds"] for claim in sent["claims"]}
        self.errors: dict[int, str] = {problem["index"]: problem["error"] for problem in sent["errors"]}

    @cached_property
    def ends(self) -> array[int]:
        """Where each path ends in ``paths``, computed on first access."""
        return array("Q", accumulate(self.lengths))

    def path(self, i: int) -> str:
        return self.paths[self.ends[i - 1] if i else 0 : self.ends[i]]

    def duration(self, i: int) -> float | None:
        seconds = self.durations[i]
        return None if math.isnan(seconds) else seconds


def _numbers(kind: str, encoded: memoryview) -> array[Any]:
    numbers = array(kind)
    numbers.frombytes(encoded)
    return numbers


Fetch = Callable[[int, int], tuple[dict[str, Any], memoryview]]  # a page from an offset on, and its columns


class Clips(Sequence[Clip]):
    """Every clip of a scan in source order, bad ones included: a sequence whose elements are made when asked for.

    A slice is a list. ``column`` returns one field of all clips without making any ``Clip``.
    """

    def __init__(self, fetch: Fetch | None = None) -> None:
        self._pages: list[_Page] = []
        self._kinds: list[tuple[Any, ...]] = []
        self._count = 0
        if fetch is not None:
            self._load(fetch)

    def _load(self, fetch: Fetch) -> None:
        while True:
            sent, columns = fetch(self._count, PAGE)
            self._kinds = [tuple(kind[name] for name in _KIND) for kind in sent["kind_list"]]
            if sent["count"]:
                self._pages.append(_Page(sent, columns))
                self._count += sent["count"]
            if sent["count"] < PAGE:
                return

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Clip: ...
    @overload
    def __getitem__(self, index: slice) -> list[Clip]: ...
    def __getitem__(self, index: int | slice) -> Clip | list[Clip]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"clip {index} of {self._count}")
        page, i = divmod(index % self._count, PAGE)
        return self._clip(self._pages[page], i)

    def __iter__(self) -> Iterator[Clip]:
        return (self._clip(page, i) for page in self._pages for i in range(page.count))

    def _clip(self, page: _Page, i: int) -> Clip:
        rate, channels, bits, codec, method = self._kinds[page.kinds[i]]
        claimed, error = page.claims.get(i), page.errors.get(i, "")
        return Clip(page.path(i), page.duration(i), claimed, rate, channels, bits, codec, method, page.sizes[i], error)

    def column(self, name: str) -> list[Any]:
        """One field of every clip, by its name in ``Clip``, in order."""
        values: list[Any] = []
        for page in self._pages:
            values += self._column(page, name)
        return values

    def _column(self, page: _Page, name: str) -> Any:
        if name in _KIND:
            values = [kind[_KIND.index(name)] for kind in self._kinds]
            return [values[number] for number in page.kinds]
        if name == "size_bytes":
            return page.sizes
        if name == "error":
            return map(page.errors.get, range(page.count), repeat(""))
        read: Any = {"path": page.path, "duration_s": page.duration, "claimed_duration_s": page.claims.get}
        return map(read[name], range(page.count))

    @property
    def durations(self) -> array[float]:
        """Seconds of every clip as an array of doubles, not a number (NaN) for bad ones."""
        seconds: array[float] = array("d")
        for page in self._pages:
            seconds.extend(page.durations)
        return seconds

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Clips | list | tuple):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        return f"<{self._count} clips>"
