"""How a collated batch is cut into micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .attempts import Piece
from .budget import Budget
from .lengths import Extent, extent, own_lengths
from .split import batch_size, check_rows, like, pick, split
from .trim import trimmed

Split = Callable[[Any, int], list[Any]]


def is_cut(inputs: Any, budget: Budget) -> bool:
    """Whether a batch is too large for one micro-batch."""
    n = batch_size(inputs)
    return budget.size(extent(inputs), n) < n


def evenly(inputs: Any, budget: Budget, by: Split | None) -> Iterator[tuple[Any, Piece]]:
    """Micro-batches in order, with the batch's padding; copies, as the Trainer may take entries out of them."""
    n, each = batch_size(inputs), extent(inputs)
    size = budget.size(each, n)
    parts = (by or split)(inputs, size) if size < n else [like(inputs, dict(inputs))]
    for part in parts:
        yield part, Piece(batch_size(part), each)


def by_length(inputs: Any, budget: Budget) -> Iterator[tuple[Any, Piece]]:
    """Micro-batches of clips of similar length, the longest first, without the padding that each does not need."""
    lengths = own_lengths(inputs)
    if lengths is None:
        yield from evenly(inputs, budget, None)
        return
    check_rows(inputs)
    width = extent(inputs).width
    left = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    while left:
        each = Extent(lengths[left[0]], width)
        rows, left = left[: (size := budget.size(each, len(left)))], left[size:]
        # In the batch's order, so that the micro-batches of a batch of equal clips do not depend on sorting.
        yield trimmed(pick(inputs, sorted(rows)), each.length), Piece(len(rows), each)
