"""What a monitor saw for other programs: CSV, JSON lines, and the trace format of Chrome and Perfetto."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .._base.choices import ExportFormat
from .._base.errors import InvalidArgumentError
from .._base.files import save_whole
from ..view.units import visible
from .chrome_trace import trace
from .run_files import FILE_NAME, gather
from .run_rows import columns, rows
from .timeline import Timeline

_RISKY = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a text that begins so for a formula


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
    write = _FORMATS.get(format or _SUFFIXES.get(file.suffix.lower(), ""))
    if write is None:
        what = f"format = {format!r} is none" if format else f"cannot tell from {file.name!r} what to write"
        raise InvalidArgumentError(what, 'name a file .csv, .jsonl or .json, or pass format="csv", "jsonl" or "chrome"')
    if file.suffix == ".json" and file.name.startswith(FILE_NAME):
        raise InvalidArgumentError(f"{file.name} is a name of a monitor's own files", "name the export otherwise")
    save_whole(file, write(Timeline(gather(run_log).sources)).encode("utf-8", "backslashreplace"))


def as_csv(line: Timeline) -> str:
    """A wide table: cells of what a row does not tell are empty."""
    out = io.StringIO()
    names = columns(line)
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows(line):
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(_RISKY) else text


def as_jsonl(line: Timeline) -> str:
    """First the runs' facts, then a line for each row."""
    heads = (
        {
            "series": "run",
            "source": source.name or "first",
            "start_unix_s": source.run_log.start_unix_nanos / 1e9,
            "duration_s": source.run_log.duration_s,
            "interval_s": source.run_log.interval_s,
            "samples": source.run_log.samples,
            "errors": source.run_log.errors,
            "gpus": [asdict(gpu) for gpu in source.run_log.gpus],
            "host": asdict(source.run_log.host),
        }
        for source in line.sources
    )
    lines = [json.dumps(part, ensure_ascii=False, allow_nan=False) for part in (*heads, *rows(line))]
    return "\n".join([*lines, ""])


def as_chrome(line: Timeline) -> str:
    """An object with ``traceEvents``."""
    return json.dumps(trace(line), ensure_ascii=False, allow_nan=False)


_FORMATS: dict[str, Callable[[Timeline], str]] = {"csv": as_csv, "jsonl": as_jsonl, "chrome": as_chrome}
_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "chrome"}
