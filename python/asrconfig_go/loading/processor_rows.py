"""Batches of the rows of a dataset where a processor is all that is given."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.errors import AsrConfigError
from ..data.column_names import audio_columns, find_column, text_columns, usual_columns

if TYPE_CHECKING:
    from ..trace.collated_batches import CollatedExamples


class ProcessorNotUsedWarning(UserWarning):
    """The processor makes no batches of these rows: their shapes follow from the model alone."""


@dataclass(frozen=True)
class ProcessorRows:
    """Rows with the columns ``audio`` and ``text`` (None: without transcripts) to a batch by ``collate``."""

    collate: Callable[[Sequence[dict[str, Any]]], Any]
    audio: str
    text: str | None

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """A dictionary of tensors."""
        names = {"audio": self.audio} | ({} if self.text is None else {"text": self.text})
        return self.collate([{name: row[column] for name, column in names.items()} for row in rows])


def processor_examples(
    dataset: Any, processor: Any, model: Any, read: Callable[[Path], Any] | None = None
) -> CollatedExamples | None:
    """Rows of ``dataset`` as the call of ``processor`` makes them the input of ``model``.

    ``read`` makes splits of a path: a folder or a manifest with transcripts. None where there are no such rows, or no
    module to ask, or a feature extractor alone, which makes no labels; and, with a ``ProcessorNotUsedWarning``, where
    the first row becomes no batch.
    """
    if getattr(processor, "tokenizer", None) is None or not callable(getattr(model, "named_parameters", None)):
        return None
    from ..data.hf_sources import undecoded_columns
    from ..trace.collated_batches import CollatedExamples
    from .processor_batches import collator_of

    try:
        if read is not None and isinstance(dataset, str | os.PathLike):
            path = Path(dataset).expanduser()
            dataset = read(path) if path.exists() else dataset
        rows = undecoded_columns(dataset.get("train", dataset) if isinstance(dataset, Mapping) else dataset)
        if not _has_rows(rows):
            return None
        columns = list(rows[0])
        text = next(iter(usual_columns(columns, text_columns())), None)
        collate = ProcessorRows(collator_of(processor, model), find_column(columns, "audio", None), text)
        collate([rows[0]])
    except Exception as error:  # of a processor of any kind
        reason = error.message if isinstance(error, AsrConfigError) else f"{type(error).__name__}: {error}"
        warnings.warn(
            f"{type(processor).__name__} makes no batch of the dataset's first row ({reason}): "
            "pass clips with transcripts, or collator=",
            ProcessorNotUsedWarning,
            stacklevel=3,
        )
        return None
    return CollatedExamples(rows, collate, model)


def _has_rows(dataset: Any) -> bool:
    """Whether these are rows with audio, and not a path, a stream or rows that hold a model's input."""
    if isinstance(dataset, str | Mapping) or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return False
    first = dataset[0] if len(dataset) else None
    return isinstance(first, Mapping) and bool(usual_columns(first, audio_columns()))
