"""How a collated batch is cut into micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..batching.table import greedily
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
    for rows in greedily(lengths, lambda longest, left: budget.size(Extent(int(longest), width), left)):
        # In the batch's order, so that the micro-batches of a batch of equal clips do not depend on sorting.
        longest = lengths[rows[0]]
        yield trimmed(pick(inputs, sorted(rows)), longest), Piece(len(rows), Extent(longest, width))
