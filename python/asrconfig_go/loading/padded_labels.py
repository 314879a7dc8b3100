"""Labels padded with the index that the loss ignores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._base.errors import InvalidArgumentError
from ..data.label_limits import IGNORED


def labels_of(rows: Sequence[dict[str, Any]], tokenizer: Any) -> list[list[int]] | None:
    """The label ids of each row: its ``labels``, else its ``text`` by the tokenizer; None when no row has either."""
    have = [name for name in ("labels", "text") if name in rows[0]]
    if not have:
        return None
    name = have[0]
    missing = next((i for i, row in enumerate(rows) if row.get(name) is None), None)
    if missing is not None:
        raise InvalidArgumentError(f"row {missing} of the batch has no {name}", "leave out the clips without a text")
    if name == "labels":
        return [[int(token) for token in row["labels"]] for row in rows]
    if tokenizer is None:
        raise InvalidArgumentError("the processor has no tokenizer for the texts", 'give rows with "labels"')
    return [list(tokenizer(row["text"]).input_ids) for row in rows]


def padded_labels(labels: Sequence[Sequence[int]], multiple: int | None = None) -> Any:
    """An int64 tensor (clips, longest), padded with -100 at the end, to a multiple where one is given."""
    import torch

    width = max(map(len, labels))
    if multiple:
        width = -(-width // multiple) * multiple
    padded = torch.full((len(labels), width), IGNORED, dtype=torch.long)
    for row, tokens in zip(padded, labels, strict=True):
        row[: len(tokens)] = torch.as_tensor(tokens, dtype=torch.long)
    return padded


def without_start(labels: Sequence[list[int]], start: int) -> list[list[int]]:
    """The labels without the token that the decoder starts with: the model puts it in front again."""
    return [tokens[1:] if tokens and tokens[0] == start else tokens for tokens in labels]
