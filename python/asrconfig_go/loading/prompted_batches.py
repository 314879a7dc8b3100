"""Batches of prompts continued by their transcripts, and without them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..data.label_limits import IGNORED
from .padded_labels import padded_ids

_DECODER = "decoder_input_ids"


def with_transcripts(batch: dict[str, Any], transcripts: Sequence[list[int]], pad: int | None) -> dict[str, Any]:
    """``batch`` with each prompt continued by the tokens of its transcript, and labels for those alone.

    Padding moves to the end of the rows, where no position of the prompt or the transcript depends on it.
    """
    pad = pad or 0  # the mask or the labels mark the padding
    if _DECODER in batch:
        return {**batch, **_decoder(batch[_DECODER].tolist(), transcripts, pad)}
    prompts = _rows(batch["input_ids"], batch["attention_mask"])
    sequences = [[*prompt, *ids] for prompt, ids in zip(prompts, transcripts, strict=True)]
    labels = [[IGNORED] * len(prompt) + ids for prompt, ids in zip(prompts, transcripts, strict=True)]
    return {
        **batch,
        **_longer_types(batch, transcripts),
        "input_ids": padded_ids(sequences, pad),
        "attention_mask": padded_ids([[1] * len(row) for row in sequences], 0),
        "labels": padded_ids(labels, IGNORED),
    }


def without_transcripts(batch: dict[str, Any], pad: int | None) -> dict[str, Any]:
    """What ``generate`` takes of a batch to train on: prompts, padded in front, or no decoder input at all."""
    labels = batch["labels"]
    prompt = {name: value for name, value in batch.items() if name != "labels"}
    if "input_ids" in batch:
        rows = _rows(batch["input_ids"], (labels == IGNORED) & batch["attention_mask"].bool())
        width = max(map(len, rows))
        prompt["input_ids"] = padded_ids([[pad or 0] * (width - len(row)) + row for row in rows], 0).to(labels.device)
        mask = padded_ids([[0] * (width - len(row)) + [1] * len(row) for row in rows], 0)
        prompt["attention_mask"] = mask.to(labels.device)
        return {name: value for name, value in prompt.items() if not name.endswith("token_type_ids")}
    if _DECODER in batch:
        start = int((labels == IGNORED).cumprod(dim=1).sum(dim=1).min()) + 1
        prompt[_DECODER] = batch[_DECODER][:, :start]
    return prompt


def _rows(ids: Any, mask: Any) -> list[list[int]]:
    return [row[here.bool()].tolist() for row, here in zip(ids, mask, strict=True)]


def _longer_types(batch: dict[str, Any], transcripts: Sequence[list[int]]) -> dict[str, Any]:
    types = {name: value for name, value in batch.items() if name.endswith("token_type_ids")}
    longer = {}
    for name, value in types.items():
        rows = zip(_rows(value, batch["attention_mask"]), transcripts, strict=True)
        longer[name] = padded_ids([[*row, *[0] * len(ids)] for row, ids in rows], 0)
    return longer


def _decoder(prompts: Sequence[list[int]], transcripts: Sequence[list[int]], pad: int) -> dict[str, Any]:
    """Input and labels of a decoder, shifted by one: such models do not shift labels if they get both."""
    sequences = [[*prompt, *ids] for prompt, ids in zip(prompts, transcripts, strict=True)]
    labels = [[IGNORED] * (len(prompt) - 1) + ids for prompt, ids in zip(prompts, transcripts, strict=True)]
    return {_DECODER: padded_ids([row[:-1] for row in sequences], pad), "labels": padded_ids(labels, IGNORED)}
