"""The largest micro-batch by the length of its longest clip."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._core.checks import checked
from ..errors import InvalidArgumentError
from .memory_settings import Shape

if TYPE_CHECKING:
    from .opened_trace import OpenedTrace

Table = tuple[tuple[float, int], ...]
"""Rows of seconds and the largest micro-batch of clips of up to this length."""

GRID_S = 0.5
"""Lengths are rounded up to this where the memory model is asked, so that few of them are simulated."""
_LONGEST_S = 65_536  # of a clip in a table


def memory_table(memory: OpenedTrace, longest_s: float, limit_bytes: int | None = None) -> Table:
    """Return the largest micro-batch that is predicted to fit, by the length of its longest clip.

    Rows are every half second up to ``longest_s``, as the guard asks: micro-batches that are full by this table are
    full for the guard. Of lengths with the same micro-batch only the longest is a row.

    Args:
        memory: The memory model.
        longest_s: The seconds of the longest clip, above 0 and up to 65536; rounded up to half a second, or to the
            longest that the model takes.
        limit_bytes: The bytes that the allocator may reserve in all; None for what the GPU of the memory model leaves.

    Returns:
        Rows of seconds and the largest micro-batch of clips of up to that length; 0 where not even one clip fits.

    Raises:
        InvalidArgumentError: ``longest_s`` is out of its range or longer than the model takes, there is neither a limit
            nor a GPU, or the memory model is closed.
        UnsupportedError: No formula answers for a batch, and it cannot be traced.

    Example:
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> with MemoryModel.trace(small_model(tokens=12, seed=0), gpu="T4", progress=False) as memory:
        ...     table = memory_table(memory, 2.0)
        >>> [seconds for seconds, _ in table]
        [0.5, 1.0, 1.5, 2.0]
    """
    longest_s = checked("longest_s", longest_s, float)
    if not 0 < longest_s <= _LONGEST_S:
        raise InvalidArgumentError(
            f"longest_s = {longest_s:g} is out of range", f"pass seconds above 0, up to {_LONGEST_S}"
        )
    memory.length(longest_s)  # raises, and names this length rather than half a second more
    last = max(1, math.ceil(longest_s / GRID_S - 1e-9))
    lengths = [min(step * GRID_S, memory.longest_s) for step in range(1, last + 1)]
    sizes = memory.largest_batches([Shape(1, s) for s in lengths], limit_bytes)
    after = [*sizes[1:], -1]
    return tuple((s, size) for s, size, other in zip(lengths, sizes, after, strict=True) if size != other)


def fits_in(table: Sequence[tuple[float, int]], seconds: float) -> int:
    """The largest micro-batch of clips of up to this length; 0 beyond the table's last row."""
    at = bisect_left(table, seconds, key=lambda row: row[0])
    return table[at][1] if at < len(table) else 0
