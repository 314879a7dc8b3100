"""A length column for datasets, so that batches of similar length can be made without looking at the audio again."""

from __future__ import annotations

import math
import warnings
from typing import Any, TypedDict

from .._core.checks import DurationUnit, checked
from .._core.defaults import SAMPLING_RATE
from ..errors import InvalidArgumentError
from .scan import scan_audio
from .source import Source, open_source


class BadAudioWarning(UserWarning):
    """Some clips cannot be used; the message has their replacement."""


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
    """The ``datasets.Dataset`` (or ``DatasetDict``) with the length of every clip in a new ``column``.

    ``unit`` ``"samples"`` are whole numbers at ``sampling_rate``, whatever the files' own rates: what the Trainer's
    ``train_sampling_strategy="group_by_length"`` (``group_by_length=True`` before transformers 5) reads from
    ``length_column_name``. ``"seconds"`` are fractions. Audio is neither decoded nor copied, also of a dataset that
    was shuffled or selected from. A clip that cannot be read gets 0, and a ``BadAudioWarning`` counts them.

    A transform of the dataset (``set_transform``) stays, and is not run to look at lengths. Raises
    ``InvalidArgumentError`` for a stream, for other types, and when the column is there already.

    >>> from asrconfig_go.data.digits import load_split
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

    rate = options["sampling_rate"] if unit == "samples" else 1
    result = scan_audio(source.data, allow_empty=True, **options)
    seconds = [0.0 if math.isnan(s) else s * rate for s in result.durations]
    lengths: list[Any] = [round(s) for s in seconds] if unit == "samples" else seconds
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
            f"cannot add a column to a {type(source.data).__name__}",
            "pass a datasets.Dataset; of other sources, scan_audio(source).durations are the seconds",
        )
    if column in source.columns:
        raise InvalidArgumentError(
            f"the dataset has a column {column!r} already", f"remove_columns({column!r}), or choose another column=…"
        )
