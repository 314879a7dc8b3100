"""Writes the tables of benchmarks/gpu_tables.md, docs/by-hand.md and docs/guard.md, and the figures of all pages.

    python docs/make_tables.py [--check]

Each table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; figures.py says how figures are marked.
With --check nothing is written, and the exit status is 1 where a page is not what it would be.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import figures

import asrconfig_go as ac
from asrconfig_go._core import native
from asrconfig_go._core.training_session import REPLACED
from asrconfig_go.plan import gpu_prices, published_scenarios
from asrconfig_go.plan.gpu_comparison import GPUPlan
from asrconfig_go.plan.plan_records import HandCase, HandSettings, Origin, Range

TABLES_PAGE = Path(__file__).resolve().parent.parent / "benchmarks" / "gpu_tables.md"
GUARD_PAGE = Path(__file__).resolve().with_name("guard.md")
BY_HAND_PAGE = Path(__file__).resolve().with_name("by-hand.md")
PAGES_WITH_TABLES = (TABLES_PAGE, GUARD_PAGE, BY_HAND_PAGE)
END = "<!-- end of table -->"
GIB = 2**30

GPUS = (
    "K80", "T4", "V100-16", "V100-32", "RTX 3090", "RTX 4090", "L4", "A10G", "L40S", "A100-40GB SXM", "A100-80GB SXM",
    "H100-80GB SXM", "H200", "B200",
)  # fmt: skip
PRICED = ("T4", "L4", "A10G", "RTX 4090", "A100-40GB SXM", "A100-80GB SXM", "H100-80GB SXM")
FAMILIES = {
    "wav2vec2, WavLM": {
        "wav2vec2-base": "facebook/wav2vec2-base",
        "WavLM-base+": "microsoft/wavlm-base-plus",
    },
    "XLS-R, w2v-BERT": {
        "XLS-R-300M": "facebook/wav2vec2-xls-r-300m",
        "XLS-R-1B": "facebook/wav2vec2-xls-r-1b",
        "w2v-BERT-2.0": "facebook/w2v-bert-2.0",
    },
    "Whisper": {size: f"openai/whisper-{size}" for size in ("tiny", "small", "large-v3")},
}  # fmt: skip
LENGTHS = (5, 10, 15, 20, 30)  # seconds
CASES = (  # model, hours of audio
    ("XLS-R-300M", 10), ("XLS-R-300M", 100), ("XLS-R-1B", 100), ("w2v-BERT-2.0", 100), ("whisper small", 10),
    ("whisper large-v3", 10),
)  # fmt: skip


@cache
def plans(model: str, gpus: tuple[str, ...], longest_s: float, hours: float = 100) -> tuple[GPUPlan, ...]:
    """The plan of each GPU for clips of half `longest_s` on average, 32 a step, 3 epochs."""
    return ac.compare_gpus(
        model, gpus=list(gpus), hours=hours, mean_s=longest_s / 2, max_s=longest_s, trace=False, calibrations={}
    ).rows


def cell(plan: GPUPlan) -> str:
    """Batch × accumulation with what it takes, and about the largest batch that would fit in that way."""
    if not plan.fits:
        return "LoRA" if any(way.fits and "LoRA" in way.what for way in plan.remedies) else "–"
    marks = "c" * plan.gradient_checkpointing + "l" * (plan.bound == "loader")
    batch = f"{plan.per_device_train_batch_size} × {plan.gradient_accumulation_steps}"
    return " ".join(part for part in (batch, marks, f"({plan.largest_batch})") if part)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    heads = list(heads)
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *map(list, rows)))


def batches(family: str, gpus: Sequence[str] = GPUS) -> str:
    models, longest = FAMILIES[family], 30.0 if family == "Whisper" else 15.0
    columns = [plans(name, tuple(GPUS), longest) for name in models.values()]
    rows = [[gpu, *(cell(column[GPUS.index(gpu)]) for column in columns)] for gpu in gpus]
    return table(["GPU", *models], rows)


def lengths(gpus: Sequence[str] = GPUS) -> str:
    model = FAMILIES["XLS-R, w2v-BERT"]["XLS-R-300M"]
    columns = [plans(model, tuple(GPUS), float(seconds)) for seconds in LENGTHS]
    rows = [[gpu, *(cell(column[GPUS.index(gpu)]) for column in columns)] for gpu in gpus]
    return table(["GPU", *(f"{seconds} s" for seconds in LENGTHS)], rows)


def cards() -> str:
    entries = {entry["key"]: entry for entry in native.call("hardware.catalogue")}
    rows = []
    for gpu in GPUS:
        card = entries[gpu]
        capability = tuple(int(part) for part in card["compute_capability"].split("."))
        rate = card["tensor_tflops"]
        precision = "bf16" if capability >= (8, 0) else "fp16" if capability >= (7, 0) else "fp32"
        rows.append([
            gpu, f"{card['memory_total_bytes'] / GIB:.1f}", card["compute_capability"],
            "–" if rate is None else f"{rate:g}", f"{card['bandwidth_gb_s']:g}", precision,
        ])  # fmt: skip
    return table(["GPU", "memory, GiB", "compute capability", "16-bit TFLOPS", "GB/s", "precision of plans"], rows)


def costs() -> str:
    known = {name: key for models in FAMILIES.values() for name, key in models.items()}
    rows = []
    for name, hours in CASES:
        model = known[name.removeprefix("whisper ")]
        found = plans(model, PRICED, 30.0 if "whisper" in name else 15.0, float(hours))
        what = f"{name}, {hours} h"
        rows += [
            [what, plan.gpu, way(plan), spread(plan.run_hours), spread(plan.cost_usd)] for plan in found if plan.fits
        ]
        rows += [[what, plan.gpu, "does not fit", "–", "–"] for plan in found if not plan.fits]
    return table(["training", "GPU", "plan", "hours", "$"], rows)


def way(plan: GPUPlan) -> str:
    batch = f"{plan.per_device_train_batch_size} × {plan.gradient_accumulation_steps}"
    return ", ".join([batch, plan.precision, *["checkpointing"] * plan.gradient_checkpointing])


def spread(estimate: Range | None) -> str:
    if estimate is None:
        return "–"
    return f"{number(estimate.likely)} ({number(estimate.low)} to {number(estimate.high)})"


def number(x: float) -> str:
    return f"{x:.0f}" if x >= 9.95 else f"{x:.2g}"


def prices() -> str:
    rows = [[p.gpu, f"{p.usd_per_hour:.2f}", p.provider, p.date, p.source] for p in gpu_prices()]
    return table(["GPU", "$ an hour", "who", "month", "source"], rows)


@cache
def scenarios() -> tuple[HandCase, ...]:
    """The published scenarios, with settings by hand and with the plan's."""
    return published_scenarios(calibrations={}).cases


def scenario_settings() -> str:
    rows = []
    for case in scenarios():
        scenario = f"{case.gpu}, {case.model.partition('/')[2]}"
        for settings in case.rows:
            rate = spread(settings.samples_per_second) if settings.fits else "**out of memory**"
            rows.append([scenario, settings.settings, by_hand_batch(settings), by_hand_peak(case, settings), rate])
    return table(["scenario", "settings", "batch", "peak", "samples/s"], rows)


def scenario_costs() -> str:
    rows = []
    for case in scenarios():
        for settings in case.rows:
            totals = [figure for t in settings.totals for figure in (spread(t.hours), spread(t.cost_usd))]
            if totals:
                speed = "" if settings.settings == "plan" else f"{settings.plan_speed:.2f}×"
                rows.append([case.gpu, settings.settings, *totals, speed])
    return table(["GPU", "settings", "1 run, hours", "1 run, $", "10 runs, hours", "10 runs, $", "the plan is"], rows)


def origins() -> str:
    """Where the figures are from: those of all scenarios once."""
    first, *others = ({*case.origins} for case in scenarios())
    shared = first.intersection(*others)
    rows = [origin_row("all", origin) for origin in scenarios()[0].origins if origin in shared]
    for case in scenarios():
        rows += [origin_row(case.gpu, origin) for origin in case.origins if origin not in shared]
    return table(["scenario", "figure", "origin", "source"], rows)


def origin_row(scenario: str, origin: Origin) -> list[str]:
    return [scenario, origin.figure, origin.origin, origin.source]


def by_hand_cards() -> str:
    scenario, rows = scenarios()[0], []
    mean_s = 3600 * scenario.hours / scenario.clips
    for name, model in (("XLS-R-300M", "xls-r-300m"), ("XLS-R-1B", "xls-r-1b")):
        found = ac.compare_gpus(
            model, gpus=list(PRICED), hours=scenario.hours, mean_s=mean_s, max_s=scenario.longest_s, by_hand=True,
            trace=False, calibrations={}, prices={"L4": 0.40},  # as in the scenarios
        )  # fmt: skip
        for case in found.by_hand:
            settings = {row.settings: row for row in case.rows}
            batches = [by_hand_cell(settings.get(each)) for each in ("aggressive", "published", "safe", "plan")]
            costs = [ten_runs(settings.get(each)) for each in ("safe", "plan")]
            rows.append([f"{name}, {case.gpu}", *batches, *costs])
    heads = ["training", "aggressive", "published", "safe", "plan", "10 runs safe, $", "10 runs planned, $"]
    return table(heads, rows)


def by_hand_batch(settings: HandSettings) -> str:
    marks = ["checkpointing"] * settings.gradient_checkpointing + ["split"] * (settings.micro_batching == "memory")
    batch = f"{settings.per_device_train_batch_size} × {settings.gradient_accumulation_steps}"
    return ", ".join([batch, settings.precision, *marks])


def by_hand_peak(case: HandCase, settings: HandSettings) -> str:
    return f"{settings.peak_bytes / GIB:.1f} of {case.memory_bytes / GIB:.1f} GiB"


def by_hand_cell(settings: HandSettings | None) -> str:
    """The batch with its speed; or what it would take, where it does not fit."""
    if settings is None:
        return "–"
    batch = f"{settings.per_device_train_batch_size} × {settings.gradient_accumulation_steps}"
    if settings.samples_per_second is None:
        return f"{batch}: {settings.peak_bytes / GIB:.1f} GiB, **out of memory**"
    optimizer = ", 8-bit" * ("8bit" in settings.optimizer)
    return f"{batch}{optimizer}: {number(settings.samples_per_second.likely)}/s"


def ten_runs(settings: HandSettings | None) -> str:
    return spread(settings.totals[-1].cost_usd) if settings is not None and settings.totals else "–"


def replaced() -> str:
    rows = [[f"`{row.method}`", row.part, row.span, row.reason] for row in REPLACED]
    return table(["method", "replaced by", "while", "what for"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "cards": cards,
    **{family: lambda family=family: batches(family) for family in FAMILIES},
    "lengths": lengths,
    "costs": costs,
    "prices": prices,
    "scenario settings": scenario_settings,
    "scenario costs": scenario_costs,
    "origins": origins,
    "by hand, other cards": by_hand_cards,
    "replaced": replaced,
}


def filled(text: str) -> str:
    """A page's text with its tables made again."""
    parts = text.split("<!-- table: ")
    for k, part in enumerate(parts[1:], start=1):
        name, _, rest = part.partition(" -->")
        _, _, behind = rest.partition(END)
        parts[k] = f"{name} -->\n\n{TABLES[name]()}\n\n{END}{behind}"
    return "<!-- table: ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where a page is not up to date")
    arguments = parser.parse_args()
    known = figures.read()
    stale = []
    for page in (TABLES_PAGE, *figures.PAGES):
        before = page.read_text("utf-8")
        after = filled(before) if page in PAGES_WITH_TABLES else before
        after = after if page == TABLES_PAGE else figures.filled(after, known)
        if after != before:
            stale.append(page.name)
            if not arguments.check:
                page.write_text(after, "utf-8")
    print(f"{'not up to date' if arguments.check else 'written'}: {', '.join(stale) or 'nothing'}")
    return int(arguments.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
