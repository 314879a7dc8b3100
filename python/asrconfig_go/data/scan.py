"""Audio datasets: every file's duration from its header, in parallel, and their statistics."""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from .._base import native
from .._base.defaults import SAMPLING_RATE
from .._base.errors import InvalidArgumentError
from .._base.files import cache_folder
from .._base.input_units import InputUnit
from .._base.progress import Advance, ProgressBar
from .._base.records import from_json
from .clips import COLUMNS, Clip, Clips
from .pieces import Piece, Source
from .prepared_rows import PreparedRows, examples_of
from .profile import BadFile, DatasetProfile
from .sources import read_source

__all__ = ["BadFile", "Clip", "Clips", "DatasetProfile", "ScanResult", "scan_audio"]

_TEXTS = 50_000  # fetched per call
_POLL_MS = 50  # also how long Ctrl-C may wait


@dataclass(frozen=True, repr=False)
class ScanResult:
    """What a scan found: the profile, and every clip in source order, bad ones included."""

    profile: DatasetProfile
    clips: Clips
    unit: InputUnit | None = None
    """What the lengths of rows count that hold a model's input; None of audio."""

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
      as long as ``model`` (see ``profile_model``) tells; 50 tokens count as a second;
    - rows of any other kind with a length, for which ``collator`` is given, a Trainer's: some are collated, each alone.

    ``sample_size`` measures a random sample drawn with ``seed`` instead of all; of a streamed dataset 200 are read
    by default. ``batch_size`` is that of the profile's padding. ``workers`` 0 means four for each
    usable core. Without ``clips`` the result has the profile alone, which saves time on millions of files.

    With ``cache`` the durations of files are kept in the user's cache folder (``ASRCONFIG_CACHE``, else the XDG one)
    and believed as long as a file's size and modification times stay the same and the library is the same.

    Bad files are counted and listed in the profile; when no file is usable an ``EmptyDatasetError`` is raised, or, with
    ``allow_empty``, a profile of zeros is given. Raises ``NotFoundError``, ``EmptyDatasetError`` or
    ``InvalidArgumentError``.

    >>> found = scan_audio(CLIPS, progress=False)
    >>> len(found), found.clips[0].codec, round(found.profile.max_s, 2)
    (310, 'flac', 1.95)
    """
    _check_sample_size(sample_size)
    options: dict[str, Any] = {"workers": workers, "cache": _cache(cache), "batch_size": batch_size, "seed": seed}
    prepared = PreparedRows(model, examples_of(source, collator, model))
    found = read_source(source, sampling_rate=sampling_rate, sample_size=sample_size, seed=seed, prepared=prepared)
    with ProgressBar("Scanning audio", "file", found.total, progress) as advance:
        if found.request is None:
            with _job("scan.open", options) as job:
                _add_pieces(job, found, advance)
                _finish(job, found, allow_empty)
                return replace(_result(job, clips), unit=found.unit)
        options |= {"sample_size": sample_size, "allow_empty": allow_empty}
        with _job("scan.start", {**found.request, **options}) as job:
            _wait(job, advance)
            return _result(job, clips)


def scan_with_texts(
    found: Source, column: str | None, *, workers: int, progress: bool
) -> tuple[ScanResult, list[str | None]]:
    """Every clip of a source that the library lists, and its transcript in the manifest or shard."""
    request = {**(found.request or {}), "texts": True, "text_field": column or "", "allow_empty": True}
    request |= {"workers": workers, "cache": _cache(True)}
    with ProgressBar("Scanning audio", "file", found.total, progress) as advance, _job("scan.start", request) as job:
        _wait(job, advance)
        texts: list[str | None] = []
        while page := native.call("scan.texts", {"job": job, "offset": len(texts), "limit": _TEXTS}):
            texts += page
        return _result(job, True), texts


def _check_sample_size(sample_size: int | None) -> None:
    if sample_size is None:
        return
    if isinstance(sample_size, bool) or not isinstance(sample_size, int) or sample_size < 1:
        raise InvalidArgumentError(
            f"sample_size = {sample_size!r} is not a positive whole number", "None measures every file"
        )


def _cache(used: bool) -> dict[str, str]:
    """Where the scanner keeps durations, and what marks them as this library's: another may measure otherwise."""
    if not used:
        return {"folder": ""}
    mark, library = "", native.library_path()
    if library.is_file():
        mark = f"{library.stat().st_size} {library.stat().st_mtime_ns}"
    return {"folder": str(cache_folder("durations")), "mark": mark}


@contextlib.contextmanager
def _job(op: str, request: dict[str, Any]) -> Iterator[int]:
    """The handle of a scan. Whatever happens, Ctrl-C included, it is cancelled and released."""
    job = native.call(op, *_split(request))["job"]
    try:
        yield job
    finally:
        native.call("scan.cancel", {"job": job})


def _split(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """A request without its paths, and those as bytes: hundreds of thousands cross in milliseconds so."""
    paths = request.get("paths")
    if not paths:
        return request, b""
    joined = "\0".join(paths) + "\0"
    try:
        attached = os.fsencode(joined) if joined.count("\0") == len(paths) else None
    except UnicodeEncodeError:
        attached = None
    if attached is None:
        attached = b"".join(_impossible(path) + b"\0" for path in paths)
    return {**request, "paths": []}, attached


def _impossible(path: str) -> bytes:
    """A path whose characters no file name can have is written out, to be counted as a missing file."""
    try:
        return os.fsencode(path.replace("\0", "\\0"))
    except UnicodeEncodeError:
        return path.encode("utf-8", "backslashreplace")


def _wait(job: int, advance: Advance = lambda done, total: None, total: int | None = None) -> None:
    """Until what was started last has ended."""
    while True:
        state = native.call("scan.poll", {"job": job, "wait_ms": _POLL_MS})
        advance(state["done"], total or state["total"])
        if state["finished"]:
            return


def _add_pieces(job: int, found: Source, advance: Advance) -> None:
    """Measure a source that is read piece by piece: one is measured while the next is read."""
    piece = None  # kept, as its buffers are borrowed
    for following in found.pieces():
        if piece is not None:
            _wait(job, advance, found.total)
        piece = following
        native.call("scan.add", {"job": job, **_piece_request(piece)})
    _wait(job, advance, found.total)


def _piece_request(piece: Piece) -> dict[str, Any]:
    if piece.arrow is not None:
        return {"arrow": piece.arrow}
    return {
        "clips": [clip for _, clip in piece.known],
        "clip_rows": [row for row, _ in piece.known],
        "buffers": piece.buffers,
        "buffer_rows": piece.buffer_rows,
        "paths": piece.paths,
        "path_rows": piece.path_rows,
    }


def _finish(job: int, found: Source, allow_empty: bool) -> None:
    request = {"job": job, "source": found.label, "allow_empty": allow_empty}
    if found.sampled:
        request |= {"population": found.population, "sampled": True}
    native.call("scan.end", request)
    _wait(job)


def _result(job: int, clips: bool) -> ScanResult:
    profile = from_json(DatasetProfile, native.call("scan.result", {"job": job}))
    if not clips:
        return ScanResult(profile, Clips())
    return ScanResult(
        profile, Clips(lambda at, n: native.exchange("scan.clips", {"job": job, "offset": at, "limit": n}))
    )
