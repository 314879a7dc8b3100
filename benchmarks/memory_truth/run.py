"""Predictions beside peaks measured on GPUs, and beside four published estimators: python run.py (README.md).

Writes results.json and results.md next to itself; ``--only``, ``--extra`` and other than 15 draws only print.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DRAWS = 15
RIVALS = ("xmem", "dnnmem", "schedtune", "llmem")
TRANSFORMERS = "4.51.3"
MIB = 1 << 20


def _check_versions() -> None:
    try:
        found = metadata.version("transformers")
    except metadata.PackageNotFoundError:
        found = "none"
    if found != TRANSFORMERS:
        sys.exit(f"transformers {found} is here, {TRANSFORMERS} is needed: see the README for a venv that has it")


if __name__ == "__main__":
    _check_versions()
    warnings.simplefilter("ignore")

import lengths  # noqa: E402
import protocol  # noqa: E402
from metrics import Outcome, Summary, summarize  # noqa: E402


@dataclass(frozen=True)
class Prediction:
    """Of one run: the median of its draws, their lowest and highest peak in bytes, and the share that runs out."""

    peak: int
    low: int
    high: int
    out_of_memory: float
    draws: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS, help="draws of text lengths for each run")
    parser.add_argument("--only", help="models whose name contains this; nothing is written")
    parser.add_argument("--extra", action="store_true", help="the runs of extra_points.json; nothing is written")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    options = parser.parse_args()
    begun = time.time()
    points = json.loads((HERE / ("extra_points.json" if options.extra else "points.json")).read_text())["points"]
    points = [p for p in points if options.only is None or options.only in p["model"]]
    rows = list(_rows(points, options.draws))
    text = "\n".join(_table(rows) + _summaries(rows))
    print(text)
    print(f"{time.time() - begun:.0f} s", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(_quoted(rows)))
    if options.only is None and not options.extra and options.draws == DRAWS:
        _write(rows, text, options.draws, time.time() - begun)


def predict(point: dict[str, Any], draws: int) -> Prediction:
    """What a run takes: a device's figures and its allocator's, over draws of text lengths where there is text."""
    card = protocol.CARDS[point["gpu"]]
    limit = card.limit(point["gpu"], point["gpu_total_bytes"])
    peaks, dead = [], []
    seen: dict[Any, tuple[int, bool]] = {}
    for drawn in _lengths(point, draws):
        if drawn not in seen:
            trace = protocol.record(point["model"], point["optimizer"], point["batch"], card, drawn)
            seen[drawn] = protocol.replay(protocol.allocations(trace), limit)
        peak, failed = seen[drawn]
        peaks.append(peak + card.outside)
        dead.append(failed)
    middle = int(statistics.median_low(peaks))
    return Prediction(middle, min(peaks), max(peaks), statistics.fmean(dead), len(peaks))


def _lengths(point: dict[str, Any], draws: int) -> list[tuple[int, ...] | None]:
    model = point["model"]
    if model in protocol.models.IMAGES:
        return [None]
    if "DeepSeek" in model:  # its loader pads every line to the longest of a thousand
        return [(lengths.LONGEST,) * protocol.ITERATIONS]
    rate = lengths.TOKENS_PER_WORD["t5" if model.startswith("T5") else "gpt"]
    rng = random.Random(f"{model} {point['optimizer']} {point['batch']}")
    return [lengths.draw(point["batch"], protocol.ITERATIONS, rate, rng) for _ in range(draws)]


def _rows(points: list[dict[str, Any]], draws: int) -> Iterator[dict[str, Any]]:
    for number, point in enumerate(points):
        print(f"\r{number + 1}/{len(points)} {point['model']:45}", end="", file=sys.stderr, flush=True)
        yield {**point, "ours": asdict(predict(point, draws))}
    print(file=sys.stderr)


def outcome(row: dict[str, Any], name: str) -> Outcome:
    """What ``name``, "ours" or a rival, says of a row."""
    truth, oom = row["truth_bytes"], row["oom"]
    if name == "ours":
        ours = row["ours"]
        return Outcome(truth, oom, ours["peak"], ours["out_of_memory"] >= 0.5, ours["high"])
    said = row.get("estimates", {}).get(name)
    if said is None or said <= 0:  # it has no answer, or says that it has none
        return Outcome(truth, oom, None, None)
    return Outcome(truth, oom, said, None)  # its verdict was not published with its estimate


def _table(rows: list[dict[str, Any]]) -> list[str]:
    rivals = [r for r in RIVALS if any(r in row.get("estimates", {}) for row in rows)]
    lines = [
        f"| model | optimizer | batch | GPU | measured MiB | ours MiB | range | error | {' | '.join(rivals)} |",
        "| --- " * (8 + len(rivals)) + "|",
    ]
    for row in rows:
        ours = row["ours"]
        spread = f"{ours['low'] / MIB:.0f}–{ours['high'] / MIB:.0f}" if ours["low"] < ours["high"] else ""
        truth = f"{row['truth_bytes'] / MIB:.0f}" + (" OOM" if row["oom"] else "")
        cells = [row["model"].split("/")[-1], row["optimizer"], str(row["batch"]), row["gpu"].split()[-1], truth]
        cells += [f"{ours['peak'] / MIB:.0f}", spread, _word(outcome(row, "ours"))]
        lines.append(f"| {' | '.join(cells + [_word(outcome(row, r)) for r in rivals])} |")
    return lines


def _word(said: Outcome) -> str:
    if said.peak is None:
        return "–"
    if said.error is not None:
        return f"{said.error:+.2%}" + (" OOM (wrong)" if said.says_oom else "")
    return "" if said.says_oom is None else "OOM" if said.says_oom else "fits (wrong)"


FAMILIES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "transformers": lambda row: row["model"] in protocol.models.TEXT,
    "CNNs": lambda row: row["model"] in protocol.models.IMAGES,
    "all": lambda row: True,
}


def _summaries(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "",
        "| runs | estimator | answers | median error | mean | worst | under-estimated, 2 % margin | wrong verdicts |",
        "| --- " * 8 + "|",
    ]
    for family, belongs in FAMILIES.items():
        chosen = [row for row in rows if belongs(row)]
        for name in ("ours", *RIVALS):
            found = summarize([outcome(row, name) for row in chosen])
            if found is not None:
                lines.append(f"| {family} | {name} | {_figures(found, name)} |")
    return lines


def _quoted(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What README says: median errors in percent, and those of the estimator that comes nearest."""
    found = {"memory_points": float(len(rows))}
    for family, ours, others in (
        ("transformers", "memory_transformers", "memory_other"),
        ("CNNs", "memory_cnns", "memory_other_cnns"),
    ):
        chosen = [row for row in rows if FAMILIES[family](row)]
        medians = {n: s.median for n in ("ours", *RIVALS) if (s := summarize([outcome(row, n) for row in chosen]))}
        found[ours] = 100 * medians.pop("ours")
        found[others] = 100 * min(medians.values())
    return found


def _figures(s: Summary, name: str) -> str:
    under = f"{s.under:.1%}" + (f"; {s.under_high:.1%} of the range's top" if name == "ours" else "")
    figures = [str(s.runs), f"{s.median:.2%}", f"{s.mean:.2%}", f"{s.worst:+.1%}", under]
    return " | ".join([*figures, f"{s.wrong_verdicts} of {s.verdicts}" if s.verdicts else ""])


def _write(rows: list[dict[str, Any]], text: str, draws: int, seconds: float) -> None:
    names = ("asrconfig-go", "torch", "torchvision", "transformers")
    about = {
        "date": datetime.date.today().isoformat(),
        "versions": {n: metadata.version(n) for n in names if _installed(n)},
        "python": platform.python_version(),
        "draws": draws,
        "seconds": round(seconds),
    }
    keys = ("model", "optimizer", "batch", "gpu", "truth_bytes", "oom", "ours")
    kept = [{k: row[k] for k in keys} for row in rows]
    (HERE / "results.json").write_text(json.dumps({**about, "points": kept}, indent=1) + "\n")
    head = f"Measured {about['date']} with {json.dumps(about['versions'])}, {draws} draws, {about['seconds']} s.\n\n"
    (HERE / "results.md").write_text("# Predictions and measured peaks\n\n" + head + text + "\n")


def _installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


if __name__ == "__main__":
    main()
