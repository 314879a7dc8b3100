"""Comparisons of GPUs as people see them: a table for terminals, and one for notebooks in light and dark."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ..view.markup import BAR_COLOUR, escaped
from ..view.units import GIB, gib, plural

if TYPE_CHECKING:
    from .._base.ranges import Range
    from .comparison_records import Comparison, GPUPlan, LargestModels, TrainableModel, Way

_HEAD = ("GPU", "plan", "largest", "peak of memory", "hours a run", "cost, $", "kWh", "bound by", "")
_CELL = 'style="text-align:left;vertical-align:top;padding:2px 8px;white-space:nowrap"'
_FITS, _FAILS = "#2e7d32", "#c62828"


def comparison_text(c: Comparison) -> str:
    """Heading, one line for each GPU, what would make the others fit, prices and assumptions."""
    table = [_HEAD, *(_cells(row) for row in c.rows if row.fits)]
    lines = [heading(c)]
    if len(table) > 1:
        widths = [max(len(cells[i]) for cells in table) for i in range(len(_HEAD))]
        lines += ["  " + "  ".join(map(str.ljust, cells, widths)).rstrip() for cells in table]
    lines += [line for row in c.rows for line in _remarks(row)]
    return "\n".join(lines + [line for text in foot(c) for line in _wrapped(text)])


def heading(c: Comparison) -> str:
    """What is trained, on what."""
    model = f"{c.model.name} ({c.model.class_name})" if c.model.name else c.model.class_name
    return (
        f"{model}: {plural(c.clips, 'clip')}, {c.hours:.1f} h, longest {seconds(c.longest_s)} s; "
        f"effective batch {c.target_batch_size}, {plural_epochs(c.epochs)}"
    )


def seconds(s: float) -> str:
    """``25``, ``1.954``, ``36000``."""
    return f"{s:.4g}" if s < 1000 else f"{s:.0f}"


def plural_epochs(epochs: float) -> str:
    """``1 epoch``, ``2.5 epochs``."""
    return f"{epochs:g} epoch" + ("" if epochs == 1 else "s")


def _cells(row: GPUPlan) -> tuple[str, ...]:
    """``largest`` is the largest micro-batch; the last cell has the marks."""
    energy = None if row.energy_kwh is None else number(row.energy_kwh.likely)
    return (
        row.name,
        plan_words(row),
        f"{row.largest_batch}",
        f"{row.peak_bytes / GIB:.1f} of {gib(row.memory_bytes)}, {row.peak_bytes / row.memory_bytes:.0%}",
        span(row.run_hours),
        span(row.cost_usd),
        energy or "–",
        row.bound + (", calibrated" if row.calibrated else ""),
        ", ".join(_marks(row)),
    )


def _marks(row: GPUPlan) -> list[str]:
    return [word for word, on in (("cheapest", row.cheapest), ("fastest", row.fastest)) if on]


def plan_words(row: GPUPlan) -> str:
    """``8 × 4, bf16``, with what else the plan needs."""
    words = [f"{row.per_device_train_batch_size} × {row.gradient_accumulation_steps}", row.precision]
    words += ["checkpointing"] if row.gradient_checkpointing else []
    words += ["8-bit"] if "8bit" in row.optimizer else []
    words += [f"LoRA {row.lora_rank}"] if row.lora_rank else []
    return ", ".join(words)


def span(r: Range | None) -> str:
    """``2.7 (1.5–4.7)``; a dash for what is not known."""
    return "–" if r is None else f"{number(r.likely)} ({number(r.low)}–{number(r.high)})"


def number(x: float) -> str:
    """Two or three digits that count."""
    if x >= 100:
        return f"{x:.0f}"
    if x >= 10:
        return f"{x:.1f}"
    return f"{x:.2f}" if x >= 0.1 else f"{x:.2g}"


def _remarks(row: GPUPlan) -> list[str]:
    lines = [line for text in row.notes for line in _wrapped(f"· {row.name}: {text}")]
    if row.fits:
        return lines
    lines.append(f"  ! {row.name} ({gib(row.budget_bytes)} of {gib(row.memory_bytes)} to use): does not fit")
    for way in row.remedies:
        lines.append(f"      {'→' if way.fits else '✗'} {way.what}: {gib(way.peak_bytes)}")
    return lines


def foot(c: Comparison) -> list[str]:
    """Prices with their sources, and what the figures rest on."""
    by_source: dict[str, dict[str, None]] = {}
    for price in (row.price for row in c.rows if row.price is not None):
        where = ", ".join(word for word in (price.provider, price.date, price.source) if word)
        by_source.setdefault(where, {})[f"{price.gpu} {price.usd_per_hour:.2f}"] = None
    seen = [f"{', '.join(cards)} ({where})" for where, cards in by_source.items()]
    lines = ["dollars per hour and GPU: " + "; ".join(seen)] if seen else []
    if any(row.fits and row.unverified for row in c.rows):
        lines.append("some published figures of these cards were not checked against a source")
    return [f"· {text}" for text in [*lines, *c.assumptions]]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 118, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def comparison_html(c: Comparison) -> str:
    """The same as a table: memory as bars, the cheapest and the fastest marked."""
    head = "".join(f"<th {_CELL}>{escaped(name)}</th>" for name in _HEAD[:-1])
    rows = "".join(_row_html(row) for row in c.rows)
    notes = "".join(f"<li>{escaped(text.removeprefix('· '))}</li>" for text in foot(c))
    return (
        '<div style="font-family:sans-serif;line-height:1.4;max-width:1100px;overflow-x:auto">'
        f"<b>{escaped(heading(c))}</b>"
        f'<table style="border-collapse:collapse;font-size:smaller;margin:6px 0"><tr>{head}</tr>{rows}</table>'
        f'<details><summary><small>what this rests on</small></summary><ul style="font-size:smaller">{notes}</ul>'
        "</details></div>"
    )


def _row_html(row: GPUPlan) -> str:
    badges = "".join(
        f' <span style="background:{_FITS};color:#ffffff;border-radius:3px;padding:0 4px">{word}</span>'
        for word in _marks(row)
    )
    name = f"<td {_CELL}><b>{escaped(row.name)}</b>{badges}</td>"
    if not row.fits:
        ways = "<br>".join(escaped(f"{'→' if w.fits else '✗'} {w.what}: {gib(w.peak_bytes)}") for w in row.remedies)
        said = f'<span style="border-left:4px solid {_FAILS};padding-left:6px">does not fit</span><br>{ways}'
        return f'<tr>{name}<td colspan="{len(_HEAD) - 2}" {_CELL}>{said}</td></tr>'
    _, plan, largest, memory, *others, _ = map(escaped, _cells(row))
    texts = [plan, largest, f"{_bar(row)}<small>{memory}</small>", *others]
    tip = escaped("; ".join(row.notes))
    return f'<tr title="{tip}">{name}' + "".join(f"<td {_CELL}>{text}</td>" for text in texts) + "</tr>"


def _bar(row: GPUPlan) -> str:
    """The predicted peak, and the line of the safety margin, in the card's memory."""
    used, budget = (100 * x / row.memory_bytes for x in (row.peak_bytes, row.budget_bytes))
    return (
        f'<svg viewBox="0 0 100 8" width="120" height="10" role="img" aria-label="{used:.0f} % of memory" '
        f'style="display:block"><rect width="{min(used, 100):.1f}" height="8" fill="{BAR_COLOUR}"/>'
        f'<rect x="{budget:.1f}" width="1" height="8" fill="{_FAILS}"/>'
        '<rect width="100" height="8" fill="none" stroke="currentColor" stroke-opacity="0.5"/></svg>'
    )


def _ways(found: LargestModels) -> tuple[tuple[str, str], ...]:
    """How a model can be trained, with the words for it."""
    return (("full", "fully"), ("eight_bit", "fully, 8-bit optimizer"), ("lora", f"LoRA {found.lora_rank}"))


def _largest_heading(found: LargestModels) -> str:
    room = f"{gib(found.budget_bytes)} to use"
    return f"{found.gpu}, {room}, clips up to {found.seconds:g} s, gradient checkpointing"


def largest_html(found: LargestModels) -> str:
    """Every model as a row, the largest first; what it takes in each way, and whether that fits."""
    ways = _ways(found)
    heads = "".join(f"<th {_CELL}>{escaped(name)}</th>" for name in ("model", "parameters", *(w for _, w in ways)))
    rows = "".join(
        f"<tr><td {_CELL}>{escaped(model.name)}</td><td {_CELL}>{model.parameters / 1e6:.1f} M</td>"
        + "".join(_fit_html(getattr(model, way)) for way, _ in ways)
        + "</tr>"
        for model in found.models
    )
    return (
        f'<div style="font-family:sans-serif;line-height:1.4;overflow-x:auto"><b>{escaped(_largest_heading(found))}</b>'
        f'<table style="border-collapse:collapse;font-size:smaller;margin:6px 0"><tr>{heads}</tr>{rows}</table></div>'
    )


def _fit_html(way: Way) -> str:
    """Whether it fits is told by a sign, too, not by the line's colour alone."""
    sign, colour = ("✓", _FITS) if way.fits else ("✗", _FAILS)
    mark = f'<span style="border-left:4px solid {colour};padding-left:6px">{sign} {gib(way.peak_bytes)}</span>'
    return f"<td {_CELL}>{mark}</td>"


def largest_text(found: LargestModels) -> str:
    """The largest in each way, then every model."""
    ways = _ways(found)
    lines = [_largest_heading(found)]
    for way, words in ways:
        best = found.largest(way)
        lines.append(f"  largest, {words}: {best.name if best else 'none'}")
    width = max(len(model.name) for model in found.models)
    lines.append(f"  {'model':<{width}}  {'parameters':>10}  " + "  ".join(f"{words:>22}" for _, words in ways))
    lines += [_model_line(model, width) for model in found.models]
    return "\n".join(lines)


def _model_line(model: TrainableModel, width: int) -> str:
    cells = [
        f"{gib(way.peak_bytes)} {'fits' if way.fits else 'no':<4}" for way in (model.full, model.eight_bit, model.lora)
    ]
    return f"  {model.name:<{width}}  {model.parameters / 1e6:>8.1f} M  " + "  ".join(f"{cell:>22}" for cell in cells)
