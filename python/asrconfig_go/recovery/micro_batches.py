"""Splits a collated batch into micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..batching.batch_lengths import Extent, extent, own_lengths
from ..batching.collated_batch import batch_size, pick, shallow, split
from ..batching.memory_limits import cheapest
from ..batching.padding import least_length, trimmed
from .attempts import Piece
from .micro_batch_budget import Budget

Split = Callable[[Any, int], list[Any]]


def is_split(n: int, clip_extent: Extent, budget: Budget) -> bool:
    """Whether a batch of ``n`` samples is too large for one micro-batch, or may cost less in several."""
    return budget.overhead_s is not None or budget.size(clip_extent, n) < n


def evenly(inputs: Any, budget: Budget, by: Split | None) -> Iterator[tuple[Any, Piece]]:
    """Micro-batches in order, with the batch's padding; copies, as a step may take entries out of them."""
    n, clip_extent = batch_size(inputs), extent(inputs)
    size = budget.size(clip_extent, n)
    parts = (by or split)(inputs, size) if size < n else [shallow(inputs)]
    for part in parts:
        yield part, Piece(n if size >= n else batch_size(part), clip_extent)


def by_length(inputs: Any, budget: Budget, model: Any) -> Iterator[tuple[Any, Piece]]:
    """Micro-batches of clips of similar length, the longest first, without the padding that each does not need."""
    from ..memory.worst_batch import per_second  # loads the trace

    lengths = own_lengths(inputs)
    if lengths is None:
        yield from evenly(inputs, budget, None)
        return
    shortest, padded, width = least_length(model), extent(inputs).length, extent(inputs).width
    lengths = [min(max(length, shortest), padded) for length in lengths]  # as they are computed
    rate = budget.rate or per_second(inputs, model)
    overhead = None if budget.overhead_s is None or rate is None else budget.overhead_s * rate
    for rows in cheapest(lengths, lambda longest, left: budget.size(Extent(int(longest), width), left), overhead):
        # In the batch's order, so that the micro-batches of a batch of equal clips do not depend on sorting.
        longest = lengths[rows[0]]
        yield trimmed(pick(inputs, sorted(rows)), longest), Piece(len(rows), Extent(longest, width))
