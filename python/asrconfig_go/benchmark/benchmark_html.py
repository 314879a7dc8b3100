"""A benchmark as a card in the style of reports: no script, nothing from elsewhere, light and dark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..report.report_style import RULES
from ..report.run_summary import level_of
from ..view.card import facts, notice, section, table
from ..view.markup import escaped, folded
from ..view.quantities import lasting, short
from ..view.style import ROOT, stylesheet
from .benchmark_charts import gains, part_keys, parts, sides_of, speeds
from .benchmark_words import Rows, how, left_out, loader_rows, option_rows, setting_rows, side_rows, times

if TYPE_CHECKING:
    from .benchmark_result import BenchmarkResult


def benchmark_html(r: BenchmarkResult) -> str:
    """Headline, figures, what holds the plan back, both sides, the loader, single changes."""
    body = [
        f'<div class="head" role="heading" aria-level="2">{escaped(r.headline)}</div>',
        facts(how(r)),
        _tiles(r),
        _held_back(r),
        _sides(r),
        _loader(r),
        _options(r),
        section("Profile", facts([f"{path} (TensorBoard, ui.perfetto.dev)" for path in r.profile]))
        if r.profile
        else "",
        section("Notes", facts(r.notes)) if r.notes else "",
    ]
    return f'<div class="{ROOT}"><style>{stylesheet()}{RULES}</style>{"".join(body)}</div>'


def _tiles(r: BenchmarkResult) -> str:
    found = []
    for name, side in (("original", r.original), ("optimized", r.plan)):
        if side is None:
            continue
        if side.clips_per_s is None:
            found.append((name, side.problem or "not measured", ""))
            continue
        epoch = lasting(r.setting.epoch_clips / side.clips_per_s.median)
        found.append((name, f"{short(side.clips_per_s.median)} /s", f"{epoch} an epoch"))
    if r.speedup is not None:
        found.append(("speedup", times(r.speedup.median), f"{r.speedup.low:.2f} to {r.speedup.high:.2f}"))
    if r.cpu_speedup is not None:
        found.append(("speedup", times(r.cpu_speedup.median), "by processor time"))
    tiles = "".join(_tile(*each) for each in found)
    return f'<div class="tiles">{tiles}</div>'


def _tile(name: str, value: str, remark: str) -> str:
    last = escaped(remark) or "&nbsp;"
    return f'<div class="tile"><span>{escaped(name)}</span><b>{escaped(value)}</b><span>{last}</span></div>'


def _held_back(r: BenchmarkResult) -> str:
    found = [f for f in (r.bottleneck, *r.findings) if f is not None]
    shown = [notice(level_of(f.severity), f.title, [f.evidence, *_next(r, f is r.bottleneck)]) for f in found]
    return section("What holds the plan back", "".join(shown)) if shown else ""


def _next(r: BenchmarkResult, is_ours: bool) -> list[str]:
    return [f"→ next: {r.next_change}"] if is_ours and r.next_change else []


def _sides(r: BenchmarkResult) -> str:
    sides = sides_of(r)
    rows = [(side.name, side.clips_per_s) for side in sides if side.clips_per_s is not None]
    chart = f'<div class="chart"><div class="name">samples/s</div>{speeds(rows, "samples/s")}</div>'
    chart += f'<div class="chart"><div class="name">parts of a step{part_keys()}</div>{parts(sides)}</div>'
    settings, found = setting_rows(r), _table(side_rows(r))
    differ = section("Settings that differ", table(settings)) if settings else ""
    return section("Both sides" if r.original else "The plan", chart + found) + differ


def _table(rows: Rows) -> str:
    return table(rows) if len(rows) > 1 else ""


def _loader(r: BenchmarkResult) -> str:
    if not r.loader:
        return ""
    named = [(_way(each.workers, each.prefetch), each.clips_per_s) for each in r.loader]
    chart = f'<div class="chart"><div class="name">clips/s</div>{speeds(named, "clips/s")}</div>'
    return section("Loading data alone", chart + folded("all figures", f"<div>{table(loader_rows(r.loader))}</div>"))


def _way(workers: int, prefetch: int | None) -> str:
    return "no workers" if not workers else f"{workers} × prefetch {prefetch}"


def _options(r: BenchmarkResult) -> str:
    rows, why = option_rows(r.options), left_out(r.options)
    if not rows and not why:
        return ""
    body = ""
    if any(each.gain is not None for each in r.options):
        body = f'<div class="chart"><div class="name">speed beside the plan</div>{gains(r.options)}</div>'
    body += _table(rows) + (folded("not tried", facts(why)) if why else "")
    return section("Single changes to the plan", body, "one at a time, each between two blocks of the plan")
