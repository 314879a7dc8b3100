"""What a dataset and a tokenizer tell of a clip: path and text."""

from __future__ import annotations

import contextlib
from typing import Any

from .._base.random_state import cpu_generators_kept
from ..data.column_names import audio_columns, text_columns, usual_columns
from ..data.hf_sources import undecoded_columns
from ..data.label_limits import IGNORED

_LONGEST = 500  # characters


class ClipDetails:
    """Reads rows of a Trainer's dataset, once something went wrong; what cannot be read is ""."""

    def __init__(self, trainer: Any, dataset: Any = None) -> None:
        """``dataset``: another than the training's."""
        self._trainer = trainer
        self._dataset = getattr(trainer, "train_dataset", None) if dataset is None else dataset

    def of(self, row: int | None, labels: list[int]) -> tuple[bool, str, str]:
        """Whether ``row`` can be the clip with these labels; its path, and its text or the decoded labels."""
        example = {} if row is None else self._read(row)
        own_labels = example.get("labels")
        if own_labels is not None and not _alike(own_labels, labels):
            return False, "", self._decoded(labels)
        audio = [example[name] for name in usual_columns(example, audio_columns())]
        paths = [value.get("path") if isinstance(value, dict) else value for value in audio]
        texts = [example[name] for name in usual_columns(example, text_columns())]
        path, text = (next((v for v in values if isinstance(v, str) and v), "") for values in (paths, texts))
        return True, path[:_LONGEST], (text or self._decoded(labels))[:_LONGEST]

    def _read(self, row: int) -> dict[str, Any]:
        dataset: Any = self._dataset
        with contextlib.suppress(Exception), cpu_generators_kept():  # whatever a dataset raises: a name is lost
            names = getattr(dataset, "column_names", None)
            if names and hasattr(dataset, "with_format"):  # datasets': nothing but these is read, and nothing decoded
                wanted = usual_columns(names, (*audio_columns(), *text_columns(), "labels"))
                dataset = undecoded_columns(dataset).with_format(None).select_columns(wanted)
            example = dataset[row]
            return dict(example) if hasattr(example, "keys") else {}
        return {}

    def _decoded(self, labels: list[int]) -> str:
        trainer = self._trainer
        owners = (trainer, getattr(trainer, "data_collator", None))  # none of a loop of one's own
        names = ("processing_class", "tokenizer", "processor")
        for part in (vars(owner).get(name) for owner in owners if hasattr(owner, "__dict__") for name in names):
            tokenizer: Any = getattr(part, "tokenizer", part)
            if hasattr(tokenizer, "decode"):
                is_ctc = "CTC" in type(tokenizer).__name__
                options = {"group_tokens": False} if is_ctc else {"skip_special_tokens": True}
                with contextlib.suppress(Exception):
                    return str(tokenizer.decode(labels, **options))
        return " ".join(map(str, labels))


def _alike(own_labels: Any, labels: list[int]) -> bool:
    """Whether a row's labels are those of a collated clip; collators take a first token out, or truncate."""
    try:
        own = [int(label) for label in (own_labels.tolist() if hasattr(own_labels, "tolist") else own_labels)]
    except (TypeError, ValueError):  # texts, or labels of another kind
        return True
    own = [label for label in own if label != IGNORED]
    return any(part[: len(labels)] == labels for part in (own, own[1:]))
