"""The rows of a manifest, listed by the library without measuring, with texts and further columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .._base import native
from .._base.files import utf8
from .scan_jobs import scan_job, wait

_AT_ONCE = 50_000  # rows fetched per call


@dataclass(frozen=True)
class ManifestRow:
    """One row; ``error`` is the reason why its line, which ``path`` then names, cannot be read."""

    path: str
    offset: float
    seconds: float
    """Of a piece; 0 is to the end of the file."""
    piece: bool
    text: str | None
    extra: list[str | None] | None
    error: str


def manifest_rows(
    path: Path, audio_column: str | None, text_column: str | None, extra: Sequence[str]
) -> tuple[list[str], list[ManifestRow]]:
    """The columns of a manifest, and its rows in order with the values of ``extra`` columns.

    There are no rows where no column holds paths.
    """
    request = {"manifest": utf8(path), "list": True, "columns": list(extra)}
    request |= {"audio_field": audio_column or "", "text_field": text_column or ""}
    rows: list[ManifestRow] = []
    with scan_job("scan.start", request) as job:
        wait(job)
        while True:
            page = native.call("scan.rows", {"job": job, "offset": len(rows), "limit": _AT_ONCE})
            rows += [ManifestRow(**row) for row in page["rows"]]
            if len(page["rows"]) < _AT_ONCE:
                return list(page["columns"] or ()), rows
