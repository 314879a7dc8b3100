"""What a monitor saw for other programs: CSV, JSON lines, and the trace format of Chrome and Perfetto."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

from .._base import native
from .._base.choices import ExportFormat
from .._base.errors import InvalidArgumentError
from .._base.files import save_whole
from .run_files import FILE_NAME, gather

_SUFFIXES: dict[str, ExportFormat] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "chrome"}


def export(run_log: Any, path: str | os.PathLike[str], format: ExportFormat | None = None) -> None:
    """Write what a monitor saw to ``path``; ``run log`` is whatever ``report`` takes.

    ``format`` is "csv" (a table with a row for each point, step, event and alert), "jsonl" (the same as one object a
    line, after one about the run) or "chrome" (for chrome://tracing and https://ui.perfetto.dev). None tells it from
    the suffix: .csv, .jsonl, .json. The file is there whole or not at all.

    Raises ``InvalidArgumentError`` for another format and for a name of the monitor's own files, and ``NotFoundError``
    where the file cannot be written.

    >>> with MemoryMonitor(interval_ms=20) as monitor:
    ...     monitor.step(1, audio_s=4.0)
    >>> export(monitor, "run.csv")
    """
    file = Path(path)
    written = format or _SUFFIXES.get(file.suffix.lower())
    if written not in get_args(ExportFormat):
        problem = f"format = {format!r} is none" if format else f"cannot tell from {file.name!r} what to write"
        hint = 'name a file .csv, .jsonl or .json, or pass format="csv", "jsonl" or "chrome"'
        raise InvalidArgumentError(problem, hint)
    if file.suffix == ".json" and file.name.startswith(FILE_NAME):
        raise InvalidArgumentError(f"{file.name} is a name of a monitor's own files", "name the export otherwise")
    sources = [source.to_json() for source in gather(run_log).sources]
    save_whole(file, bytes(native.exchange("report.export", {"sources": sources, "format": written})[1]))
