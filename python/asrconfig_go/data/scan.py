"""Audio datasets: every file's duration from its header, in parallel, and their statistics."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from .._core import native
from .._core.checks import Cluster, checked
from .._core.defaults import SAMPLING_RATE
from .._core.input_units import InputUnit
from .._core.output import Advance, ProgressBar
from .._core.records import from_json
from ..errors import InvalidArgumentError
from .clips import COLUMNS, Clip, Clips
from .data_records import BadFile
from .hf_sources import clips_piece
from .pieces import Piece, Source
from .prepared_rows import PreparedRows, examples_of
from .profile import DatasetProfile
from .scan_jobs import scan_cache, scan_job, wait
from .sources import read_source

__all__ = ["BadFile", "Clip", "Clips", "DatasetProfile", "ScanResult", "scan_audio"]

_TEXTS = 50_000  # fetched per call


@dataclass(frozen=True, repr=False)
class ScanResult:
    """What a scan found: the profile, and every clip in source order, bad ones included."""

    profile: DatasetProfile
    clips: Clips
    unit: InputUnit | None = None
    """What the lengths of rows count that hold a model's input; None of audio."""
    source: Any = field(default=None, compare=False)
    """What was scanned."""

    @property
    def durations(self) -> array[float]:
        """Seconds of every clip as an array of doubles, not a number (NaN) for bad ones."""
        return self.clips.durations

    def to_dict(self) -> dict[str, list[Any]]:
        """The table of clips as one list for each field of ``Clip``, as pandas and datasets take it."""
        return {name: self.clips.column(name) for name in COLUMNS}

    def __len__(self) -> int:
        return len(self.clips)

    def __repr__(self) -> str:
        return repr(self.profile)

    def _repr_html_(self) -> str:
        return self.profile._repr_html_()

    def plot(self, ax: Any = None) -> Any:
        """The histogram by matplotlib (see ``DatasetProfile.plot``)."""
        return self.profile.plot(ax)


class ScanSettings(TypedDict, total=False):
    """Keywords of ``scan_audio`` besides ``sample_size``."""

    sampling_rate: int
    seed: int
    batch_size: int
    workers: int
    cache: bool
    progress: bool
    allow_empty: bool
    clips: bool
    model: Any
    collator: Any
    cluster: Cluster | None


def scan_audio(
    source: Any,
    *,
    sample_size: int | None = None,
    sampling_rate: int = SAMPLING_RATE,
    seed: int = 0,
    batch_size: int = 8,
    workers: int = 0,
    cache: bool = True,
    progress: bool = True,
    allow_empty: bool = False,
    clips: bool = True,
    model: Any = None,
    collator: Any = None,
    cluster: Cluster | None = None,
) -> ScanResult:
    """Measure every clip of ``source`` without decoding it.

    ``source`` is one of these:

    - a folder: of audio, of tar or Parquet files, a Kaldi data folder, or what ``save_to_disk`` wrote;
    - an audio file, or a list of paths;
    - a manifest: .jsonl (NeMo, Lhotse, …), .csv, .tsv (Common Voice, fairseq), .scp, segments, utt2dur (Kaldi), or .txt
      with one path a line, also with .gz. A row that selects a piece of a file counts as that piece;
    - tar shards or Parquet files: a path, a list, or a pattern such as ``"train-{000000..000099}.tar"``;
    - a ``datasets.Dataset`` with an ``Audio`` column (or one of paths, or ``input_values``), a ``pyarrow.Table`` or a
      ``pandas.DataFrame``; of a ``DatasetDict`` the split ``train``, or all splits where none is called so;
    - a list of 1-D arrays at ``sampling_rate`` hertz, or of ``{"array", "sampling_rate"}``;
    - rows that hold a model's input: columns or keys ``input_values``, ``input_features``, ``input_ids``. Frames last
      as long as ``model`` (see ``profile_model``) determines; 50 tokens count as a second;
    - rows of any other kind with a length, for which ``collator`` is given, a Trainer's: some are collated, each alone;
    - the result of another scan, which is returned.

    ``sample_size`` measures a random sample drawn with ``seed`` instead of all; of a streamed dataset 200 are read
    by default. ``batch_size`` is that of the profile's padding. ``workers`` 0 means four for each
    usable core. Without ``clips`` the result has the profile alone, which saves time on millions of files.

    With ``cache`` the durations of files are kept in the user's cache folder (``ASRCONFIG_CACHE``, else the XDG one)
    and believed as long as a file's size and modification times stay the same and the library is the same.

    ``cluster`` ``"ray"`` or ``"spark"`` scans on the cluster that this process can reach, with the same result (see
    docs/launching.md): a folder, manifest, tar shards or paths that all its machines see under the same name.

    Bad files are counted and listed in the profile; when no file is usable an ``EmptyDatasetError`` is raised, or, with
    ``allow_empty``, a profile of zeros is given. Raises ``NotFoundError``, ``EmptyDatasetError`` or
    ``InvalidArgumentError``.

    >>> found = scan_audio(CLIPS, progress=False)
    >>> len(found), found.clips[0].codec, round(found.profile.max_s, 2)
    (310, 'mp3', 1.95)
    """
    if sample_size is not None and (type(sample_size) is not int or sample_size < 1):
        raise InvalidArgumentError(
            f"sample_size = {sample_size!r} is not a positive whole number", "None measures every file"
        )
    if isinstance(source, ScanResult):
        if sample_size is not None:
            raise InvalidArgumentError(
                f"sample_size = {sample_size} of clips that were scanned already", "scan_audio(source, sample_size=…)"
            )
        return source
    options: dict[str, Any] = {"workers": workers, "cache": scan_cache(cache), "batch_size": batch_size, "seed": seed}
    prepared = PreparedRows(model, examples_of(source, collator, model))
    listed = read_source(source, sampling_rate=sampling_rate, sample_size=sample_size, seed=seed, prepared=prepared)
    if listed.unit is not None:
        options["row_kind"] = listed.unit.row_kind
    with ProgressBar("Scanning audio", "file", listed.total, progress) as advance:
        if cluster is not None:
            from .scan_jobs import read_parts

            listed = read_parts(listed, checked("cluster", cluster, Cluster), {**options, "sample_size": sample_size})
        if listed.request is None:
            with scan_job("scan.open", options) as job:
                _add_pieces(job, listed, advance)
                _finish(job, listed, allow_empty)
                return replace(_result(job, clips), unit=listed.unit, source=source)
        options |= {"sample_size": sample_size, "allow_empty": allow_empty}
        with scan_job("scan.start", {**listed.request, **options}) as job:
            wait(job, advance)
            return replace(_result(job, clips), source=source)


def scan_with_texts(
    listed: Source, column: str | None, *, workers: int, progress: bool
) -> tuple[ScanResult, list[str | None]]:
    """Every clip of a source that the library lists, and its transcript in the manifest or shard."""
    request = {**(listed.request or {}), "texts": True, "text_field": column or "", "allow_empty": True}
    request |= {"workers": workers, "cache": scan_cache(True)}
    with (
        ProgressBar("Scanning audio", "file", listed.total, progress) as advance,
        scan_job("scan.start", request) as job,
    ):
        wait(job, advance)
        texts: list[str | None] = []
        while page := native.call("scan.texts", {"job": job, "offset": len(texts), "limit": _TEXTS}):
            texts += page
        return _result(job, True), texts


def clip_seconds(clips: Sequence[Any]) -> array[float]:
    """Seconds of a stream's clips by their headers; not a number where one cannot be read."""
    stream = Source(None, lambda: iter((clips_piece(clips),)), "a stream")
    with scan_job("scan.open", {"cache": scan_cache(False)}) as job:
        _add_pieces(job, stream, lambda done, total: None)
        _finish(job, stream, allow_empty=True)
        return _result(job, True).durations


def _add_pieces(job: int, source: Source, advance: Advance) -> None:
    """Measure a source piece by piece, each while the next one is read."""
    piece = None  # a reference, as its buffers are borrowed
    for following in source.pieces():
        if piece is not None:
            wait(job, advance, source.total)
        piece = following
        native.call("scan.add", {"job": job, **_piece_request(piece)}, piece.columns)
    wait(job, advance, source.total)


def _piece_request(piece: Piece) -> dict[str, Any]:
    if piece.arrow is not None:
        return {"arrow": piece.arrow}
    if piece.page is not None:
        return {"page": piece.page}
    return {
        "clips": [clip for _, clip in piece.clips],
        "clip_rows": [row for row, _ in piece.clips],
        "buffers": piece.buffers,
        "buffer_rows": piece.buffer_rows,
        "paths": piece.paths,
        "path_rows": piece.path_rows,
    }


def _finish(job: int, source: Source, allow_empty: bool) -> None:
    request = {"job": job, "source": source.label, "allow_empty": allow_empty}
    if source.sampled:
        request |= {"population": source.population, "sampled": True, "shards": source.shards or None}
    native.call("scan.end", request)
    wait(job)


def _result(job: int, clips: bool) -> ScanResult:
    profile = from_json(DatasetProfile, native.call("scan.result", {"job": job}))
    if not clips:
        return ScanResult(profile, Clips())
    return ScanResult(
        profile, Clips(lambda at, n: native.exchange("scan.clips", {"job": job, "offset": at, "limit": n}))
    )
