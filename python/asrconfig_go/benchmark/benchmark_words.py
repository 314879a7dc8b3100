"""A benchmark in words and rows: what text, card and pictures share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..view.quantities import lasting, percent, short, size
from ..view.units import plural
from .measurements import LoaderResult, OptionResult, SideResult, Spread

if TYPE_CHECKING:
    from .benchmark_result import BenchmarkResult

Rows = list[tuple[str, ...]]


def headline(r: BenchmarkResult) -> str:
    """How often as fast, with what, where."""
    where = f"{r.setting.model} on {r.setting.device}"
    if r.speedup is not None:
        return f"{times(r.speedup.median)} with the plan: {where}"
    if r.original is not None and r.original.problem:
        return f"the plan trains, the original settings do not ({r.original.problem}): {where}"
    return f"{rate(r.plan.clips_per_s)} with the plan: {where}"


def layout(r: BenchmarkResult) -> list[str]:
    """Original, optimized, speed-up: seconds of an epoch of the user's data, and how busy the device was."""
    lines = [_side_line("Optimized:", r.plan, r.setting.epoch_clips)]
    if r.original is not None:
        lines.insert(0, _side_line("Original:", r.original, r.setting.epoch_clips))
    if r.speedup is not None:
        lines.append(f"{'Speedup':<10} {times(r.speedup.median)}{_range(r.speedup, 'x')}{_by_processor(r)}")
    return lines


def _by_processor(r: BenchmarkResult) -> str:
    return "" if r.cpu_speedup is None else f"; by processor time {times(r.cpu_speedup.median)}"


def _side_line(name: str, side: SideResult, clips: int) -> str:
    if side.clips_per_s is None:
        return f"{name:<10} {side.problem or 'not measured'}"
    pace = side.clips_per_s.median
    return f"{name:<10} {', '.join([f'{short(clips / pace)} s', f'{short(pace)} samples/s', *_use(side)])}"


def _use(side: SideResult) -> list[str]:
    if side.readings.gpu_use is not None:
        return [f"GPU {percent(side.readings.gpu_use)}"]
    if side.cpu_use is not None and side.queueing is None:
        return [f"CPU {percent(side.cpu_use.median)}"]
    return []


def times(gain: float) -> str:
    """``3.00x``."""
    return f"{gain:.2f}x"


def _range(spread: Spread, unit: str = "") -> str:
    return "" if spread.low == spread.high else f" ({spread.low:.2f} to {spread.high:.2f}{unit})"


def gain(spread: Spread | None) -> str:
    """``1.20x (1.10 to 1.31)``; a dash for what is not known."""
    return "–" if spread is None else f"{times(spread.median)}{_range(spread)}"


def rate(spread: Spread | None) -> str:
    """``66.7 clips/s``."""
    return "–" if spread is None else f"{short(spread.median)} clips/s"


def ranged(spread: Spread | None) -> str:
    """``66.7 (60.1 to 70)``."""
    if spread is None:
        return "–"
    return short(spread.median) + (
        "" if spread.low == spread.high else f" ({short(spread.low)} to {short(spread.high)})"
    )


def side_rows(r: BenchmarkResult) -> Rows:
    """What was measured of both sides, a row each; what nobody knows is left out."""
    sides = [side for side in (r.original, r.plan) if side is not None]
    rows: Rows = [("", *(side.name for side in sides))]
    for name, cells in (
        ("samples/s", [ranged(s.clips_per_s) for s in sides]),
        ("seconds of audio/s", [ranged(s.audio_per_s) for s in sides]),
        ("a step", [_lasting(s.step_s) for s in sides]),
        ("micro-batches a step", [_micro_batches(s) for s in sides]),
        ("padding", [percent(s.padding) for s in sides]),
        ("GPU use", [percent(s.readings.gpu_use) for s in sides]),
        ("GPU memory (driver)", [size(s.readings.gpu_memory_bytes) for s in sides]),
        ("peak of PyTorch", [size(s.peak_bytes) for s in sides]),
        ("CPU use", ["–" if s.cpu_use is None else percent(s.cpu_use.median) for s in sides]),
        ("RAM", [size(s.readings.ram_bytes) for s in sides]),
        *((f"of a step: {part}", [percent(s.shares.get(part)) for s in sides]) for part in r.plan.shares),
    ):
        if any(cell != "–" for cell in cells):
            rows.append((name, *cells))
    return rows


def _lasting(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    if spread.low == spread.high:
        return lasting(spread.median)
    return f"{lasting(spread.median)} ({lasting(spread.low)} to {lasting(spread.high)})"


def _micro_batches(side: SideResult) -> str:
    counts = [step.micro_batches for block in side.blocks for step in block.steps]
    if not counts:
        return "–"
    return f"{counts[0]}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def setting_rows(r: BenchmarkResult) -> Rows:
    """What the sides were trained with, where they differ or it matters."""
    sides = [side for side in (r.original, r.plan) if side is not None]
    names = list(dict.fromkeys(name for side in sides for name in side.settings))
    rows: Rows = [("", *(side.name for side in sides))]
    for name in names:
        values = [side.settings.get(name) for side in sides]
        if len({str(value) for value in values}) > 1:
            rows.append((name, *("–" if value is None else f"{value}" for value in values)))
    return rows if len(rows) > 1 else []


def loader_rows(found: tuple[LoaderResult, ...]) -> Rows:
    """A row for each way to load."""
    head = ("workers", "prefetch", "clips/s", "seconds of audio/s", "first batch", "with workers that stay")
    rows: Rows = [head] if found else []
    for each in found:
        rows.append(
            (
                f"{each.workers}", "–" if each.prefetch is None else f"{each.prefetch}", ranged(each.clips_per_s),
                ranged(each.audio_per_s), lasting(each.start_s), lasting(each.again_s),
            )
        )  # fmt: skip
    return rows


def option_rows(options: tuple[OptionResult, ...]) -> Rows:
    """A row for each change that was tried."""
    tried = [each for each in options if not each.why_not]
    if not tried:
        return []
    by_processor = any(each.cpu_gain is not None for each in tried)
    head = ("change", "", "speed", *(["by processor time"] if by_processor else []), "")
    rows: Rows = [head]
    for each in tried:
        cpu = [gain(each.cpu_gain)] if by_processor else []
        said = each.problem or each.better or ("slower" if each.worse else "no clear change")
        rows.append((each.option, each.value, gain(each.gain), *cpu, said))
    return rows


def left_out(options: tuple[OptionResult, ...]) -> list[str]:
    """What was not tried, and why."""
    return [f"{each.option} {each.value}".strip() + f": {each.why_not}" for each in options if each.why_not]


def how(r: BenchmarkResult) -> list[str]:
    """How it was measured."""
    s = r.setting
    audio = "" if r.plan.audio_s is None else f", {lasting(r.plan.audio_s)} of audio"
    lines = [
        f"times are of an epoch, {plural(s.epoch_clips, 'clip')}, steps alone; samples are clips",
        f"{s.device}; {', '.join(f'{name} {number}' for name, number in s.versions.items())}; {s.date} UTC",
        f"{s.model}; {plural(s.effective_batch, 'clip')} a step on both sides",
        f"blocks of {s.steps} steps, the same {r.plan.clips} clips in each{audio}, behind {s.warm_up} that warm up; "
        f"plan and the other in turns, {plural(s.rounds, 'round')}; medians, and the lowest and the highest",
    ]
    return lines + (["stopped early: what was measured until then"] if r.stopped else [])
