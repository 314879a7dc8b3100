"""Label columns of datasets, checked without decoding audio or running the user's code.

In Arrow columns numpy selects the rows that may be faulty, and only those are checked one by one: a million rows take
seconds.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._base.defaults import SAMPLING_RATE
from .hf_sources import stored_column
from .label_faults import LabelTally
from .label_limits import IGNORED
from .label_rules import LabelRules

_AT_ONCE = 10_000  # rows
_ENOUGH = 10_000  # faulty rows, after which the others are not checked


def label_column(dataset: Any, names: Sequence[str]) -> str | None:
    """The first of ``names`` that ``dataset`` stores; None where labels are made when a row is read, and of streams."""
    if isinstance(dataset, list | tuple):
        first = dataset[0] if dataset else None
        return next((name for name in names if name in first), None) if isinstance(first, Mapping) else None
    if not (hasattr(dataset, "with_format") and hasattr(dataset, "data") and hasattr(dataset, "__len__")):
        return None
    if (getattr(dataset, "format", None) or {}).get("type") == "custom":  # set_transform, which may change labels
        return None
    return next((name for name in names if name in (dataset.column_names or ())), None)


def tally_labels(
    dataset: Any, name: str, rules: LabelRules, seconds: Sequence[float] | None = None
) -> LabelTally | None:
    """Check the column ``name``; ``seconds`` are the clips' durations, if known. None for labels of another kind."""
    tally, checked = LabelTally(rules), 0
    for column, rows in _columns(dataset, name):
        if not _has_labels(column.type, rules):
            return None
        durations = None if seconds is None else [seconds[row] if row >= 0 else math.nan for row in rows.tolist()]
        for place, labels in _suspects(column, durations, rules):
            if (row := int(rows[place])) >= 0:
                tally.add(row, labels, None if durations is None else durations[place])
        checked += int((rows >= 0).sum())
        if tally.faulty >= _ENOUGH:
            tally.complete = checked >= len(dataset)
            break
    tally.rows = len(dataset)
    return tally


def _columns(dataset: Any, name: str) -> Iterator[tuple[Any, Any]]:
    """The column in parts, as Arrow arrays, and their rows of the dataset, -1 for none.

    Yields nothing for rows that Arrow has no type for.
    """
    import numpy as np
    import pyarrow as pa

    if isinstance(dataset, list | tuple):
        with contextlib.suppress(pa.ArrowException, AttributeError):  # rows of several types
            labels = (row.get(name) for row in dataset)
            plain = [value.tolist() if hasattr(value, "tolist") else value for value in labels]
            yield pa.array(plain), np.arange(len(dataset))
        return
    column, indices = stored_column(dataset, name)
    rows = np.arange(len(column))
    if indices is not None:  # rows are read in their stored order, which takes a tenth of the time
        numbers = indices.to_numpy()
        rows = np.full(len(column), -1)
        rows[numbers[::-1]] = np.arange(len(numbers))[::-1]  # of a row that is taken twice the first
    start = 0
    for chunk in column.chunks:
        for part in (chunk[at : at + _AT_ONCE] for at in range(0, len(chunk), _AT_ONCE)):
            own, start = rows[start : start + len(part)], start + len(part)
            if (own >= 0).any():
                yield part.storage if isinstance(part, pa.ExtensionArray) else part, own


def _has_labels(kind: Any, rules: LabelRules) -> bool:
    """Whether these are a number for each row of a classifier, or else lists of numbers."""
    from pyarrow import types

    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if rules.kind == "classes":
        return bool(types.is_integer(kind))
    return lists and bool(types.is_integer(kind.value_type) or types.is_null(kind.value_type))


def _suspects(
    column: Any, seconds: Sequence[float] | None, rules: LabelRules
) -> Iterator[tuple[int, Sequence[int] | None]]:
    """The rows that may have a fault, with their labels."""
    import numpy as np
    import pyarrow.compute as pc

    if rules.kind == "classes":
        values, lengths = column.drop_null(), pc.if_else(pc.is_valid(column), 1, -1)
    else:
        values, lengths = pc.list_flatten(column), pc.fill_null(pc.list_value_length(column), -1)
    ids = pc.fill_null(values, IGNORED).to_numpy(zero_copy_only=False).astype(np.int64)
    sizes = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(np.maximum(sizes, 0))
    starts = ends - np.maximum(sizes, 0)

    def count(wanted: Any) -> Any:
        until = np.concatenate([[0], np.cumsum(wanted)])
        return until[ends] - until[starts]

    odd = (ids < 0) & (ids != IGNORED)
    if rules.vocabulary is not None:
        odd |= ids >= rules.vocabulary
    if rules.blank is not None:
        odd |= ids == rules.blank
    suspect = (sizes < 0) | (count(odd) > 0) | (count(ids >= 0) == 0)
    if rules.pad is not None:
        suspect |= count(ids == rules.pad) > (rules.pad == rules.end)
    suspect |= _may_not_fit(sizes, seconds, rules)
    for row in np.flatnonzero(suspect).tolist():
        yield row, None if sizes[row] < 0 else ids[starts[row] : ends[row]].tolist()


def _may_not_fit(sizes: Any, seconds: Sequence[float] | None, rules: LabelRules) -> Any:
    """Of CTC the rows with labels for more than half of the frames, as each may be equal to the one before."""
    import numpy as np

    limits = rules.limits
    if limits is not None and limits.positions is not None and rules.kind != "classes":
        return sizes > limits.positions
    if limits is None or seconds is None or rules.kind == "classes":
        return np.zeros(len(sizes), bool)
    lengths = np.nan_to_num(np.asarray(seconds, float), nan=1e6, posinf=1e6) * SAMPLING_RATE
    frames: Any = limits.frames
    return 2 * sizes > frames(lengths.round().astype(np.int64))
