"""The pages of a Parquet file by their own headers: what they claim to unpack to, before anything is unpacked.

The footer's sizes are not enough: a reader makes room for what a page's header says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._base.errors import CorruptFileError
from .decompression import check_unpacked, unpacked_size

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12, "BYTE_ARRAY": 4}
_BATCH = 64 << 20  # bytes of rows read at once; some batches are on their way at any time
_DICTIONARY = 2  # of PageType
_HEADER = 1 << 16  # bytes that the header of a page may take, statistics included


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a Parquet file, by its own header."""

    kind: int
    unpacked: int  # bytes
    stored: int  # bytes, without the header
    values: int


def row_group(path: Path, file: Any, group: int, column: str, most: int) -> Iterator[Any]:
    """The record batches of one column of a row group, of at most ``most`` rows and so few that memory stays bounded.

    Raises ``UnsupportedError`` for a page that claims to unpack to more than is allowed, and as soon as the column
    does; ``CorruptFileError`` for pages that cannot be followed.
    """
    rows, stored = _rows_at_once(path, file.metadata.row_group(group), column, most)
    unpacked = 0
    for batch in file.iter_batches(rows, row_groups=[group], columns=[column], use_threads=False):
        unpacked += unpacked_size(batch.column(0))
        check_unpacked(path, f"column {column!r} of a row group", unpacked, stored)
        yield batch


def _rows_at_once(path: Path, group: Any, column: str, most: int) -> tuple[int, int]:
    """How many rows to read at once, and how many bytes the column takes in the file; ``group`` is the metadata."""
    stored = claimed = longest = 0
    with path.open("rb") as file:
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema.split(".", 1)[0] != column:
                continue
            width = _WIDTHS.get(chunk.physical_type, 1)
            stored += chunk.total_compressed_size
            for page in _pages(path, file, chunk):
                check_unpacked(path, f"a page of column {chunk.path_in_schema!r}", page.unpacked, page.stored)
                if page.kind == _DICTIONARY:
                    longest += page.unpacked  # one value may be as long, and in every row
                    claimed += page.unpacked
                else:
                    claimed += max(page.unpacked, page.values * width)
            check_unpacked(path, f"column {chunk.path_in_schema!r} of a row group", claimed, stored)
    return max(1, min(most, _BATCH * group.num_rows // max(1, claimed), _BATCH // max(1, longest))), stored


def _pages(path: Path, file: Any, chunk: Any) -> Iterator[Page]:
    """The pages of a column chunk, of which only the headers are read."""
    starts = [chunk.data_page_offset, chunk.dictionary_page_offset]
    at = min(start for start in starts if start is not None and start > 0)
    end = at + chunk.total_compressed_size
    while at < end:
        file.seek(at)
        head = file.read(min(_HEADER, end - at))
        try:
            length, page = _page(head)
        except (IndexError, KeyError, ValueError) as error:
            raise CorruptFileError(
                f"{path}: the pages of column {chunk.path_in_schema!r} cannot be followed at byte {at}",
                "download or write it again",
            ) from error
        yield page
        at += length + page.stored


def _page(head: bytes) -> tuple[int, Page]:
    """The length and the content of a page's header, in Thrift's compact protocol (parquet.thrift, ``PageHeader``)."""
    reader = _Compact(head)
    fields = reader.fields()
    described: dict[int, Any] = next((fields[number] for number in (5, 7, 8) if number in fields), {})
    page = Page(fields[1], fields[2], fields[3], described.get(1, 0))
    if min(page.unpacked, page.stored, page.values) < 0:
        raise ValueError("a negative size")
    return reader.at, page


class _Compact:
    """Reads Thrift's compact protocol (thrift-compact-protocol.md); what is not a number or structure is skipped."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("an endless number")

    def fields(self, depth: int = 0) -> dict[int, Any]:
        """The fields of a structure by number."""
        if depth > 8:
            raise ValueError("nested too deep")
        found: dict[int, Any] = {}
        number = 0
        while kind := self._byte():
            number = number + (kind >> 4) if kind >> 4 else self._zigzag()
            found[number] = self._value(kind & 15, depth)
        return found

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # true and false
            return kind == 1
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 12:
            return self.fields(depth + 1)
        length = self._varint() if kind == 8 else {3: 1, 7: 8}.get(kind)
        if length is None:
            raise ValueError(f"type {kind}, which page headers do not have")
        self.at += length
        return None
