"""The result of a scan: a dataset's clips in columns, and their profile.

A million clips are a few arrays, and each ``Clip`` is made on access. Nothing here reads files or decodes audio.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, overload

from .._core.batches import InputUnit
from .._core.records import to_json
from .._core.render import Shown, plot
from .._core.settings import SAMPLING_RATE
from ..errors import EmptyDatasetError
from .data_records import DatasetRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE = 1 << 16  # clips a page; all but the last are full
_KIND = ("sample_rate", "channels", "bits", "codec", "method")
COLUMNS = ("path", "duration_s", "claimed_duration_s", *_KIND, "size_bytes", "error")


@dataclass(frozen=True)
class Clip:
    """One audio file or buffer.

    Attributes:
        path: The file, or the name of the buffer.
        duration_s: The duration in seconds; None when the clip cannot be used.
        claimed_duration_s: The duration in the header, only when the file holds something else; otherwise None.
        sample_rate: The stored rate in hertz.
        channels: The number of channels.
        bits: The bits of a stored sample; 0 where the codec has none.
        codec: The name of the codec.
        method: How the duration was determined: ``"header"`` (and the file's size agrees), ``"tail"`` (from the end of
            the file), ``"walked"`` (frames were counted one by one), ``"estimated"`` (from a rate or a sample of
            frames, where counting is impossible or takes too long), ``"given"`` (by the caller).
        size_bytes: The size as stored.
        error: Why the clip cannot be used; ``""`` where it can.
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


Fetch = Callable[[int, int], tuple[dict[str, Any], memoryview]]  # a page from an offset on, and its columns


class Clips(Sequence[Clip]):
    """Every clip of a scan in source order, bad ones included: a sequence whose elements are made on access.

    A slice is a list. ``column`` returns one field of all clips without making any ``Clip``.

    Args:
        fetch: A function from an offset and a number of clips to a page of clips as the library returns it; None for no
            clips.
    """

    def __init__(self, fetch: Fetch | None = None) -> None:
        self._durations, self._sizes = array("d"), array("q")
        self._kinds, self._lengths = array("I"), array("I")  # the latter of paths, in characters
        self._claims: dict[int, float] = {}
        self._errors: dict[int, str] = {}
        self._kind_list: list[tuple[Any, ...]] = []
        paths: list[str] = []
        while fetch is not None:
            start = len(self)
            sent, columns = fetch(start, PAGE)
            paths.append(self._add(sent, columns, start))
            if sent["count"] < PAGE:
                break
        self._paths = "".join(paths)

    def _add(self, sent: dict[str, Any], columns: memoryview, start: int) -> str:
        """Add a page as the library sends it (core/dataset/page.go), and return its paths."""
        n = sent["count"]
        self._durations.frombytes(columns[: 8 * n])
        self._sizes.frombytes(columns[8 * n : 16 * n])
        self._kinds.frombytes(columns[24 * n : 28 * n])  # behind the digests
        self._lengths.frombytes(columns[28 * n : 32 * n])
        self._claims.update((start + claim["index"], claim["seconds"]) for claim in sent["claims"])
        self._errors.update((start + problem["index"], problem["error"]) for problem in sent["errors"])
        self._kind_list = [tuple(kind[name] for name in _KIND) for kind in sent["kind_list"]]
        return str(columns[32 * n :], "utf-8")

    @cached_property
    def _ends(self) -> array[int]:
        """Where each path ends among all."""
        return array("Q", accumulate(self._lengths))

    def __len__(self) -> int:
        return len(self._durations)

    @overload
    def __getitem__(self, index: int) -> Clip: ...
    @overload
    def __getitem__(self, index: slice) -> list[Clip]: ...
    def __getitem__(self, index: int | slice) -> Clip | list[Clip]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"clip {index} of {len(self)}")
        i = index % len(self)
        rate, channels, bits, codec, method = self._kind_list[self._kinds[i]]
        claimed, error, size = self._claims.get(i), self._errors.get(i, ""), self._sizes[i]
        return Clip(self._path(i), self._duration(i), claimed, rate, channels, bits, codec, method, size, error)

    def _path(self, i: int) -> str:
        return self._paths[self._ends[i - 1] if i else 0 : self._ends[i]]

    def _duration(self, i: int) -> float | None:
        seconds = self._durations[i]
        return None if math.isnan(seconds) else seconds

    def column(self, name: str) -> list[Any]:
        """Return one field of every clip.

        Args:
            name: The name of the field in ``Clip``.

        Returns:
            The values in the order of the clips.
        """
        if name in _KIND:
            values = [kind[_KIND.index(name)] for kind in self._kind_list]
            return [values[number] for number in self._kinds]
        read: dict[str, Callable[[int], object]] = {
            "path": self._path, "duration_s": self._duration, "claimed_duration_s": self._claims.get,
            "size_bytes": self._sizes.__getitem__, "error": lambda i: self._errors.get(i, ""),
        }  # fmt: skip
        return list(map(read[name], range(len(self))))

    @property
    def durations(self) -> array[float]:
        """Seconds of every clip as an array of doubles, not a number (NaN) for bad ones."""
        return self._durations[:]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Clips | list | tuple):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        return f"<{len(self)} clips>"


@dataclass(frozen=True, repr=False)
class DatasetProfile(Shown, DatasetRecord, kind="dataset"):
    """Statistics of a dataset, over its usable clips that were measured, in seconds, bytes and hertz.

    The fields are those of ``DatasetRecord``. Some of them require an explanation:

    - ``sampled``: only a sample of the clips was measured. Counts, hours and bytes are scaled to all of them, and
      ``sampling`` has their errors.
    - ``row_kind`` is ``"texts"`` where rows hold tokens. 50 tokens count as one second, and are shown as tokens.
    - ``padding`` is that of batches of ``batch_size`` measured clips.
    - ``warnings`` are likely problems of a training. Silent clips are not among them, as nothing is decoded.

    >>> profile = scan_audio(CLIPS, progress=False).profile
    >>> profile.sample_count, profile.bad_count
    (310, 0)
    """

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw the histogram of durations with matplotlib.

        Args:
            ax: The axes to draw on; None for a new figure.

        Returns:
            ``ax``, or the new figure.

        Raises:
            UnsupportedError: Where matplotlib is not installed.
            EmptyDatasetError: Without a usable clip.
        """
        if not self.measured_count:
            raise EmptyDatasetError(f"there is no usable clip to draw ({self.source})", "see bad_files for the reasons")
        return plot("dataset", to_json(self), ax)


@dataclass(frozen=True, repr=False)
class ScanResult:
    """The result of ``scan_audio``.

    Attributes:
        profile: The statistics.
        clips: Every clip in source order, bad ones included.
        unit: The unit of a row's length, where rows hold a model's input (samples, frames, tokens); None of audio.
        source: The dataset as it was passed to the scan.
    """

    profile: DatasetProfile
    clips: Clips
    unit: InputUnit | None = None
    source: object = field(default=None, compare=False)

    @property
    def durations(self) -> array[float]:
        """Seconds of every clip, NaN for bad ones."""
        return self.clips.durations

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the clips in columns, for ``pandas.DataFrame`` and ``Dataset.from_dict``.

        Returns:
            A list for each field of ``Clip``, by its name.
        """
        return {name: self.clips.column(name) for name in COLUMNS}

    def __len__(self) -> int:
        return len(self.clips)

    def __repr__(self) -> str:
        return repr(self.profile)

    def _repr_html_(self) -> str:
        return self.profile._repr_html_()

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw the histogram of durations; see ``DatasetProfile.plot``.

        Args:
            ax: The axes to draw on; None for a new figure.

        Returns:
            ``ax``, or the new figure.
        """
        return self.profile.plot(ax)


def clips_by_use(
    durations: Iterable[float], longest_s: float | None = None
) -> tuple[array[int], array[int], array[int]]:
    """The rows of clips to train on, of those over ``longest_s``, and of those that cannot be read (NaN)."""
    limit = math.inf if longest_s is None else longest_s
    usable, too_long, unreadable = array("q"), array("q"), array("q")
    for row, seconds in enumerate(durations):
        (unreadable if math.isnan(seconds) else too_long if seconds > limit else usable).append(row)
    return usable, too_long, unreadable


def usable_seconds(durations: Sequence[float], longest_s: float | None = None) -> array[float]:
    """The durations of the clips to train on."""
    return array("d", (durations[row] for row in clips_by_use(durations, longest_s)[0]))


def lengths_of(durations: Iterable[float], rate: int = SAMPLING_RATE) -> list[int]:
    """Clips' lengths in samples, 0 of those that cannot be read: what the Trainer's column of lengths holds."""
    return [0 if math.isnan(seconds) else round(seconds * rate) for seconds in durations]
