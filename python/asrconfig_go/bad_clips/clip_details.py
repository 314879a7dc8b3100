"""What a dataset and a tokenizer tell of a clip: path and text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .._base.random_state import cpu_generators_kept
from ..data.column_names import audio_columns, text_columns, usual_columns
from ..data.label_limits import IGNORED
from ..loading.stored_audio import stored

_MOST = 500  # characters


class ClipDetails:
    """Reads rows of a Trainer's dataset, once something went wrong; what cannot be read is ""."""

    def __init__(self, trainer: Any, dataset: Any = None) -> None:
        """``dataset``: another than the training's."""
        self._trainer = trainer
        self._dataset = getattr(trainer, "train_dataset", None) if dataset is None else dataset

    def of(self, row: int | None, labels: list[int]) -> tuple[bool, str, str]:
        """Whether ``row`` can be the clip with these labels; its path, and its text or the decoded labels."""
        found = {} if row is None else self._read(row)
        known = found.get("labels")
        if known is not None and not _alike(known, labels):
            return False, "", self._decoded(labels)
        path = next((p for name in usual_columns(found, audio_columns()) for p in _paths(found[name])), "")
        text = next(
            (str(found[name]) for name in usual_columns(found, text_columns()) if isinstance(found[name], str)), ""
        )
        return True, path[:_MOST], (text or self._decoded(labels))[:_MOST]

    def _read(self, row: int) -> dict[str, Any]:
        dataset: Any = self._dataset
        with contextlib.suppress(Exception), cpu_generators_kept():  # whatever a dataset raises: a name is lost
            names = getattr(dataset, "column_names", None)
            if names and hasattr(dataset, "with_format"):  # datasets': nothing but these is read, and nothing decoded
                wanted = usual_columns(names, (*audio_columns(), *text_columns(), "labels"))
                dataset = stored(dataset).with_format(None).select_columns(wanted)
            found = dataset[row]
            return dict(found) if hasattr(found, "keys") else {}
        return {}

    def _decoded(self, labels: list[int]) -> str:
        trainer = self._trainer
        owners = (trainer, getattr(trainer, "data_collator", None))  # none of a loop of one's own
        names = ("processing_class", "tokenizer", "processor")
        for tokenizer in (vars(owner).get(name) for owner in owners if hasattr(owner, "__dict__") for name in names):
            if hasattr(tokenizer, "decode"):
                with contextlib.suppress(Exception):
                    return str(_decode(tokenizer, labels))
        return " ".join(map(str, labels))


def _decode(tokenizer: Any, labels: list[int]) -> str:
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    options = {"group_tokens": False} if "CTC" in type(tokenizer).__name__ else {"skip_special_tokens": True}
    return str(tokenizer.decode(labels, **options))


def _paths(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = value.get("path")
    if isinstance(value, str) and value:
        yield value


def _alike(known: Any, labels: list[int]) -> bool:
    """Whether a row's labels are those of a collated clip; collators take a first token out, or truncate."""
    try:
        own = [int(label) for label in (known.tolist() if hasattr(known, "tolist") else known)]
    except (TypeError, ValueError):  # texts, or labels of another kind
        return True
    own = [label for label in own if label != IGNORED]
    return any(part[: len(labels)] == labels for part in (own, own[1:]))
