"""Loads speech by name, and looks at its clips."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.checks import check_seed, in_range
from .._core.output import ProgressBar, listed, shortened
from .._core.render import plural
from .._core.requirements import need
from .._core.settings import SAMPLING_RATE
from ..audio.clip_cache import usable_cores
from ..audio.decoding import is_silent, load_clip
from ..data.columns import find_column
from ..data.scan import scan_audio
from ..data.scan_result import ScanResult, lengths_of
from ..data.scan_rows import Text
from ..data.segments import SEGMENTS, as_json, plain_text, segment_column, whisper_segments
from ..data.source import EVALUATION, TRAIN, open_source
from ..data.splits import splits_of
from ..data.table_sources import dataset_texts
from ..errors import AsrConfigError, EmptyDatasetError, InvalidArgumentError, StorageError, UnsupportedError
from .speech_data import SpeechData, column, keep_rows, with_column

if TYPE_CHECKING:
    from datasets import Dataset

_NAMED = 5  # bad clips that a note names
_DECODED_H = 10  # hours of audio that are decoded to see whether that works, by default
_AT_ONCE = 256  # clips handed to the threads


def measured(dataset: Dataset, noun: str, check_audio: bool | None, progress: bool) -> tuple[Dataset, list[str]]:
    """``dataset`` with the column ``length`` and without bad clips, and notes on those and on sampling rates.

    Lengths come from headers. ``check_audio`` decodes every clip, too; None does so where there are few hours of it.
    Clips that are silent, or whose channels cancel each other, are then noted.
    """
    result = scan_audio(dataset, allow_empty=True, progress=progress)
    lengths = lengths_of(result.durations)
    bad = {row: f"{result.clips[row].path}: {result.clips[row].error or 'it holds no audio'}"
           for row, length in enumerate(lengths) if length <= 0}  # fmt: skip
    with_lengths, heard = with_column(dataset, "length", lengths), dict[int, _Heard]()
    if check_audio or (check_audio is None and sum(lengths) <= _DECODED_H * 3600 * SAMPLING_RATE):
        heard = _heard(with_lengths, [row for row in range(len(lengths)) if row not in bad], progress)
        bad |= {row: clip.problem for row, clip in heard.items() if clip.problem}
    notes = []
    if bad:
        named = listed((shortened(text) for _, text in sorted(bad.items())), "; ", _NAMED)
        count = f"{len(bad)} of {plural(len(lengths), noun)} cannot be read and"
        notes.append(f"{count} {'is' if len(bad) == 1 else 'are'} left out: {named}")
    if cut := result.profile.shortened_count:
        shorter = (clip.path for clip in result.clips if clip.claimed_duration_s is not None)
        named = listed(map(shortened, shorter), shown=_NAMED)
        notes.append(f"{plural(cut, noun)} with less audio than the header claims: {named}")
    notes += _levels(heard, result, noun)
    counts = sorted((int(rate), count) for rate, count in result.profile.sample_rates.items())
    others = [(rate, count) for rate, count in counts if rate not in (0, SAMPLING_RATE)]
    if others:
        rates = listed(f"{plural(count, noun)} of {rate} Hz" for rate, count in others)
        notes.append(f"resampled to {SAMPLING_RATE} Hz when read: {rates}")
    return keep_rows(with_lengths, [row for row in range(len(lengths)) if row not in bad]), notes


def _levels(heard: dict[int, _Heard], result: ScanResult, noun: str) -> Iterator[str]:
    def named(rows: list[int]) -> str:
        return listed((f"row {row} ({shortened(result.clips[row].path)})" for row in rows), shown=_NAMED)

    silent = [row for row, clip in heard.items() if clip.silent]
    cancelling = [row for row, clip in heard.items() if clip.one_channel]
    if silent:
        yield f"nothing is heard in {plural(len(silent), noun)}, which teach nothing: leave out {named(silent)}"
    if cancelling:
        yield (
            f"one channel is taken of {plural(len(cancelling), noun)} whose channels cancel each other: "
            f"{named(cancelling)}"
        )


@dataclass(frozen=True)
class _Heard:
    problem: str = ""
    silent: bool = False
    one_channel: bool = False


def _heard(dataset: Dataset, rows: list[int], progress: bool) -> dict[int, _Heard]:
    heard: dict[int, _Heard] = {}
    with (
        ProgressBar("Checking audio", "clip", len(rows), progress) as advance,
        ThreadPoolExecutor(usable_cores()) as threads,
    ):
        for start in range(0, len(rows), _AT_ONCE):
            chunk = rows[start : start + _AT_ONCE]
            clips = column(dataset.select(chunk), "audio")
            heard |= dict(zip(chunk, threads.map(_decoded, clips), strict=True))
            advance(start + len(chunk), len(rows))
    return heard


def _decoded(audio: Any) -> _Heard:
    try:
        clip = load_clip(audio)
    except StorageError:
        raise
    except AsrConfigError as error:
        return _Heard(error.message)
    return _Heard(silent=is_silent(clip.samples), one_channel=clip.one_channel)


def without_tokens(dataset: Dataset) -> tuple[Dataset, list[str]]:
    """Move Whisper's timestamp tokens from the transcripts to the column ``segments``, and return a note."""
    texts = column(dataset, "text")
    timed = {row: segments for row, text in enumerate(texts) if (segments := whisper_segments(text or "")) is not None}
    if not timed:
        return dataset, []
    there = column(dataset, SEGMENTS) if SEGMENTS in dataset.column_names else [None] * len(texts)
    for row, segments in timed.items():
        texts[row] = plain_text(texts[row])
        there[row] = there[row] or json.dumps([asdict(segment) for segment in segments], ensure_ascii=False)
    note = f"timestamp tokens were taken out of {plural(len(timed), 'transcript')}"
    return with_column(with_column(dataset, "text", texts), SEGMENTS, there), [note]


def load_speech(
    source: Any,
    *,
    text_column: str | None = None,
    audio_column: str | None = None,
    evaluation_share: float = 0.1,
    name: str | None = None,
    split: str | None = None,
    evaluation_split: str | None = None,
    token: str | None = None,
    check_audio: bool | None = None,
    language: str | None = None,
    seed: int = 0,
    progress: bool = True,
) -> SpeechData:
    """Load audio with transcripts, to train on and to evaluate with.

    Clips that cannot be read are left out and named in the notes.

    Args:
        source: One of these:

            - ``"demo"``: the bundled clips of spoken digits, four minutes to train on and one to evaluate with;
            - a folder with a manifest (metadata.csv, .tsv or .jsonl; or train.csv and test.csv), with a text file
              beside each clip (x.txt or x.normalized.txt beside x.wav) or in a folder txt beside that of the clips
              (VCTK), of LibriSpeech or Kaldi, with Parquet files, or what ``save_to_disk`` wrote. Folders such as
              train-clean-100 and dev-clean are splits, and so are further microphones (x_mic2 beside x_mic1);
            - a manifest: .csv, .tsv, .jsonl, also with .gz, which is read as for ``scan_audio``. Paths are relative to
              its folder, or to clips, wavs or audio in it. A column ``split`` distinguishes train and test;
            - the name of a dataset on the Hub;
            - a ``datasets.Dataset`` or ``DatasetDict``, a ``pandas.DataFrame`` or ``pyarrow.Table`` with paths or
              bytes, or a list of rows such as ``{"audio": path or array at 16 kHz, "text": …}``;
            - a ``SpeechData``, which is returned as it is.
        text_column: The column of transcripts; None for the first of its usual names, such as ``text`` or ``sentence``.
        audio_column: The column of audio or of paths; None for the first of its usual names.
        evaluation_share: The share of the clips, 0 to 0.5, that is drawn to evaluate with where there is no split for
            it.
        name: The configuration of a dataset on the Hub.
        split: The split to train on; None for train, its other usual names, or the only split.
        evaluation_split: The split to evaluate with; None for validation, test or their other usual names. Of a dataset
            on the Hub with ``split`` set no other split is loaded then.
        token: The Hub's token for data that needs one; None for the stored one.
        check_audio: Whether every clip is decoded, which takes a while, and not only its header read: those that fail
            are left out, and clips that are silent or whose channels cancel each other are named. None does so for up
            to ten hours of audio.
        language: The spoken language, by its English name or code; ``SpeechData.clean`` makes lower case by its rules.
        seed: Draws the clips to evaluate with.
        progress: Whether to show progress bars.

    Returns:
        The clips, undecoded, with their transcripts and lengths, and notes on what was found.

    Raises:
        InvalidArgumentError: A column or a split does not exist (the message names those that do, or were probably
            meant), an option is out of its range, or ``source`` is of another type.
        NotFoundError: A path or a dataset does not exist, or a folder has no clips with transcripts.
        CorruptFileError: A file breaks its own format.
        StorageError: The disk or the mount of the files does not answer.
        UnsupportedError: The dataset is streamed, or datasets or soundfile is not installed.
        EmptyDatasetError: No clip is left to train on.

    Example:
        >>> data = load_speech("demo", progress=False)
        >>> data.train.column_names
        ['audio', 'text', 'length']
    """
    if isinstance(source, SpeechData):
        return source
    need("load_speech", "datasets", "soundfile")
    check_seed(seed)
    in_range("evaluation_share", evaluation_share, 0, 0.5, "0.1 is usual")
    hub = {"name": name, "split": split, "evaluation_split": evaluation_split, "token": token}
    notes: list[str] = []
    splits = splits_of(source, audio_column, text_column, hub, notes)
    train, evaluation, chosen = _chosen(splits, split, evaluation_split)
    train, timed = without_tokens(_speech(train, audio_column, text_column))
    train, clip_notes = measured(train, "clip", check_audio, progress)
    notes = [*chosen, *notes, *timed, *clip_notes]
    data = SpeechData(train, None, tuple(notes), language).of(train, None)
    if evaluation is not None:
        wanted, timed = without_tokens(_speech(evaluation, audio_column, text_column))
        evaluation, clip_notes = measured(wanted, "evaluation clip", check_audio, progress)
        return data.of(train, evaluation).noted(*(f"{note} to evaluate with" for note in timed), *clip_notes)
    return _drawn(data, evaluation_share, seed)


def _chosen(splits: dict[str, Any], wanted: str | None, evaluation: str | None) -> tuple[Any, Any | None, list[str]]:
    first = wanted or next((name for name in TRAIN if name in splits), next(iter(splits)) if len(splits) == 1 else None)
    second = evaluation or next((name for name in EVALUATION if name in splits and name != first), None)
    for name in (first, evaluation):
        if (name is None and first is None) or (name is not None and name not in splits):
            problem = f"no split {name!r}" if name else "no split train"
            option = "split" if name == first else "evaluation_split"
            hint = f"name one: {option}={next(iter(splits))!r} (--{option.replace('_', '-')} {next(iter(splits))})"
            raise InvalidArgumentError(f"the data has {problem} (splits: {listed(splits)})", hint)
    unused = [name for name in splits if name not in (first, second)]
    chosen = f"trains on the split {first}" + (f", evaluates with {second}" if second else "")
    notes = [f"{chosen}; not used: {listed(unused)}" if unused else chosen] if second or unused else []
    if not notes and first not in TRAIN:
        notes = [f"trains on {first}, the only split"]
    return splits[str(first)], splits[second] if second else None, notes


def _speech(dataset: Dataset, audio: str | None, text: str | None) -> Dataset:
    import datasets

    source = open_source(dataset)
    if source.is_stream:
        raise UnsupportedError("a streamed dataset cannot be cleaned and split", "load it without streaming=True")
    if not source.length:
        raise EmptyDatasetError("the dataset has no rows", "check the split and the filters applied to it")
    columns, marked = source.columns, source.audio_features()
    names = {"audio": find_column(columns, "audio", audio, marked)}
    names["text"] = find_column([name for name in columns if name not in marked], "text", text)
    segments = segment_column(columns, *names.values())
    timed = None if segments is None else [as_json(value) for value in column(dataset, segments)]
    dataset = dataset.with_format(None).select_columns(list(names.values()))
    dataset = dataset.rename_columns({old: new for new, old in names.items() if old != new})
    stored = getattr(dataset.features["audio"], "dtype", "")
    plain = stored.removeprefix("large_").removesuffix("_view")  # of pandas and CSV; only these can become audio
    if plain != stored:
        dataset = dataset.cast_column("audio", datasets.Value(plain))
    if marked or plain in ("string", "binary"):
        dataset = dataset.cast_column("audio", datasets.Audio(decode=False))
    if getattr(dataset.features["text"], "dtype", "") != "string":
        dataset = with_column(dataset, "text", _texts(dataset, names["text"]))
    return dataset if timed is None or not any(timed) else with_column(dataset, SEGMENTS, timed)


def _texts(dataset: Dataset, name: str) -> list[Text]:
    texts = dataset_texts(dataset, "text")
    if any(isinstance(value, list | dict | bytes) for value in texts):
        kind = dataset.features["text"]
        raise InvalidArgumentError(
            f"the column {name!r} holds no transcripts but {kind}", "name another: text_column=…"
        )
    return texts


def _drawn(data: SpeechData, share: float, seed: int) -> SpeechData:
    count = round(share * len(data.train)) or min(1, len(data.train) - 1, round(share * 1000))
    if not count:
        return data.noted("no clips to evaluate with")
    # As train_test_split draws, which writes the order beside the data: that may lie where nothing can be written.
    order = np.random.default_rng(seed).permutation(len(data.train))
    note = f"{count} of {len(data.train)} clips, drawn at random, are kept for evaluation"
    return data.of(data.train.select(order[count:]), data.train.select(order[:count])).noted(note)
