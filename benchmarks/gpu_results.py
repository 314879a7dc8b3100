"""Writes gpu/results.md from gpu/results/*.json: python benchmarks/gpu_results.py [--check]

With ``--check`` nothing is written; exit status 1 where the page is not what the results give.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "gpu"
PAGE = HERE / "results.md"
GIB = 2**30
HEAD = """# What was measured on GPUs

Written by `benchmarks/gpu_results.py` from [results](results), which `run_all.py` and `throughput.py` measured. Models
have random weights.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what README quotes to it as well")
    options = parser.parse_args()
    page = "\n".join([HEAD, *_cards()])
    if options.check:
        return int(PAGE.read_text() != page)
    PAGE.write_text(page)
    if options.json:
        options.json.write_text(json.dumps(_quoted()))
    return 0


def _quoted() -> dict[str, float]:
    """Of the card and the training that README names: clips a second, and the median error of allocated memory, %."""
    card = HERE / "results" / "NVIDIA-H100-80GB-HBM3"
    runs = json.loads(card.with_name(f"{card.name}-throughput.json").read_text())["runs"]
    pieces = json.loads(card.with_name(f"{card.name}.json").read_text())["pieces"].values()
    off = [100 * abs(piece["off"]["allocated"]) for piece in pieces if "off" in piece]
    grouping = max(run["speed"] for name, run in runs.items() if name.startswith("grouped"))
    return {
        "gpu_plan": runs["the plan"]["speed"],
        "gpu_grouping": grouping,
        "gpu_published": runs["random, 4 × 8, checkpointing"]["speed"],
        "gpu_memory": statistics.median(off),
        "gpu_peaks": len(off),
    }


def _cards() -> Iterator[str]:
    for path in sorted((HERE / "results").glob("*.json")):
        found = json.loads(path.read_text())
        yield from _pieces(found) if "pieces" in found else _throughput(found)


def _pieces(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {found['gpu']}\n\n{_setting(found)}\n"
    yield from _notes(found)
    pieces: dict[str, dict[str, Any]] = {}
    for name, figures in found["pieces"].items():
        if "error" not in figures:
            kind, _, about = name.partition(": ")
            pieces.setdefault(kind, {})[about] = figures
    tables = {"memory": _memory, "time": _times, "out of memory": _out_of_memory, "allocator": _allocator}
    for kind, table in tables.items():
        if kind in pieces:
            yield from table(pieces[kind])
            yield ""
    failed = [f"- {name}: {figures['error']}" for name, figures in found["pieces"].items() if "error" in figures]
    if failed:
        yield "### What failed\n"
        yield from [*failed, ""]


def _setting(found: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return f"Driver {found['driver']}, CUDA {found['cuda']}, {versions}, {found['date']}."


def _notes(found: Mapping[str, Any]) -> Iterator[str]:
    if "notes" in found:
        yield from [*(f"- {note}" for note in found["notes"]), ""]


def _memory(pieces: Mapping[str, Any]) -> Iterator[str]:
    ours = {name: piece["off"] for name, piece in pieces.items() if "off" in piece}
    medians = [statistics.median(abs(off[kind]) for off in ours.values()) for kind in ("allocated", "reserved")]
    yield f"### Memory\n\nPredicted beside measured peaks of {len(ours)} trainings: allocated memory is off by"
    yield f"{medians[0]:.2%} in median, reserved memory by {medians[1]:.1%}.\n"
    yield "| training | allocated | reserved |\n| --- | --- | --- |"
    for name, off in ours.items():
        yield f"| {name} | {off['allocated']:+.2%} | {off['reserved']:+.1%} |"


def _times(pieces: Mapping[str, Any]) -> Iterator[str]:
    ratios = [piece["ratio"] for piece in pieces.values()]
    within = sum(p["estimated_s"]["low"] <= p["measured_s"] <= p["estimated_s"]["high"] for p in pieces.values())
    yield "### Time of a step\n\nShapes repeat, so that nothing is prepared anew. The estimates are those of the day."
    yield f"Estimated over measured: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f};"
    yield f"{within} of {len(ratios)} lie within the range.\n"
    yield "| training | measured, s | estimated, s |\n| --- | --- | --- |"
    for name, piece in pieces.items():
        low, likely, high = (piece["estimated_s"][bound] for bound in ("low", "likely", "high"))
        yield f"| {_run(name)} | {piece['measured_s']:.3f} | {likely:.3f} ({low:.3f}–{high:.3f}) |"


def _run(name: str) -> str:
    """A training of speech_time.py, which is named by its Python record."""
    about = dict(part.split("=", 1) for part in name.removeprefix("Run(").removesuffix(")").split(", "))
    settings = [about[part].strip("'") for part in ("model", "precision", "optimizer")]
    settings += ["checkpointing"] * (about["gradient_checkpointing"] == "True")
    return (
        f"{', '.join(settings)}, {about['batch']} x {float(about['seconds']):g} s, accumulation {about['accumulation']}"
    )


def _out_of_memory(pieces: Mapping[str, Any]) -> Iterator[str]:
    good = sum(piece["good"] for piece in pieces.values())
    yield f"### Out of memory\n\n{good} of {len(pieces)} trainings that ran out of memory are good (guard_oom.py).\n"
    yield "| training | errors | kept after an error, MiB | weights apart |\n| --- | --- | --- | --- |"
    for name, piece in pieces.items():
        if "died" in piece:
            yield f"| {name} | {piece['died'].strip()} | | |"
        else:
            yield f"| {name} | {piece['errors']} | {piece['kept'] / 2**20:.0f} | {piece['apart']:.1e} |"


def _allocator(pieces: Mapping[str, Any]) -> Iterator[str]:
    yield "### PyTorch's allocator\n\nThe simulated allocator on the same requests, to the byte after every event.\n"
    yield "| requests | events | the first that differs |\n| --- | --- | --- |"
    for name, piece in pieces.items():
        differs = piece["first_difference"]
        yield f"| {name} | {piece['events']} | {'none' if differs is None else differs} |"


def _throughput(found: Mapping[str, Any]) -> Iterator[str]:
    memory = f"{found['memory_gib']:g} GiB" if found["memory_gib"] else "all its memory"
    yield f"## Clips a second: {found['model']} in {memory} of {found['gpu']}\n\n{_setting(found)}\n"
    yield from _notes(found)
    ours = found["runs"]["the plan"]["speed"]
    yield "| | clips a second | the plan's speed | micro-batches a step | padding | reserved, GiB |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, run in sorted(found["runs"].items(), key=lambda row: -row[1]["speed"]):
        cells = f"{run['speed']:.1f} | {ours / run['speed']:.2f}× | {run['micro_batches']:.1f} | {run['padding']:.1%}"
        yield f"| {name} | {cells} | {run['peak_gib']:.1f} |"
    yield ""


if __name__ == "__main__":
    sys.exit(main())
