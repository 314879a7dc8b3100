"""Ogg pages, as far as the benchmarks change them (RFC 3533)."""

from __future__ import annotations

from collections.abc import Iterator


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte << 24
        for _ in range(8):
            value = value << 1 ^ (0x04C11DB7 if value & 0x80000000 else 0)
        table.append(value & 0xFFFFFFFF)
    return tuple(table)


_CRC = _table()


def checksum(page: bytes) -> int:
    """The CRC of a page whose own field is zero."""
    value = 0
    for byte in page:
        value = (value << 8 & 0xFFFFFFFF) ^ _CRC[value >> 24 ^ byte]
    return value


def pages(data: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of every whole page."""
    start = 0
    while data[start : start + 4] == b"OggS" and start + 27 <= len(data):
        table = start + 27
        segments = data[table : table + data[start + 26]]
        end = table + len(segments) + sum(segments)
        if end > len(data):
            return
        yield start, end
        start = end


def resealed(page: bytes) -> bytes:
    """The page with its checksum made right."""
    page = page[:22] + b"\0\0\0\0" + page[26:]
    return page[:22] + checksum(page).to_bytes(4, "little") + page[26:]
