"""Audio datasets: every file's duration from its header, in parallel, and their statistics."""

from __future__ import annotations

import math
import warnings
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict

from .._core import native
from .._core.checks import checked, plain
from .._core.output import Advance, ProgressBar, kind_of
from .._core.records import from_json
from .._core.settings import SAMPLING_RATE, Cluster, DurationUnit
from ..errors import InvalidArgumentError
from .scan_inputs import SourceReader
from .scan_jobs import read_parts, scan_cache, scan_job, wait
from .scan_result import Clips, DatasetProfile, ScanResult, lengths_of
from .scan_rows import PreparedRows, ScanInput, Text, examples_of, stored_piece
from .source import Source, open_source

_TEXTS = 50_000  # fetched per call


class BadAudioWarning(UserWarning):
    """Some clips cannot be read; ``add_durations`` sets their lengths to 0."""


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
    model: object
    collator: object
    cluster: Cluster | None


def scan_audio(
    source: object,
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
    model: object = None,
    collator: object = None,
    cluster: Cluster | None = None,
) -> ScanResult:
    """Measure every clip of a dataset without decoding it.

    Files that cannot be used are counted and listed in the profile.

    Args:
        source: One of these:

            - a folder: of audio, of tar or Parquet files, a Kaldi data folder, or what ``save_to_disk`` wrote;
            - an audio file, or a list of paths;
            - a manifest: .jsonl (NeMo, Lhotse, …), .csv, .tsv (Common Voice, fairseq), .scp, segments, utt2dur (Kaldi),
              or .txt with one path a line, also with .gz. A row that selects a piece of a file counts as that piece;
            - tar shards or Parquet files: a path, a list, or a pattern such as ``"train-{000000..000099}.tar"``;
            - a ``datasets.Dataset`` with an ``Audio`` column (or one of paths, or ``input_values``), a
              ``pyarrow.Table`` or a ``pandas.DataFrame``; of a ``DatasetDict`` the split ``train``, or all splits where
              none has that name;
            - a list of 1-D arrays, or of ``{"array", "sampling_rate"}``;
            - rows that hold a model's input: columns or keys ``input_values``, ``input_features``, ``input_ids``;
            - rows of any other kind with a length, for which ``collator`` is passed;
            - the result of another scan, which is returned.
        sample_size: How many clips to measure, drawn at random; None for all, and for 200 of a streamed dataset.
        sampling_rate: The rate, in hertz, of arrays without one.
        seed: Draws the sample, and the random batches of the profile's padding.
        batch_size: The clips of a batch that the profile's padding assumes.
        workers: How many files are read at once; 0 for four for each usable core.
        cache: Whether durations of files are kept in the user's cache folder (``ASRCONFIG_CACHE``, else the XDG one).
            They are used as long as the file's size and modification times and the version of the library stay the
            same.
        progress: Whether to show a progress bar.
        allow_empty: Whether a dataset without a usable clip has a profile of zeros instead of raising an error.
        clips: Whether the result lists the clips. Without them it has the profile alone, which saves time on millions
            of files.
        model: The model whose input the rows hold (see ``profile_model``): it determines how long frames last. 50
            tokens count as a second.
        collator: The Trainer's collator, for rows of any other kind: some are collated, each alone, to measure them.
        cluster: ``"ray"`` or ``"spark"`` scans on the cluster that this process can reach, with the same result (see
            docs/launching.md): a folder, manifest, tar shards or paths that all its machines see under the same name.
            None scans in this process.

    Returns:
        The profile of the dataset, and its clips.

    Raises:
        NotFoundError: A path does not exist.
        EmptyDatasetError: No clip is usable, and ``allow_empty`` is False.
        InvalidArgumentError: The dataset is of another type, or an option is out of its range.

    Example:
        >>> found = scan_audio(CLIPS, progress=False)
        >>> len(found), found.clips[0].codec, round(found.profile.max_s, 2)
        (310, 'mp3', 1.95)
    """
    sample_size, batch_size = plain(sample_size), plain(batch_size)
    for name, count, hint in (
        ("sample_size", sample_size, "leave sample_size out to measure every file"),
        ("batch_size", batch_size, "8 is usual, 1 the least"),
    ):
        if count is not None and (type(count) is not int or count < 1):
            raise InvalidArgumentError(f"{name} = {count!r} is not a positive whole number", hint)
    opened = open_source(source)
    if opened.scan is not None:
        if sample_size is not None:
            raise InvalidArgumentError(
                f"sample_size = {sample_size} of clips that were scanned already", "scan_audio(source, sample_size=…)"
            )
        return opened.scan
    prepared = PreparedRows(model, examples_of(source, collator, model))
    reader = SourceReader(sampling_rate, sample_size, seed, prepared, opened.trained)
    scan_input = reader.read(opened)
    options: dict[str, Any] = {"workers": workers, "cache": scan_cache(cache), "batch_size": batch_size, "seed": seed}
    if scan_input.unit is not None:
        options["row_kind"] = scan_input.unit.row_kind
    with ProgressBar("Scanning audio", "file", scan_input.total, progress) as advance:
        if cluster is not None:
            checked("cluster", cluster, Cluster)
            scan_input = read_parts(scan_input, cluster, {**options, "sample_size": sample_size})
        if scan_input.request is not None:
            listed = {**scan_input.request, **options, "sample_size": sample_size, "allow_empty": allow_empty}
            with scan_job("scan.start", listed) as job:
                wait(job, advance)
                tables = parquet_files(job)
                if not tables:
                    return replace(_result(job, clips), source=opened.data)
            opened, scan_input = open_source(tables), reader.parquet(tables)
        with scan_job("scan.open", options) as job:
            _add_pieces(job, scan_input, advance)
            _finish(job, scan_input, allow_empty)
            return replace(_result(job, clips), unit=scan_input.unit, source=opened.data)


def parquet_files(job: int) -> list[str]:
    """The Parquet files of the folder that a scan listed, where it holds no audio."""
    files: list[str] = []
    while page := native.call("scan.rows", {"job": job, "offset": len(files), "limit": _TEXTS})["rows"]:
        files += [row["path"] for row in page]
    return files


def scan_with_texts(
    dataset: object, column: str | None, *, workers: int, progress: bool
) -> tuple[ScanResult, list[Text]]:
    """Every clip of a dataset, and its transcript. Raises ``InvalidArgumentError`` where there are none."""
    source = open_source(dataset)
    scan_input = SourceReader(SAMPLING_RATE).read(source)
    if scan_input.request is not None and {"manifest", "shards", "folder"} & set(scan_input.request):
        request = {**scan_input.request, "texts": True, "text_field": column or "", "allow_empty": True}
        request |= {"workers": workers, "cache": scan_cache(True)}
        with (
            ProgressBar("Scanning audio", "file", scan_input.total, progress) as advance,
            scan_job("scan.start", request) as job,
        ):
            wait(job, advance)
            tables = parquet_files(job)
            if not tables:
                result, transcripts = _result(job, True), _texts(job)
                if all(text is None for text in transcripts):
                    missing = f"no {column!r}" if column else "no text"
                    problem = f"there is {missing} in {result.profile.source}"
                    raise InvalidArgumentError(problem, "name its column: text=…, or pass load_speech(…).train")
                return result, transcripts
        source = open_source(tables)
        scan_input = SourceReader().read(source)
    if scan_input.texts is None:
        raise InvalidArgumentError("the dataset has no transcripts", "pass texts=… in the order of the clips")
    transcripts = scan_input.texts(column)
    return scan_audio(source.data, workers=workers, progress=progress, allow_empty=True), transcripts


def _texts(job: int) -> list[Text]:
    texts: list[Text] = []
    while page := native.call("scan.texts", {"job": job, "offset": len(texts), "limit": _TEXTS}):
        texts += page
    return texts


class DurationSettings(TypedDict, total=False):
    """What ``add_durations`` takes by keyword."""

    sampling_rate: int
    workers: int
    progress: bool


def add_durations(
    dataset: Any,
    column: str = "length",
    unit: DurationUnit = "samples",
    *,
    sampling_rate: int = SAMPLING_RATE,
    workers: int = 0,
    progress: bool = True,
) -> Any:
    """Add a column with the length of every clip to a dataset.

    Audio is neither decoded nor copied, also of a dataset that was shuffled or selected from. A transform of the
    dataset (``set_transform``) stays, and is not run to read lengths. A clip that cannot be read has the length 0, and
    a ``BadAudioWarning`` counts them.

    Args:
        dataset: A ``datasets.Dataset`` or ``DatasetDict``.
        column: The name of the new column.
        unit: ``"samples"`` for whole numbers at ``sampling_rate``, whatever the files' own rates: what the Trainer's
            ``train_sampling_strategy="group_by_length"`` (``group_by_length=True`` before transformers 5) reads from
            ``length_column_name``. ``"seconds"`` for fractions.
        sampling_rate: The rate in hertz at which samples are counted.
        workers: How many files are read at once; 0 for four for each usable core.
        progress: Whether to show a progress bar.

    Returns:
        The dataset, or the splits, with the new column.

    Raises:
        InvalidArgumentError: The dataset is a stream or of another type, or has the column already.

    Example:
        >>> from asrconfig_go.data.splits import load_split
        >>> dataset = add_durations(load_split("test"), "seconds", "seconds", progress=False)
        >>> dataset.column_names
        ['audio', 'text', 'length', 'seconds']
    """
    checked("unit", unit, DurationUnit)
    options: DurationSettings = {"sampling_rate": sampling_rate, "workers": workers, "progress": progress}
    parts = {name: _with_lengths(part, column, unit, options) for name, part in open_source(dataset).parts.items()}
    return parts[""] if "" in parts else type(dataset)(parts)


def _with_lengths(source: Source, column: str, unit: str, options: DurationSettings) -> Any:
    _check(source, column)
    from .hf_datasets import with_column

    result = scan_audio(source.data, allow_empty=True, **options)
    seconds = result.durations
    lengths: list[Any] = [0.0 if math.isnan(s) else s for s in seconds]
    if unit == "samples":
        lengths = lengths_of(seconds, options["sampling_rate"])
    profile = result.profile
    if profile.bad_count:
        first = profile.bad_files[0]
        warnings.warn(
            f"{profile.bad_count} of {len(result)} clips cannot be read and got the {column} 0; "
            f"the first: {first.path}: {first.error}",
            BadAudioWarning,
            stacklevel=5,
        )
    return with_column(source.data, column, lengths)


def _check(source: Source, column: str) -> None:
    if source.kind == "stream":
        raise InvalidArgumentError(
            "a streamed dataset has no place for a column that needs all of it",
            "load it without streaming=True; a stream cannot be put in the order of lengths anyway",
        )
    if source.kind != "dataset":
        raise InvalidArgumentError(
            f"cannot add a column to {kind_of(source.data)}",
            "pass a datasets.Dataset; of other sources, scan_audio(source).durations are the seconds",
        )
    if column in source.columns:
        raise InvalidArgumentError(
            f"the dataset has a column {column!r} already", f"remove_columns({column!r}), or choose another column=…"
        )


def clip_seconds(clips: Sequence[object]) -> array[float]:
    """Seconds of a stream's clips by their headers; not a number where one cannot be read."""
    stream = ScanInput(None, lambda: iter((stored_piece(enumerate(clips)),)), "a stream")
    with scan_job("scan.open", {"cache": scan_cache(False)}) as job:
        _add_pieces(job, stream, lambda done, total: None)
        _finish(job, stream, allow_empty=True)
        return _result(job, True).durations


def _add_pieces(job: int, source: ScanInput, advance: Advance) -> None:
    """Measure a source piece by piece, each while the next one is read."""
    piece = None  # a reference, as its buffers are borrowed
    for following in source.pieces():
        if piece is not None:
            wait(job, advance, source.total)
        piece = following
        native.call("scan.add", {"job": job, **piece.request}, piece.columns)
    wait(job, advance, source.total)


def _finish(job: int, source: ScanInput, allow_empty: bool) -> None:
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
