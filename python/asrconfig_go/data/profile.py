"""The profile of a dataset: durations, padding, sampling rates, warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._core.checks import RowKind
from .._core.plot import plot
from .._core.records import to_json
from .._core.render import Shown
from ..errors import EmptyDatasetError


@dataclass(frozen=True)
class BadFile:
    """One file that was counted out, with the reason."""

    path: str
    error: str


@dataclass(frozen=True)
class Histogram:
    """Clips by duration: ``counts[i]`` of ``edges_s[i]`` ≤ duration < ``edges_s[i + 1]``, the last bin closed."""

    edges_s: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Padding:
    """What one way of making batches costs, as each batch lasts as long as its longest clip.

    ``order`` is ``"random"``, ``"grouped"`` (as ``group_by_length`` of the Trainer), ``"bucketed"`` (ten buckets of
    equal seconds) or ``"sorted"``. ``padded_s`` are the seconds that all batches hold, ``waste`` the share of them that
    is padding, 0 to 1.
    """

    order: str
    padded_s: float
    waste: float


@dataclass(frozen=True)
class Outliers:
    """The ``count`` clips over ``over_s`` seconds: without them, random batches hold ``padded_share`` (0 to 1) less."""

    over_s: float
    count: int
    padded_share: float


@dataclass(frozen=True)
class Duplicates:
    """Clips that are very likely copies: the same size, the same length, the same bytes where they were read.

    ``count`` leaves the first of each group out, and ``hours`` is what those last; ``groups`` shows at most 20, with at
    most 5 paths each.
    """

    count: int
    hours: float
    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Sampling:
    """How far a sample may be off, with a certainty of 95 %.

    The mean length of all clips is ``mean_low_s`` to ``mean_high_s`` seconds (None: one clip does not tell), and at
    most ``longer_share`` of them, 0 to 1, are longer than the longest measured one. ``shards`` are those of a stream
    that rows were read from, 0 where clips were drawn one by one; ``population`` is how many there are in all, None if
    unknown.
    """

    shards: int
    population: int | None
    mean_low_s: float
    mean_high_s: float | None
    longer_share: float


@dataclass(frozen=True, repr=False)
class DatasetProfile(Shown, kind="dataset"):
    """The audio summed up; statistics speak of the usable clips that were measured. Seconds, bytes, hertz.

    With ``sampled`` a sample represents the whole: counts, hours and bytes are then scaled to it, and ``sampling``
    reports how far they may be off. ``row_kind`` is ``"texts"`` where rows hold tokens, 50 of which count as a
    second, and are shown as tokens. ``padding`` is for batches of ``batch_size`` measured clips. ``warnings`` are
    likely problems of a training; whether a clip is silent is not judged, as nothing is decoded.

    >>> profile = scan_audio(CLIPS, progress=False).profile
    >>> profile.sample_count, profile.bad_count
    (310, 0)
    """

    sample_count: int
    measured_count: int
    sampled: bool
    sampling: Sampling | None
    bad_count: int
    bad_files: tuple[BadFile, ...]
    shortened_count: int
    mean_s: float
    std_s: float
    min_s: float
    max_s: float
    percentiles_s: dict[str, float]
    histogram: Histogram
    total_hours: float
    size_bytes: int
    decoded_bytes: int
    share_over_30s: float
    sample_rates: dict[str, int]
    channels: dict[str, int]
    codecs: dict[str, int]
    methods: dict[str, int]
    batch_size: int
    padding: tuple[Padding, ...]
    outliers: Outliers | None
    duplicates: Duplicates
    warnings: tuple[str, ...]
    source: str
    row_kind: RowKind = "clips"

    def plot(self, ax: Any = None) -> Any:
        """Draw the histogram with matplotlib, on ``ax`` or a new figure, and give the axes or the figure.

        Raises ``UnsupportedError`` where matplotlib is not installed and ``EmptyDatasetError`` without a usable clip.
        """
        if not self.measured_count:
            raise EmptyDatasetError(f"there is no usable clip to draw ({self.source})", "see bad_files for the reasons")
        return plot("dataset", to_json(self), ax)
