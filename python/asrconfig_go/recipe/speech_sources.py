"""Loads speech by name: a dataset of the Hub, a folder, a manifest, a ``datasets.Dataset``, or the bundled clips."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base.checks import check_seed, checked
from .._base.errors import InvalidArgumentError, UnsupportedError
from .._base.listing import listed
from ..data.column_names import find_column
from ..data.text_values import dataset_texts
from ..segmentation.segments import SEGMENTS, as_json, segment_column
from ..segmentation.splits import EVALUATION, TRAIN, splits_of
from .clip_checks import measured
from .required_packages import need
from .speech_data import SpeechData, column, with_column
from .timed_texts import without_tokens


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
    """Audio with transcripts, to train on and to evaluate with.

    ``source`` is one of these:

    - ``"demo"``: the bundled clips of spoken digits, four minutes to train on and one to evaluate with;
    - a folder with a manifest (metadata.csv, .tsv or .jsonl; or train.csv and test.csv), with a text file beside each
      clip (x.txt beside x.wav), with Parquet files, or what ``save_to_disk`` wrote;
    - a manifest: .csv, .tsv, .jsonl, also with .gz, which is read as for ``scan_audio``. Paths count from its folder
      on, or from clips, wavs or audio in it. A column ``split`` distinguishes train and test;
    - the name of a dataset on the Hub, ``name`` being its configuration, ``split`` and ``evaluation_split`` its
      splits (default: train, and validation or test), ``token`` one for data that needs it (default: the stored one);
    - a ``datasets.Dataset`` or ``DatasetDict``, a ``pandas.DataFrame`` or ``pyarrow.Table`` with paths or bytes, or a
      ``SpeechData``, which is given back.

    Where there is no split to evaluate with, a share of ``evaluation_share`` (0 to 0.5) of the clips is drawn with
    ``seed`` for it. Clips that cannot be read are left out and named in the notes: those with a bad header, and with
    ``check_audio`` those that cannot be decoded, which takes a while (None: of up to ten hours of audio). Clips that
    are silent, or whose channels cancel each other, are then named. ``language``, in English or by its code, decides
    how ``clean`` makes letters lower case.

    Raises ``InvalidArgumentError`` for columns that are not there, with those that probably were meant, and
    ``NotFoundError``, ``CorruptFileError``, ``UnsupportedError`` or ``EmptyDatasetError`` for a source that cannot be
    used; ``UnsupportedError`` without datasets or soundfile.

    >>> data = load_speech("demo", progress=False)
    >>> data.train.column_names
    ['audio', 'text', 'length']
    """
    if isinstance(source, SpeechData):
        return source
    need("load_speech", "datasets", "soundfile")
    check_seed(seed)
    if not 0 <= checked("evaluation_share", evaluation_share, float) <= 0.5:
        raise InvalidArgumentError(f"evaluation_share = {evaluation_share} is not from 0 to 0.5", "0.1 is usual")
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
        evaluation, clip_notes = measured(wanted, "clip to evaluate with", check_audio, progress)
        return data.of(train, evaluation).noted(*(f"{note} to evaluate with" for note in timed), *clip_notes)
    return _drawn(data, evaluation_share, seed)


def _chosen(splits: dict[str, Any], wanted: str | None, evaluation: str | None) -> tuple[Any, Any | None, list[str]]:
    first = wanted or next((name for name in TRAIN if name in splits), next(iter(splits)) if len(splits) == 1 else None)
    second = evaluation or next((name for name in EVALUATION if name in splits and name != first), None)
    for name in (first, evaluation):
        if (name is None and first is None) or (name is not None and name not in splits):
            problem = f"no split {name!r}" if name else "no split train"
            raise InvalidArgumentError(
                f"the data has {problem} (splits: {listed(splits)})", "name it: split=… (--split)"
            )
    unused = [name for name in splits if name not in (first, second)]
    notes = [f"trains on the split {first}, evaluates with {second}" + (f"; not used: {listed(unused)}" * bool(unused))]
    return splits[str(first)], splits[second] if second else None, notes if second else []


def _speech(dataset: Any, audio: str | None, text: str | None) -> Any:
    import datasets

    if not hasattr(dataset, "__len__"):
        raise UnsupportedError("a streamed dataset cannot be cleaned and split", "load it without streaming=True")
    columns = list(dataset.column_names)
    marked = [name for name, feature in dataset.features.items() if type(feature).__name__ == "Audio"]
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


def _texts(dataset: Any, name: str) -> list[str | None]:
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
