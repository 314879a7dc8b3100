"""Labels padded with the index that the loss ignores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._base.errors import InvalidArgumentError
from ..data.label_limits import IGNORED


def labels_of(rows: Sequence[dict[str, Any]], tokenizer: Any, *, ended: bool = False) -> list[list[int]] | None:
    """The label ids of each row: its ``labels``, else its ``text`` as ``text_ids``; None when no row has either."""
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
    return text_ids([row["text"] for row in rows], tokenizer, ended=ended)


def text_ids(texts: Sequence[str], tokenizer: Any, *, ended: bool = False) -> list[list[int]]:
    """The tokens of each text; ``ended``: with the end token behind them where the tokenizer writes none."""
    rows: list[list[int]] = [list(ids) for ids in tokenizer(list(texts)).input_ids]
    end = getattr(tokenizer, "eos_token_id", None) if ended else None
    return [ids if end is None or ids[-1:] == [end] else [*ids, end] for ids in rows]


def padded_labels(labels: Sequence[Sequence[int]], multiple: int | None = None) -> Any:
    """An int64 tensor (clips, longest), padded with -100 at the end, to a multiple where one is given."""
    return padded_ids(labels, IGNORED, multiple)


def padded_ids(rows: Sequence[Sequence[int]], value: int, multiple: int | None = None) -> Any:
    """As ``padded_labels``, with ``value`` in place of -100."""
    import torch

    width = max(map(len, rows))
    if multiple:
        width = -(-width // multiple) * multiple
    padded = torch.full((len(rows), width), value, dtype=torch.long)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = torch.as_tensor(tokens, dtype=torch.long)
    return padded


def without_start(labels: Sequence[list[int]], start: int) -> list[list[int]]:
    """The labels without the token that the decoder starts with: the model puts it in front again."""
    return [tokens[1:] if tokens and tokens[0] == start else tokens for tokens in labels]
