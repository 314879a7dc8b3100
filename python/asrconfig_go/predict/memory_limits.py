"""The largest micro-batch for each length as a table, and requests to the library about batches."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .._core import native
from .._core.checks import checked
from .._core.declared import OVERHEAD_S, StepMode
from ..errors import InvalidArgumentError
from .memory_settings import Shape
from .opened_trace import OpenedTrace

Table = tuple[tuple[float, int], ...]
"""Rows of seconds and the largest micro-batch of clips of up to this length."""

GRID_S = 0.5
"""Lengths are rounded up to this where the memory model is asked, so that few of them are simulated."""
_LONGEST_S = 65_536  # of a clip in a table


def memory_table(memory: OpenedTrace, longest_s: float, limit_bytes: int | None = None) -> Table:
    """Rows of seconds and the largest micro-batch of clips of up to that length that is predicted to fit.

    Rows are half seconds up to ``longest_s``, as the guard asks: micro-batches that are full by this table are full for
    the guard. Of lengths with the same micro-batch the longest is a row. ``limit_bytes`` is what the allocator may
    reserve in all; without it, what the GPU that the model was traced for leaves. Raises ``InvalidArgumentError`` as
    ``MemoryModel.largest_batch`` does.

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
    last = max(1, math.ceil(longest_s / GRID_S - 1e-9))
    lengths = [step * GRID_S for step in range(1, last + 1)]
    sizes = memory.largest_batches([Shape(1, s) for s in lengths], limit_bytes)
    after = [*sizes[1:], -1]
    return tuple((s, size) for s, size, other in zip(lengths, sizes, after, strict=True) if size != other)


def fits_in(table: Sequence[tuple[float, int]], seconds: float) -> int:
    """The largest micro-batch of clips of up to this length; 0 beyond the table's last row."""
    at = bisect_left(table, seconds, key=lambda row: row[0])
    return table[at][1] if at < len(table) else 0


def cheapest(
    lengths: Sequence[float], size: Callable[[Any, int], int], overhead: float | None = None
) -> Iterator[list[int]]:
    """The guard's split of a step into micro-batches of neighbours in length, the longest first.

    A micro-batch of n clips, the longest of length s, costs n · s + ``overhead``; without that, as few micro-batches
    as possible are made, and those with the least padding. ``size(longest, left)`` returns how many fit, 1 to ``left``.
    Of splits that cost the same, the first micro-batches are largest. Yields the clips' places in ``lengths``.

    Same as ``split_by_memory``, which calls the library: a training step may run in a forked process, where that must
    not be called.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    seconds = [lengths[i] for i in order]
    if overhead is None:
        overhead = sum(seconds) * len(seconds) + 1.0  # more than any padding
    n = len(order)
    best, take, audio = [0.0] * (n + 1), [0] * n, [0.0] * (n + 1)
    for i in range(n - 1, -1, -1):
        audio[i] = audio[i + 1] + seconds[i]
        best[i] = float("inf")
        for count in range(1, size(seconds[i], n - i) + 1):
            cost = overhead + count * seconds[i]
            if cost + audio[i + count] > best[i]:  # no split of the rest costs less than its audio
                break
            if cost + best[i + count] <= best[i]:
                best[i], take[i] = cost + best[i + count], count
    at = 0
    while at < n:
        yield order[at : at + take[at]]
        at += take[at]


def split_by_memory(
    durations: Iterable[float], memory: Sequence[tuple[float, int]], *, overhead_s: float = OVERHEAD_S
) -> list[list[int]]:
    """The cheapest split of a step's clips into micro-batches that fit.

    A micro-batch of n clips, the longest of s seconds, costs n · s + ``overhead_s``; it fits when ``memory``, rows of
    seconds and the largest micro-batch, has n or more for s. Gives the clips' numbers, longest first. Raises
    ``InfeasiblePlanError`` when a clip does not fit alone.

    >>> split_by_memory([2.0, 3.0, 9.0, 4.0], [(5.0, 3), (10.0, 1)])
    [[2], [3, 1, 0]]
    """
    request = {"memory": rows(memory), "overhead_s": checked("overhead_s", overhead_s, float)}
    answer = native.call("batching.split", request, seconds_of(durations).tobytes())
    return [list(batch) for batch in answer["micro_batches"]]


def seconds_of(durations: Iterable[float]) -> array[float]:
    """The seconds of every clip, as doubles."""
    try:
        if not isinstance(durations, bytes | bytearray):  # which array would read as doubles
            return array("d", durations)
    except TypeError:
        pass
    raise InvalidArgumentError(
        "durations are not numbers", "pass the seconds of every clip: scan_audio(source).durations"
    )


def rows(memory: Sequence[tuple[float, int]]) -> list[dict[str, Any]]:
    """The table as the library takes it, checked there."""
    try:
        return [{"seconds": float(seconds), "batch": int(batch)} for seconds, batch in memory]
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"memory = {memory!r:.100} is not a table",
            "pass rows of (seconds, largest micro-batch), or make them by memory_table(memory_model, longest_s)",
        ) from None


class BatchingWarning(UserWarning):
    """Warns that steps of clips of similar length would hurt here, and why."""


def recipe(
    seconds: array[float],
    memory: OpenedTrace | Sequence[tuple[float, int]] | None,
    *,
    mode: StepMode,
    step_samples: int,
    ranks: int,
    seed: int,
    buckets: int,
    overhead_s: float,
    drop_last: bool,
) -> dict[str, Any]:
    """The options of steps for the library, which checks their ranges."""
    if not 0 <= checked("seed", seed, int) < 1 << 64:
        raise InvalidArgumentError(f"seed = {seed} is out of range", "choose 0 or more, below 2**64")
    table = memory_table(memory, max(seconds, default=1.0)) if isinstance(memory, OpenedTrace) else memory
    return {
        "mode": checked("mode", mode, str),
        "step_samples": checked("step_samples", step_samples, int),
        "ranks": checked("ranks", ranks, int),
        "seed": seed,
        "epoch": 0,
        "buckets": checked("buckets", buckets, int),
        "drop_last": checked("drop_last", drop_last, bool),
        "overhead_s": checked("overhead_s", overhead_s, float),
        "memory": None if table is None else rows(table),
    }
