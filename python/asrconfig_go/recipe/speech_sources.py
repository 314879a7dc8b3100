"""Loads speech by name: a dataset of the Hub, a folder, a manifest, a ``datasets.Dataset``, or the bundled clips."""

from __future__ import annotations

from typing import Any

from .._base.checks import check_seed, checked
from .._base.errors import InvalidArgumentError, UnsupportedError
from .clip_checks import measured
from .column_names import find_column
from .required_packages import need
from .speech_data import SpeechData, column, with_column
from .splits import EVALUATION, TRAIN, splits_of
from .timed_texts import SEGMENTS, as_json, segment_column, without_tokens


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
    seed: int = 0,
    progress: bool = True,
) -> SpeechData:
    """Audio with transcripts, to train on and to evaluate with.

    ``source`` is one of these:

    - ``"demo"``: the bundled clips of spoken digits, four minutes to train on and one to evaluate with;
    - a folder with a manifest (metadata.csv, .tsv or .jsonl; or train.csv and test.csv), with a text file beside each
      clip (x.txt beside x.wav), with Parquet files, or what ``save_to_disk`` wrote;
    - a manifest: .csv, .tsv, .jsonl. Paths count from its folder on, or from clips, wavs or audio in it. A column
      ``split`` distinguishes train and test;
    - the name of a dataset on the Hub, ``name`` being its configuration, ``split`` and ``evaluation_split`` its
      splits (default: train, and validation or test), ``token`` one for data that needs it (default: the stored one);
    - a ``datasets.Dataset`` or ``DatasetDict``, or a ``SpeechData``, which is given back.

    Where there is no split to evaluate with, a share of ``evaluation_share`` (0 to 0.5) of the clips is drawn with
    ``seed`` for it. Clips that cannot be read are left out and named in the notes: those with a bad header, and with
    ``check_audio`` those that cannot be decoded, which takes a while (None: of up to ten hours of audio).

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
    splits = splits_of(source, audio_column, text_column, hub)
    train, evaluation, notes = _chosen(splits, split, evaluation_split)
    train, timed = without_tokens(_speech(train, audio_column, text_column))
    train, found = measured(train, "clip", check_audio, progress)
    notes += [*timed, *found]
    data = SpeechData(train, None, tuple(notes)).of(train, None)
    if evaluation is not None:
        wanted, timed = without_tokens(_speech(evaluation, audio_column, text_column))
        evaluation, found = measured(wanted, "clip to evaluate with", check_audio, progress)
        return data.of(train, evaluation).noted(*(f"{note} to evaluate with" for note in timed), *found)
    return _drawn(data, evaluation_share, seed)


def _chosen(splits: dict[str, Any], wanted: str | None, evaluation: str | None) -> tuple[Any, Any | None, list[str]]:
    """The parts to train on and to evaluate with, and a note on which they are."""
    first = wanted or next((name for name in TRAIN if name in splits), next(iter(splits)) if len(splits) == 1 else None)
    second = evaluation or next((name for name in EVALUATION if name in splits and name != first), None)
    for name in (first, evaluation):
        if (name is None and first is None) or (name is not None and name not in splits):
            what = f"no split {name!r}" if name else "no split train"
            raise InvalidArgumentError(
                f"the data has {what} (splits: {', '.join(splits)})", "name it: split=… (--split)"
            )
    left = [name for name in splits if name not in (first, second)]
    notes = [f"trains on the split {first}, evaluates with {second}" + (f"; not used: {', '.join(left)}" * bool(left))]
    return splits[str(first)], splits[second] if second else None, notes if second else []


def _speech(dataset: Any, audio: str | None, text: str | None) -> Any:
    """A split with the columns ``audio``, not decoded, and ``text``, and ``segments`` where there are times."""
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
    plain = getattr(dataset.features["audio"], "dtype", "") in ("string", "large_string", "binary")
    if marked or plain:
        dataset = dataset.cast_column("audio", datasets.Audio(decode=False))
    return dataset if timed is None or not any(timed) else with_column(dataset, SEGMENTS, timed)


def _drawn(data: SpeechData, share: float, seed: int) -> SpeechData:
    """With a share of the clips to evaluate with, at least one of two."""
    count = round(share * len(data.train)) or min(1, len(data.train) - 1, round(share * 1000))
    if not count:
        return data.noted("no clips to evaluate with")
    parts = data.train.train_test_split(test_size=count, seed=seed)
    note = f"{count} of {len(data.train)} clips, drawn at random, are kept for evaluation"
    return data.of(parts["train"], parts["test"]).noted(note)
