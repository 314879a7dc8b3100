"""The explanation as text for terminals, at most 110 columns wide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..data.histogram import histogram_lines
from ..data.profile_view import dataset_facts
from ..view.terminal import section, table, wrapped
from ..view.units import GIB, plural
from .decisions import DecisionRow, grouped
from .memory_bar import memory_of
from .plan_text import (
    IN_USE,
    alternative_rows,
    bucket_rows,
    device_rows,
    limit_words,
    memory_lines,
    part_rows,
    percentile_words,
    times_rows,
    times_source,
)

if TYPE_CHECKING:
    from .cautions import Caution
    from .explanation import Explanation

_BAR = 40
_SHOWN = 5  # bad files
_MARKS = {"serious": "!!", "warning": "! ", "note": "· "}


def explanation_text(e: Explanation, profiles: bool = True) -> str:
    """Headline, hardware, data, memory, times, decisions, alternatives, and what to look out for."""
    c = e.config
    lines = wrapped(e.headline)
    if profiles:
        lines += section("Hardware", repr(e.hardware).splitlines() if e.hardware else [])
        lines += section("Model", repr(e.model).splitlines() if e.model else [])
        lines += section("Data", _data(e))
    lines += section("Devices", table(device_rows(c)))
    lines += section("Micro-batches by length", table(bucket_rows(c)))
    lines += section("Memory of a device", _memory(e))
    source = times_source(c)
    lines += section(f"Times ({source})", [f"{name:<18} {words}" for name, words in times_rows(c)])
    lines += ["", *wrapped(f"Plan by policy {c.policy!r}, preset {c.preset!r}, for {c.gpu_name or 'the CPU'}:")]
    for group, rows in grouped(c).items():
        lines += ["", group, *(line for row in rows for line in _decision(row))]
    lines += section("Alternatives", table(alternative_rows(c)))
    lines += section("Look out", [line for caution in e.cautions for line in _caution(caution)], indent="")
    return "\n".join(line.rstrip() for line in lines)


def _data(e: Explanation) -> list[str]:
    d = e.dataset
    if d is None:
        return []
    lines = dataset_facts(d)
    if d.measured_count:
        lines.append(percentile_words(d))
        lines += histogram_lines(d.histogram)
    lines += [words for _, words in limit_words(e.config)]
    if d.bad_count:
        lines.append(f"{plural(d.bad_count, 'bad file')} left out:")
        lines += [f"  {bad.path}: {bad.error}" for bad in d.bad_files[:_SHOWN]]
        lines += [f"  … and {d.bad_count - _SHOWN} more"] if d.bad_count > _SHOWN else []
    return lines


def _memory(e: Explanation) -> list[str]:
    """A bar for each part, then the lines that the peak is held against."""
    m = memory_of(e)
    if not m.peak_bytes:
        return []
    rows = [(IN_USE, m.others_bytes)] if m.others_bytes else []
    rows += [(name, held) for _, name, held in part_rows(m)]
    limits = memory_lines(m)
    widest = max(len(name) for name in (*(name for name, _ in rows), *(name for name, *_ in limits)))
    lines, before = [], 0.0
    for name, held in rows:
        after = before + held / m.extent_bytes
        start, end = round(_BAR * before), round(_BAR * after)
        filled = " " * start + "█" * max(end - start, int(held > 0))
        lines.append(f"{name:<{widest}} {held / GIB:>7.2f} GiB |{filled[:_BAR]:<{_BAR}}|")
        before = after
    for name, held, at in limits:
        lines.append(f"{name:<{widest}} {held / GIB:>7.2f} GiB |{_line(at, m.extent_bytes)}|")
    return lines


def _line(at: int, extent: int) -> str:
    return f"{'·' * (round(_BAR * at / extent) - 1)}┤"[-_BAR:].ljust(_BAR)


def _decision(row: DecisionRow) -> list[str]:
    changed = f" (overridden; planned: {row.planned})" if row.overridden else ""
    lines = wrapped(f"{row.setting} = {row.value or '–'}{changed}", "  ", "    ")
    lines += wrapped(row.reason, "      ") if row.reason else []
    if row.alternative:
        lines += wrapped(f"instead of {row.alternative}" + (f": {row.gain}" if row.gain else ""), "      ")
    elif row.gain:
        lines += wrapped(row.gain, "      ")
    return lines


def _caution(caution: Caution) -> list[str]:
    mark = _MARKS[caution.level]
    return [
        *wrapped(f"{mark} {caution.what}", "  ", "   "),
        *(wrapped(caution.why, "     ") if caution.why else []),
        *(wrapped(f"→ {caution.remedy}", "     ", "  ") if caution.remedy else []),
    ]
