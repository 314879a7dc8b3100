"""The messages of an Arrow file or stream: what their buffers claim to unpack to, before anything is unpacked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._base.errors import CorruptFileError
from .decompression import check_unpacked


def check_messages(path: Path) -> None:
    """Refuse a file with a batch that would unpack to too much: ``UnsupportedError``. Raises what pyarrow does, too."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        if file.read(6) == b"ARROW1":
            file.seek(8)  # the same messages as in a stream, and behind them an index
        else:
            file.seek(0)
        for message in pa.ipc.MessageReader.open_stream(file):
            _check(path, message)


def _check(path: Path, message: Any) -> None:
    """Refuse a message of an Arrow stream or file whose buffers would unpack to too much.

    A compressed buffer begins with its unpacked length. Where the buffers lie is in the message's flatbuffer
    (Message.fbs): ``UnsupportedError`` for one that claims too much, ``CorruptFileError`` for an invalid one.
    """
    if message.type not in ("record batch", "dictionary") or message.body is None:
        return
    try:
        claimed = sum(_claims(memoryview(message.metadata), memoryview(message.body)))
    except (struct.error, IndexError) as error:
        raise CorruptFileError(f"{path} has a damaged message", "download or write it again") from error
    check_unpacked(path, f"a {message.type}", claimed, message.body.size)


def _claims(metadata: memoryview, body: memoryview) -> Iterator[int]:
    root = _at("<I", metadata, 0)
    batch = _table(metadata, _field(metadata, root, 2))
    if metadata[_field(metadata, root, 1)] == 2:  # a dictionary: its record batch
        batch = _table(metadata, _field(metadata, batch, 1))
    if not _field(metadata, batch, 3):  # not compressed
        return
    buffers = _table(metadata, _field(metadata, batch, 2))
    for i in range(_at("<I", metadata, buffers)):
        offset, length = struct.unpack_from("<qq", metadata, buffers + 4 + 16 * i)
        if length >= 8:
            yield max(length, _at("<q", body, offset))


def _at(layout: str, data: memoryview, at: int) -> int:
    if at < 0:
        raise IndexError("before the start")
    return int(struct.unpack_from(layout, data, at)[0])


def _table(data: memoryview, at: int) -> int:
    return at + _at("<I", data, at)


def _field(data: memoryview, table: int, number: int) -> int:
    """Where a table's field is, 0 when it is absent."""
    slots = table - _at("<i", data, table)
    if 4 + 2 * number >= _at("<H", data, slots):
        return 0
    offset = _at("<H", data, slots + 4 + 2 * number)
    return table + offset if offset else 0
