"""Audio datasets: every file's duration from its header, in parallel, and what the durations add up to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from . import _lib
from ._errors import InvalidArgumentError
from ._records import from_json, to_json
from .pieces import Piece, Source
from .sources import read_source

_POLL_MS = 50  # also how long Ctrl-C may wait
_PAGE = 20_000  # clips fetched per call


@dataclass(frozen=True)
class Clip:
    """One audio file or buffer; ``duration_s`` is None and ``error`` says why when it cannot be used.

    ``claimed_duration_s`` is what the header says, only when the file holds something else. ``bits`` are those of a
    stored sample, 0 where the codec has none. ``method`` says how the duration is known: ``"header"`` (and the file's
    size agrees), ``"tail"`` (the end of the file tells), ``"walked"`` (frames were counted one by one), ``"estimated"``
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


@dataclass(frozen=True, repr=False)
class DatasetProfile:
    """The audio summed up; statistics speak of the usable clips that were measured. Seconds, bytes, hertz.

    With ``sampled`` a random sample stands for the whole: counts, hours and bytes are then scaled to it.
    """

    sample_count: int
    measured_count: int
    sampled: bool
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
    source: str

    def __repr__(self) -> str:
        from .display import dataset_text

        return dataset_text(self)

    def _repr_html_(self) -> str:
        from .display import as_html

        return as_html("Dataset", repr(self))


@dataclass(frozen=True)
class ScanResult:
    """What a scan found: the profile, and every clip in source order, bad ones included."""

    profile: DatasetProfile
    clips: tuple[Clip, ...]


def scan_audio(
    source: Any,
    *,
    sample_size: int | None = None,
    sampling_rate: int = 16_000,
    seed: int = 0,
    workers: int = 0,
    progress: bool = True,
    allow_empty: bool = False,
    clips: bool = True,
) -> ScanResult:
    """Measure every clip of ``source`` without decoding it.

    ``source`` is a folder, an audio file, a manifest (.jsonl, .csv, .tsv), a list of paths, a ``datasets.Dataset`` with
    an ``Audio`` (or ``input_values``) column, a list of 1-D arrays at ``sampling_rate`` hertz, or a list of
    ``{"array", "sampling_rate"}``. ``sample_size`` measures a random sample drawn with ``seed`` instead of all; of a
    streamed dataset 200 are read unless told otherwise. ``workers`` 0 means one per usable core. Without ``clips`` the
    result has the profile alone, which saves time on millions of files.

    Bad files are counted and listed in the profile; when no file is usable an ``EmptyDatasetError`` is raised, or, with
    ``allow_empty``, a profile of zeros is given. Raises ``NotFoundError``, ``EmptyDatasetError`` or
    ``InvalidArgumentError``.
    """
    _check_sample_size(sample_size)
    found = read_source(source, sampling_rate=sampling_rate, sample_size=sample_size, seed=seed)
    with _ProgressBar(found.total, progress) as advance:
        if found.request is None:
            measured = _pieces(found, workers, advance)
            profile = _summed(found, measured, allow_empty)
            return ScanResult(profile, tuple(measured) if clips else ())
        options = {"sample_size": sample_size, "seed": seed, "workers": workers, "allow_empty": allow_empty}
        with _scan({**found.request, **options}, advance) as job:
            return ScanResult(_profile(job), tuple(_clips(job)) if clips else ())


def _check_sample_size(sample_size: int | None) -> None:
    if sample_size is None:
        return
    if isinstance(sample_size, bool) or not isinstance(sample_size, int) or sample_size < 1:
        raise InvalidArgumentError(
            f"sample_size = {sample_size!r} is not a positive whole number", "None measures every file"
        )


def _pieces(found: Source, workers: int, advance: _Advance) -> list[Clip]:
    """The clips of a source that is read piece by piece."""
    clips: list[Clip] = []
    for piece in found.pieces():
        clips += _measure(piece, workers)
        advance(len(clips), found.total)
    return clips


def _measure(piece: Piece, workers: int) -> list[Clip]:
    """The clips of one piece in its order: known ones as they are, buffers and paths by a scan each."""
    measured: dict[int, Clip] = {index: Clip(**clip) for index, clip in piece.known}
    for positions, request in (
        (piece.buffer_rows, {"buffers": piece.buffers}),
        (piece.path_rows, {"paths": piece.paths}),
    ):
        if positions:
            with _scan({**request, "workers": workers, "allow_empty": True}) as job:
                measured.update(zip(positions, _clips(job), strict=True))
    return [measured[index] for index in sorted(measured)]


def _summed(found: Source, clips: list[Clip], allow_empty: bool) -> DatasetProfile:
    request = {"clips": [to_json(clip) for clip in clips], "source": found.label, "allow_empty": allow_empty}
    if found.sampled:
        request |= {"population": found.population, "sampled": True}
    with _scan(request) as job:
        return _profile(job)


_Advance = Callable[[int, int | None], None]


@contextlib.contextmanager
def _scan(request: dict[str, Any], advance: _Advance = lambda done, total: None) -> Iterator[int]:
    """The handle of a finished scan. Whatever happens, Ctrl-C included, it is cancelled and released."""
    job = _lib.call("scan.start", request)["job"]
    try:
        while True:
            state = _lib.call("scan.poll", {"job": job, "wait_ms": _POLL_MS})
            advance(state["done"], state["total"])
            if state["finished"]:
                break
        yield job
    finally:
        _lib.call("scan.cancel", {"job": job})


def _profile(job: int) -> DatasetProfile:
    return from_json(DatasetProfile, _lib.call("scan.result", {"job": job}))


def _clips(job: int) -> Iterator[Clip]:
    offset = 0
    while page := _lib.call("scan.clips", {"job": job, "offset": offset, "limit": _PAGE}):
        yield from (Clip(**clip) for clip in page)
        offset += len(page)


class _ProgressBar:
    """A tqdm bar that shows only on scans of more than half a second; nothing without tqdm."""

    def __init__(self, total: int | None, shown: bool) -> None:
        self._bar = _tqdm(total) if shown else None

    def __enter__(self) -> _Advance:
        return self._advance

    def _advance(self, done: int, total: int | None) -> None:
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(done - self._bar.n)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _tqdm(total: int | None) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc="Scanning audio", unit="file", delay=0.5, leave=False)
