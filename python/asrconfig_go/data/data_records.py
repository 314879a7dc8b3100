"""Records of the library's answers, field by field; written by build/generate from their declarations in Go."""

from __future__ import annotations

from dataclasses import dataclass

from .._core.declared import RowKind


@dataclass(frozen=True)
class BadFile:
    """One file that was counted out, with the reason."""

    path: str
    error: str


@dataclass(frozen=True)
class Sampling:
    """How far a sample may be off, with 95 % confidence."""

    shards: int
    """Those of a stream that rows were read from; 0 where clips were drawn one by one."""
    population: int | None
    """Clips that were drawn from; None: unknown."""
    mean_low_s: float
    """The mean length of all clips is at least this."""
    mean_high_s: float | None
    """And at most this; None: one clip does not tell."""
    longer_share: float
    """0 to 1: at most this share of all clips is longer than the longest measured one."""


@dataclass(frozen=True)
class Histogram:
    """The number of clips by duration: counts[i] of edges_s[i] ≤ duration < edges_s[i + 1], the last bin closed."""

    edges_s: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Padding:
    """The cost of one batching strategy: each batch lasts as long as its longest clip."""

    order: str
    """``"random"``, ``"grouped"`` (as group_by_length of the Trainer), ``"bucketed"`` (ten buckets of equal seconds) or
    ``"sorted"``.
    """
    padded_s: float
    """Seconds that all batches hold, padding included."""
    waste: float
    """0 to 1: the share of them that is padding."""


@dataclass(frozen=True)
class Outliers:
    """A few long clips that much of the batches' time is spent on."""

    over_s: float
    """They are longer than this."""
    count: int
    """Of the measured clips."""
    padded_share: float
    """0 to 1: by how much random batches would hold fewer seconds without them."""


@dataclass(frozen=True)
class Duplicates:
    """Clips that are very likely copies of others: the same size, the same duration, the same bytes where they were
    read.
    """

    count: int
    """Of the measured clips, the first of each group not counted."""
    hours: float
    """What those last."""
    groups: tuple[tuple[str, ...], ...]
    """At most 20, with at most 5 paths each."""


@dataclass(frozen=True)
class DatasetRecord:
    """Summarises the audio. Statistics cover the usable clips that were measured."""

    row_kind: RowKind
    """``"clips"``, or ``"texts"``: tokens, 50 of which count as a second."""
    sample_count: int
    """Clips in the dataset, bad ones not counted; an estimate when ``sampled``."""
    measured_count: int
    """Usable clips that were measured."""
    sampled: bool
    """True when a random sample stands for the whole."""
    sampling: Sampling | None
    """None when all were measured, and without a usable clip."""
    bad_count: int
    """Clips that cannot be used."""
    bad_files: tuple[BadFile, ...]
    """The first 10 000 of them, in source order."""
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
    """Scaled to the whole when ``sampled``."""
    size_bytes: int
    """On disk, scaled when ``sampled``."""
    decoded_bytes: int
    """As 16 kHz mono float32: seconds × 16000 × 4, scaled when ``sampled``."""
    share_over_30s: float
    """0 to 1, by count."""
    sample_rates: dict[str, int]
    """Clips by rate, in Hz as text."""
    channels: dict[str, int]
    """Clips by channel count as text."""
    codecs: dict[str, int]
    """Clips by codec."""
    methods: dict[str, int]
    """Clips by how durations are known."""
    batch_size: int
    """Clips a batch, for ``padding``."""
    padding: tuple[Padding, ...]
    """By order; of the measured clips; empty without any."""
    outliers: Outliers | None
    """None when no few clips take much time."""
    duplicates: Duplicates
    warnings: tuple[str, ...]
    """What may go wrong in training; silence is not looked for."""
    source: str
    """What was read: "folder /data", "list of 40 paths", "40 arrays"."""
