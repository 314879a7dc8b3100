"""Limits on what Parquet and Arrow files unpack to, checked before anything of that size is allocated.

A page of zeros compresses ten thousand times, and a dictionary repeats one long value for every row. Speech does
neither: what unpacks to a hundred times its size in the file is refused, unless it is small all the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._base.errors import UnsupportedError

_ALWAYS = 256 << 20  # bytes
_TIMES = 100  # its size in the file


def allowed(stored: int) -> int:
    """The most bytes that this many bytes in the file may unpack to."""
    return max(_ALWAYS, _TIMES * stored)


def check_unpacked(where: Path | str, what: str, claimed: int, stored: int) -> None:
    """``UnsupportedError`` when a part of a file would unpack to more than is allowed."""
    if claimed > allowed(stored):
        raise UnsupportedError(
            f"{where}: {what} of {stored} bytes unpacks to {claimed / (1 << 20):.0f} MiB,"
            f" more than the limit of {allowed(stored) / (1 << 20):.0f} MiB",
            "speech does not compress like that: the file is damaged or hostile; write it again without compression"
            " and dictionaries if it is meant",
        )


def unpacked_size(array: Any) -> int:
    """Bytes of an Arrow array once dictionaries and views, which may name one value many times, are written out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return unpacked_size(array.storage)
    if pa.types.is_struct(kind):
        return sum(unpacked_size(array.field(i)) for i in range(kind.num_fields))
    if pa.types.is_dictionary(kind):
        if not _has_lengths(kind.value_type):
            return int(array.nbytes)
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return int(array.nbytes) + int(pc.sum(lengths).as_py() or 0)
    if "_view" in str(kind) and _has_lengths(kind):
        views = pa.Array.from_buffers(pa.int32(), 4 * len(array), [None, array.buffers()[1]], offset=4 * array.offset)
        return int(array.nbytes) + int(pc.sum(views[::4]).as_py() or 0)  # a view of 16 bytes begins with its length
    return int(array.nbytes)


def _has_lengths(kind: Any) -> bool:
    return any(word in str(kind) for word in ("string", "binary"))
