"""Writes the tables of benchmarks/gpu_tables.md and docs/guard.md, and the figures of all pages.

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
from asrconfig_go._core.training_session import REPLACED
from asrconfig_go.plan import gpu_prices
from asrconfig_go.plan.gpu_comparison import GPUPlan
from asrconfig_go.plan.plan_records import Range
from asrconfig_go.predict.hardware import catalogue

TABLES_PAGE = Path(__file__).resolve().parent.parent / "benchmarks" / "gpu_tables.md"
GUARD_PAGE = Path(__file__).resolve().with_name("guard.md")
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
    entries = {entry["key"]: entry for entry in catalogue()}
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


def replaced() -> str:
    rows = [[f"`{row.method}`", row.part, row.span, row.reason] for row in REPLACED]
    return table(["method", "replaced by", "while", "what for"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "cards": cards,
    **{family: lambda family=family: batches(family) for family in FAMILIES},
    "lengths": lengths,
    "costs": costs,
    "prices": prices,
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
        after = filled(before) if page in (TABLES_PAGE, GUARD_PAGE) else before
        after = after if page == TABLES_PAGE else figures.filled(after, known)
        if after != before:
            stale.append(page.name)
            if not arguments.check:
                page.write_text(after, "utf-8")
    print(f"{'not up to date' if arguments.check else 'written'}: {', '.join(stale) or 'nothing'}")
    return int(arguments.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
