"""Speech by name: a data set of the Hub, a folder, a manifest, a ``datasets.Dataset``, or the bundled clips."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._errors import InvalidArgumentError, NotFoundError, UnsupportedError
from ..parquet_sources import parquet_files, read_saved
from .columns import find_column
from .manifests import TABLES, read_manifest, read_pairs
from .remote import from_hub
from .scanning import measured
from .speech import SpeechData

TRAIN = ("train", "training")
EVALUATION = ("validation", "valid", "dev", "eval", "evaluation", "test")
_MANIFESTS = ("metadata", "manifest", "transcripts", "transcript", "data")
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_ACCEPTED = (
    'pass "demo", a folder (with metadata.csv or .jsonl, or with x.txt beside each x.wav), a manifest, the name of a '
    "data set on the Hub, or a datasets.Dataset"
)


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
    seed: int = 0,
    progress: bool = True,
) -> SpeechData:
    """Audio with transcripts, to train on and to evaluate with.

    ``source`` is one of these:

    - ``"demo"``: the bundled clips of spoken digits, four minutes to train on and one to evaluate with;
    - a folder with a manifest (metadata.csv, .tsv or .jsonl; or train.csv and test.csv), with a text file beside each
      clip (x.txt beside x.wav), with Parquet files, or what ``save_to_disk`` wrote;
    - a manifest: .csv, .tsv, .jsonl. Paths count from its folder on, or from clips, wavs or audio in it. A column
      ``split`` tells train from test;
    - the name of a data set on the Hub, ``name`` being its configuration, ``split`` and ``evaluation_split`` its
      splits (default: train, and validation or test), ``token`` one for data that needs it (default: the stored one);
    - a ``datasets.Dataset`` or ``DatasetDict``, or a ``SpeechData``, which is given back.

    Where there is no split to evaluate with, a share of ``evaluation_share`` (0 to 0.5) of the clips is drawn with
    ``seed`` for it. Nothing is decoded; clips that cannot be read are left out and named in the notes.

    Raises ``InvalidArgumentError`` for columns that are not there, with those that probably were meant, and
    ``NotFoundError``, ``CorruptFileError``, ``UnsupportedError`` or ``EmptyDatasetError`` for a source that cannot be
    used.
    """
    if isinstance(source, SpeechData):
        return source
    if not 0 <= evaluation_share <= 0.5:
        raise InvalidArgumentError(f"evaluation_share = {evaluation_share} is not from 0 to 0.5", "0.1 is usual")
    hub = {"name": name, "split": split, "evaluation_split": evaluation_split, "token": token}
    splits = _splits(source, audio_column, text_column, hub)
    train, evaluation, notes = _chosen(splits, split, evaluation_split)
    train, found = measured(_speech(train, audio_column, text_column), "clip", progress)
    notes += found
    data = SpeechData(train, None, tuple(notes)).of(train, None)
    if evaluation is not None:
        evaluation, found = measured(_speech(evaluation, audio_column, text_column), "clip to evaluate with", progress)
        return data.of(train, evaluation).noted(*found)
    return _drawn(data, evaluation_share, seed)


def _splits(source: Any, audio: str | None, text: str | None, hub: dict[str, Any]) -> dict[str, Any]:
    """The splits of ``source`` by their names."""
    if isinstance(source, str) and source == "demo":
        from ..demo.data import CLIPS

        return read_manifest(CLIPS / "manifest.jsonl", None, None)
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        if path.is_dir():
            return _folder(path, audio, text)
        return _file(path, audio, text) if path.exists() else _remote(os.fspath(source), hub)
    if isinstance(source, Mapping):
        return {str(name): part for name, part in source.items()}
    if hasattr(source, "column_names") and hasattr(source, "features"):
        return {"train": source}
    raise InvalidArgumentError(f"cannot read speech from a {type(source).__name__}", _ACCEPTED)


def _file(path: Path, audio: str | None, text: str | None) -> dict[str, Any]:
    if path.suffix in TABLES:
        return read_manifest(path, audio, text)
    if path.suffix == ".parquet":
        return _parquet([path])
    raise InvalidArgumentError(f"{path} is no manifest: {', '.join(TABLES)} and .parquet are known", _ACCEPTED)


def _folder(path: Path, audio: str | None, text: str | None) -> dict[str, Any]:
    saved = read_saved(path)
    if saved is not None:
        return dict(saved) if isinstance(saved, Mapping) else {"train": saved}
    tables = {file.stem: file for file in sorted(path.iterdir()) if file.suffix in TABLES}
    by_split = {stem: file for stem, file in tables.items() if stem in (*TRAIN, *EVALUATION)}
    if set(by_split) & set(TRAIN):
        return {stem: read_manifest(file, audio, text)["train"] for stem, file in by_split.items()}
    for stem in _MANIFESTS:
        if stem in tables:
            return read_manifest(tables[stem], audio, text)
    parts = [part for part in (*TRAIN, *EVALUATION) if (path / part).is_dir()]
    if set(parts) & set(TRAIN):
        return {part: _folder(path / part, audio, text)["train"] for part in parts}
    files = parquet_files(path)
    pairs = None if files else read_pairs(path)
    if files or pairs is not None:
        return _parquet(files) if files else {"train": pairs}
    there = f" (tables there: {', '.join(file.name for file in tables.values())})" if tables else ""
    raise NotFoundError(f"{path} holds no clips with transcripts{there}", _ACCEPTED)


def _parquet(files: list[Path]) -> dict[str, Any]:
    """Parquet files by the split that their names or folders begin with."""
    from datasets import load_dataset

    splits: dict[str, list[str]] = {}
    for file in files:
        begin = re.split(r"[-_.]", file.stem)[0]
        known = [part for part in (begin, file.parent.name) if part in (*TRAIN, *EVALUATION)]
        splits.setdefault(known[0] if known else "train", []).append(str(file))
    return dict(load_dataset("parquet", data_files=splits))


def _remote(name: str, hub: dict[str, Any]) -> dict[str, Any]:
    if not _HUB_NAME.fullmatch(name) or name.endswith(TABLES):
        raise NotFoundError(f"the data {name!r} does not exist", f"the working folder is {Path.cwd()}")

    def load(split: str | None) -> Any:
        from datasets import load_dataset

        return from_hub(
            f"the data set {name!r}",
            lambda: load_dataset(name, hub["name"], split=split, token=hub["token"]),
            'a folder or a manifest on this machine, or "demo", needs no network',
        )

    if hub["split"] is None:
        return dict(load(None))
    parts = {hub["split"]: load(hub["split"])}
    return (
        parts if hub["evaluation_split"] is None else {**parts, hub["evaluation_split"]: load(hub["evaluation_split"])}
    )


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
    """A split with the columns ``audio``, not decoded, and ``text`` alone."""
    import datasets

    if not hasattr(dataset, "__len__"):
        raise UnsupportedError("a streamed data set cannot be cleaned and split", "load it without streaming=True")
    columns = list(dataset.column_names)
    marked = [name for name, feature in dataset.features.items() if type(feature).__name__ == "Audio"]
    names = {"audio": find_column(columns, "audio", audio, marked)}
    names["text"] = find_column([name for name in columns if name not in marked], "text", text)
    dataset = dataset.with_format(None).select_columns(list(names.values()))
    dataset = dataset.rename_columns({old: new for new, old in names.items() if old != new})
    plain = getattr(dataset.features["audio"], "dtype", "") in ("string", "large_string", "binary")
    return dataset.cast_column("audio", datasets.Audio(decode=False)) if marked or plain else dataset


def _drawn(data: SpeechData, share: float, seed: int) -> SpeechData:
    """With a share of the clips to evaluate with, at least one of two."""
    count = round(share * len(data.train)) or min(1, len(data.train) - 1, round(share * 1000))
    if not count:
        return data.noted("no clips to evaluate with")
    parts = data.train.train_test_split(test_size=count, seed=seed)
    note = f"{count} of {len(data.train)} clips, drawn at random, are kept for evaluation"
    return data.of(parts["train"], parts["test"]).noted(note)
