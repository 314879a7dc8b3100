"""The explanation as a card for notebooks: no script, nothing from elsewhere, light and dark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..data.profile_view import dataset_facts
from ..view.card import SIGNS, facts, grid, notice, section, table
from ..view.markup import escaped, folded, share
from ..view.style import ROOT, stylesheet
from ..view.units import plural
from .cautions import LEVELS
from .decisions import DecisionRow, grouped
from .memory_bar import memory_of
from .plan_charts import durations, memory_bar, memory_keys
from .plan_text import (
    alternative_rows,
    bucket_rows,
    device_rows,
    limit_words,
    percentile_words,
    times_rows,
    times_source,
)

if TYPE_CHECKING:
    from ..plan.plan_record import PlanRecord
    from .cautions import Caution
    from .explanation import Explanation

_SHOWN = 50  # bad files behind a fold
_DIGEST = 4  # settings that a closed fold shows


def explanation_html(e: Explanation) -> str:
    """Headline with what is serious, hardware, data beside memory and times, decisions, alternatives, cautions."""
    c = e.config
    serious = [caution for caution in e.cautions if caution.level == LEVELS[0]]
    others = [caution for caution in e.cautions if caution.level != LEVELS[0]]
    parts = [
        f'<div class="head" role="heading" aria-level="2">{escaped(e.headline)}</div>',
        _badges(e),
        "".join(map(_caution, serious)),
        section("Hardware and model", facts(_machine(e))) if e.hardware or e.model else "",
        _devices(c),
        f'<div class="pair">{_boxed(_data(e))}{_boxed(_memory(e) + _times(c))}</div>',
        section("Decisions", "".join(_group(name, rows) for name, rows in grouped(c).items())),
        _alternatives(c),
        section("Look out", "".join(map(_caution, others))) if others else "",
    ]
    return f'<div class="{ROOT}"><style>{stylesheet()}</style>{"".join(parts)}</div>'


def _badges(e: Explanation) -> str:
    counts = Counter(caution.level for caution in e.cautions)
    c = e.config
    found = [
        f'<span class="badge">policy {escaped(c.policy)}</span>',
        f'<span class="badge">preset {escaped(c.preset)}</span>',
    ]
    for level in LEVELS:
        if counts[level]:
            words = f"{counts[level]} serious" if level == "serious" else plural(counts[level], level)
            found.append(f'<span class="badge {level}">{SIGNS[level]} {words}</span>')
    return f'<div class="badges">{"".join(found)}</div>'


def _machine(e: Explanation) -> list[str]:
    lines = repr(e.hardware).splitlines() if e.hardware else []
    return lines + (repr(e.model).splitlines() if e.model else [])


def _boxed(body: str) -> str:
    return f"<div>{body}</div>" if body else ""


def _devices(c: PlanRecord) -> str:
    """What each of several GPUs does; meters show the peaks in their budgets."""
    rows = device_rows(c)
    if not rows:
        return ""
    shown = []
    for row, device in zip(rows[1:], c.devices, strict=True):
        *cells, peak, budget = map(escaped, row)
        filled = share(min(1.0, device.peak_bytes / max(1, device.budget_bytes)))
        meter = f'<span class="meter" style="width:{filled}"></span>'
        tight = "".join(f'<td class="tight">{cell}</td>' for cell in (peak + meter, budget))
        shown.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}{tight}</tr>")
    return section("Devices", grid(rows[0], shown))


def _data(e: Explanation) -> str:
    d, c = e.dataset, e.config
    if d is None:
        return ""
    body = durations(d, c) if d.measured_count else ""
    body += facts([*dataset_facts(d), *([percentile_words(d)] if d.measured_count else [])])
    outside = [words for s, words in limit_words(c) if not d.measured_count or s > d.histogram.edges_s[-1]]
    body += facts(outside) if outside else ""
    buckets = bucket_rows(c)
    if buckets:
        body += folded(f"{plural(len(buckets) - 1, 'length bucket')}", f"<div>{table(buckets)}</div>")
    if d.bad_count:
        lines = [f"{bad.path}: {bad.error}" for bad in d.bad_files[:_SHOWN]]
        lines += [f"… and {d.bad_count - len(lines)} more"] if d.bad_count > len(lines) else []
        body += folded(f"{plural(d.bad_count, 'bad file')} left out", facts(lines))
    note = "micro-batch of each length above the bars" if buckets else ""
    return section("Data", body, note)


def _memory(e: Explanation) -> str:
    m = memory_of(e)
    if not m.peak_bytes:
        return ""
    where = e.config.gpu_name or "RAM"
    return section("Memory", memory_bar(m) + memory_keys(m), f"predicted, {where}")


def _times(c: PlanRecord) -> str:
    rows = times_rows(c)
    if not rows:
        return ""
    tiles = ""
    for name, words in rows:
        value, _, spread = words.partition(" (")
        tiles += (
            f'<div class="tile"><span>{escaped(name)}</span><b>{escaped(value)}</b>'
            f"<span>{escaped(spread.rstrip(')')) or '&nbsp;'}</span></div>"
        )
    return section("Times", f'<div class="tiles">{tiles}</div>', times_source(c))


def _group(name: str, rows: list[DecisionRow]) -> str:
    digest = " · ".join(f"{row.setting} {row.value or '–'}" for row in rows[:_DIGEST])
    changed = sum(row.overridden for row in rows)
    said = f' <span class="changed">{changed} overridden</span>' if changed else ""
    summary = f'<b>{escaped(name)}</b>{said} <span class="dim small">{escaped(digest)}</span>'
    told = any(row.alternative or row.gain for row in rows)
    head = ["setting", "value", "why", *(["instead of", "gain"] if told else [])]
    table = grid(head, (_decision(row, told) for row in rows))
    return folded(summary, f'<div class="decisions">{table}</div>', unfolded=bool(changed))


def _decision(row: DecisionRow, told: bool) -> str:
    value = f"<b>{escaped(row.value or '–')}</b>"
    if row.overridden:
        value += f'<br><span class="changed">overridden; planned: {escaped(row.planned or "–")}</span>'
    cells = f'<td class="tight"><code>{escaped(row.setting)}</code></td><td class="value">{value}</td>'
    cells += f'<td class="why">{escaped(row.reason)}</td>'
    more = (("instead of", row.alternative), ("gain", row.gain)) if told else ()
    cells += "".join(f'<td class="more" data-is="{name}">{escaped(words)}</td>' for name, words in more)
    return f"<tr>{cells}</tr>"


def _alternatives(c: PlanRecord) -> str:
    """The plan and the other ways, each epoch with a meter."""
    rows = alternative_rows(c)
    if not rows:
        return ""
    hours = [c.times.epoch_hours if c.times else None, *(way.epoch_hours for way in c.alternatives)]
    longest = max((h.likely for h in hours if h is not None), default=0) or 1
    widths = ["" if h is None else share(h.likely / longest) for h in hours]
    ways = [_way(row, width) for row, width in zip(rows[1:], widths, strict=True)]
    ways[0] = ways[0].replace("<tr>", '<tr class="mine">', 1)
    return section("Alternatives", f'<div class="ways">{grid(rows[0], ways)}</div>')


def _way(row: Sequence[str], width: str) -> str:
    name, what, fits, peak, epoch, speed = map(escaped, row)
    sign = {"yes": "✓ ", "no": "✗ "}.get(fits, "")
    meter = f'<span class="meter" style="width:{width}"></span>' if width else ""
    return (
        f'<tr><td>{name}</td><td>{what}</td><td class="tight {fits if sign else ""}">{sign}{fits}</td>'
        f'<td class="tight">{peak}</td><td class="tight">{epoch}{meter}</td><td class="tight">{speed}</td></tr>'
    )


def _caution(caution: Caution) -> str:
    lines = [caution.why] if caution.why else []
    lines += [f"→ {caution.remedy}"] if caution.remedy else []
    return notice(caution.level, caution.what, lines)
