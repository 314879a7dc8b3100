"""Records of the library's answers, field by field; written by build/generate from their declarations in Go."""

from __future__ import annotations

from dataclasses import dataclass

from .._core.declared import RowKind


@dataclass(frozen=True)
class ManifestRow:
    """One row of a manifest, or a file of a folder."""

    path: str
    """Absolute; of a line that cannot be read its file and number."""
    offset: float
    """The number of seconds from which on the file is meant."""
    seconds: float
    """The duration of a piece; 0: to the end of the file."""
    piece: bool
    """Whether the row selects a part of the file."""
    text: str | None
    """The transcript, None without one."""
    extra: tuple[str | None, ...]
    """The columns that were asked for, None where none has a value."""
    error: str
    """Why the line cannot be read, ``""`` where it can."""


@dataclass(frozen=True)
class BadFile:
    """A file that is left out, with the reason."""

    path: str
    error: str


@dataclass(frozen=True)
class Sampling:
    """How far the figures of a sample may be off, with 95 % confidence."""

    shards: int
    """Shards of a stream that rows were read from; 0 where clips were drawn one by one."""
    population: int | None
    """Clips that were drawn from; None when unknown."""
    mean_low_s: float
    """The mean duration of all clips is at least this."""
    mean_high_s: float | None
    """The mean duration of all clips is at most this; None for a single clip."""
    longer_share: float
    """0 to 1: at most this share of all clips is longer than the longest measured one."""


@dataclass(frozen=True)
class Histogram:
    """The number of clips by duration: counts[i] clips last from edges_s[i] to less than edges_s[i + 1] seconds.

    The last bin includes its upper edge.
    """

    edges_s: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Padding:
    """What batches in one order hold: each of their clips is padded to the longest."""

    order: str
    """``"random"``, ``"grouped"`` (as group_by_length of the Trainer), ``"bucketed"`` (ten buckets of equal seconds) or
    ``"sorted"``.
    """
    padded_s: float
    """Seconds of all batches, padding included."""
    waste: float
    """0 to 1: the share of these seconds that is padding."""


@dataclass(frozen=True)
class Outliers:
    """A few long clips that take up much of the batches' time."""

    over_s: float
    """Seconds that they exceed."""
    count: int
    """How many of the measured clips they are."""
    padded_share: float
    """0 to 1: the share of the seconds of random batches that leaving them out saves."""


@dataclass(frozen=True)
class Duplicates:
    """Clips that are very likely copies of others: they have the same size and duration, and the same bytes where those
    were read.
    """

    count: int
    """Measured clips that copy others."""
    hours: float
    """How long the copies last."""
    groups: tuple[tuple[str, ...], ...]
    """Paths of copies: at most 20 groups of at most 5."""


@dataclass(frozen=True)
class DatasetRecord:
    """Summarises a dataset. Its statistics cover the usable clips that were measured."""

    row_kind: RowKind
    """What a row is: ``"clips"``, or ``"texts"`` with a length in tokens, 50 of which count as a second."""
    sample_count: int
    """Clips in the dataset without bad ones; an estimate when ``sampled``."""
    measured_count: int
    """Usable clips that were measured."""
    sampled: bool
    """Whether a random sample stands for the whole dataset."""
    sampling: Sampling | None
    """How far the sample may be off; None when all clips were measured or none is usable."""
    bad_count: int
    """Clips that cannot be used."""
    bad_files: tuple[BadFile, ...]
    """The first 10 000 bad clips, in source order."""
    shortened_count: int
    """Clips that hold less than their header claims."""
    mean_s: float
    std_s: float
    """Population standard deviation."""
    min_s: float
    max_s: float
    percentiles_s: dict[str, float]
    """``"p1"`` ``"p5"`` ``"p10"`` ``"p25"`` ``"p50"`` ``"p75"`` ``"p90"`` ``"p95"`` ``"p99"``, linear interpolation."""
    histogram: Histogram
    total_hours: float
    """Of all clips; an estimate when ``sampled``."""
    size_bytes: int
    """As stored; an estimate when ``sampled``."""
    decoded_bytes: int
    """As 16 kHz mono float32, seconds × 16000 × 4; an estimate when ``sampled``."""
    share_over_30s: float
    """0 to 1, the share of clips over 30 s."""
    sample_rates: dict[str, int]
    """Clips by rate, in Hz as text."""
    channels: dict[str, int]
    """Clips by channel count as text."""
    codecs: dict[str, int]
    """Clips by codec."""
    methods: dict[str, int]
    """Clips by how durations were determined."""
    batch_size: int
    """Clips per batch that ``padding`` assumes."""
    padding: tuple[Padding, ...]
    """Of the measured clips, by order; empty without any."""
    outliers: Outliers | None
    """None unless a few clips take much time."""
    duplicates: Duplicates
    warnings: tuple[str, ...]
    """What may go wrong in training; silent clips are not detected."""
    source: str
    """What was read: "folder /data", "list of 40 paths", "40 arrays"."""
