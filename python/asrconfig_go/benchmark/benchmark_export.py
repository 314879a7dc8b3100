"""A benchmark for other programs: JSON, and CSV of a row for each thing that was measured."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..view.markup import visible
from .measurements import LoaderResult, OptionResult, SideResult, Spread

if TYPE_CHECKING:
    from .benchmark_result import BenchmarkResult

VERSION = 1
_RISKY = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a text that begins so for a formula
_SPREADS = ("clips_per_s", "audio_per_s", "step_s", "cpu_use", "gain", "cpu_gain")
_COLUMNS = (
    "what", "name", "value", "problem",
    *(f"{name}{end}" for name in _SPREADS for end in ("", "_low", "_high")),
    "padding", "gpu_use", "gpu_memory_bytes", "peak_bytes", "ram_bytes",
    "waiting", "forward", "backward", "optimizer", "other",
    "start_s", "again_s",
)  # fmt: skip


def benchmark_json(r: BenchmarkResult) -> dict[str, Any]:
    """The object of ``to_json``."""
    return {
        "benchmark_version": VERSION,
        "headline": r.headline,
        "setting": asdict(r.setting),
        "original": None if r.original is None else _side(r.original),
        "plan": _side(r.plan),
        "speedup": _spread(r.speedup),
        "cpu_speedup": _spread(r.cpu_speedup),
        "loader": [asdict(each) for each in r.loader],
        "options": [_option(each) for each in r.options],
        "bottleneck": None if r.bottleneck is None else asdict(r.bottleneck),
        "next_change": r.next_change,
        "findings": [asdict(each) for each in r.findings],
        "profile": list(r.profile),
        "notes": list(r.notes),
        "stopped": r.stopped,
    }


def _spread(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else asdict(spread)


def _side(side: SideResult) -> dict[str, Any]:
    found = asdict(side)
    found |= {name: _spread(getattr(side, name)) for name in ("clips_per_s", "audio_per_s", "step_s", "cpu_use")}
    return {
        **found,
        "padding": side.padding,
        "shares": side.shares,
        "queueing": side.queueing,
        "peak_bytes": side.peak_bytes,
    }


def _option(each: OptionResult) -> dict[str, Any]:
    return {**asdict(each), "side": None if each.side is None else _side(each.side), "better": bool(each.better)}


def benchmark_csv(r: BenchmarkResult) -> str:
    """A table; cells of what a row does not tell are empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    rows = [_side_row(side) for side in (r.original, r.plan) if side is not None]
    rows += [_loader_row(each) for each in r.loader] + [_option_row(each) for each in r.options]
    if r.speedup is not None:
        rows.append({"what": "speedup", **_flat("gain", r.speedup), **_flat("cpu_gain", r.cpu_speedup)})
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items() if value is not None})
    return out.getvalue()


def _flat(name: str, spread: Spread | None) -> dict[str, Any]:
    if spread is None:
        return {}
    return {name: spread.median, f"{name}_low": spread.low, f"{name}_high": spread.high}


def _side_row(side: SideResult) -> dict[str, Any]:
    row: dict[str, Any] = {"what": "side", "name": side.name, "problem": side.problem, "padding": side.padding}
    for name in ("clips_per_s", "audio_per_s", "step_s", "cpu_use"):
        row |= _flat(name, getattr(side, name))
    read = side.readings
    row |= {"gpu_use": read.gpu_use, "gpu_memory_bytes": read.gpu_memory_bytes, "ram_bytes": read.ram_bytes}
    return {**row, "peak_bytes": side.peak_bytes, **side.shares}


def _loader_row(each: LoaderResult) -> dict[str, Any]:
    row = {"what": "loader", "name": f"{each.workers} workers", "value": each.prefetch}
    row |= {**_flat("clips_per_s", each.clips_per_s), **_flat("audio_per_s", each.audio_per_s)}
    return {**row, "start_s": each.start_s, "again_s": each.again_s}


def _option_row(each: OptionResult) -> dict[str, Any]:
    row = {} if each.side is None else _side_row(each.side)
    row |= {"what": "option", "name": each.option, "value": each.value, "problem": each.problem or each.why_not}
    return {**row, **_flat("gain", each.gain), **_flat("cpu_gain", each.cpu_gain)}


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(_RISKY) else text
