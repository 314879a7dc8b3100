"""A benchmark as text for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..view.terminal import section, table, wrapped
from .benchmark_words import headline, how, layout, left_out, loader_rows, option_rows, setting_rows, side_rows

if TYPE_CHECKING:
    from .benchmark_result import BenchmarkResult


def benchmark_text(r: BenchmarkResult) -> str:
    """The layout of three lines first, then all tables."""
    lines = [*layout(r), ""]
    lines += wrapped(headline(r))
    lines += section("How", how(r))
    lines += section("Figures", table(side_rows(r)))
    lines += section("Settings that differ", table(setting_rows(r)))
    lines += section("Loading data alone", table(loader_rows(r.loader)))
    lines += section("Single changes to the plan", table(option_rows(r.options)))
    lines += section("Not tried", left_out(r.options))
    lines += section("What holds the plan back", _held_back(r))
    lines += section("Profile", [f"{path} (TensorBoard, ui.perfetto.dev)" for path in r.profile])
    lines += section("Notes", r.notes)
    return "\n".join(line.rstrip() for line in lines)


def _held_back(r: BenchmarkResult) -> list[str]:
    found = [f for f in (r.bottleneck, *r.findings) if f is not None]
    lines = [line for f in found for line in (f.title, f"  {f.evidence}")]
    return [*lines, f"→ next: {r.next_change}"] if r.next_change else lines
