"""Predictions against torch's own CUDA code: python run.py (README.md).

Without a GPU the trainings run on the stand-in runtime of ../../build/cuda_standin; ``--here`` runs them on this
machine's GPU. Writes results.json after each training, and results.md at the end; trainings that results.json has, of
the same versions, are not run again. ``--only`` only prints.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from cases import Case, cases
from child import ANSWER
from models import MODELS

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="trainings whose name contains this; nothing is written")
    parser.add_argument("--here", action="store_true", help="train on this machine's GPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    options = parser.parse_args()
    chosen = [case for case in _known(options.here) if options.only is None or options.only in str(case)]
    keeps = options.only is None
    rows = _known_rows() if keeps else {}
    for row in _rows([case for case in chosen if str(case) not in rows], options.here):
        rows[row["name"]] = row
        if keeps:
            _keep(rows)
    found = [rows[str(case)] for case in chosen]
    text = "\n".join([*_table(found), "", *_summaries(found)])
    print(text)
    if options.json:
        options.json.write_text(json.dumps(_quoted(found)))
    if keeps:
        _keep(rows)
        head = f"{_about()['date']}, {_versions()}. Shares are by how much a prediction is off.\n\n"
        (HERE / "results.md").write_text("# Predictions and torch's own CUDA code\n\n" + head + text + "\n")


def _known(here: bool) -> list[Case]:
    """All trainings, or those of this machine's GPU."""
    if not here:
        return cases()
    from asrconfig_go.predict import HardwareProfile

    gpus = HardwareProfile.detect().gpus
    if not gpus:
        sys.exit("no GPU was found: leave --here out, and the trainings run on the stand-in")
    return [dataclasses.replace(case, gpu=gpus[0].name) for case in cases()]


def _rows(chosen: list[Case], here: bool) -> Iterator[dict[str, Any]]:
    """Predictions and trainings beside each other, in processes of their own."""
    by_model = [list(group) for _, group in groupby(chosen, key=lambda case: case.model)]
    with ThreadPoolExecutor(1) as predicting, ThreadPoolExecutor(1) as training:
        predicted = [predicting.submit(_in_a_process, "predict", group, "") for group in by_model]
        trained = {
            case: training.submit(_in_a_process, "train", [case], "here" if here else case.gpu) for case in chosen
        }
        for group, answers in zip(by_model, predicted, strict=True):
            said = answers.result()
            for number, case in enumerate(group):
                real = trained[case].result()
                row = {"case": dataclasses.asdict(case), "name": str(case), "kind": MODELS[case.model].kind}
                row |= {"predicted": said[number] if number < len(said) else {"error": "no answer"}}
                yield row | {"measured": real[0] if real else {"error": "no answer"}}
                print(_line(row | {"measured": real[0] if real else {}}), file=sys.stderr, flush=True)


def _in_a_process(what: str, group: list[Case], gpu: str) -> list[dict[str, Any]]:
    request = json.dumps({"what": what, "gpu": gpu, "cases": [dataclasses.asdict(case) for case in group]})
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if group[0].allocator and what == "train":
        environment["PYTORCH_ALLOC_CONF"] = group[0].allocator
    done = subprocess.run(
        [sys.executable, str(HERE / "child.py"), request],
        env=environment, capture_output=True, text=True, timeout=3600,
    )  # fmt: skip
    found = [json.loads(line[len(ANSWER) :]) for line in done.stdout.splitlines() if line.startswith(ANSWER)]
    if len(found) < len(group):
        print(f"{group[len(found)]}: ended with {done.returncode}: {done.stderr[-400:]}", file=sys.stderr)
    return found


def _error(row: dict[str, Any], what: str) -> float | None:
    """Of the prediction, as a share of the measured; None where a training did not fit, or there is no answer."""
    predicted, measured = row["predicted"], row["measured"]
    if not measured.get("fits") or what not in predicted:
        return None
    return float(predicted[what] / measured[what] - 1)


def _line(row: dict[str, Any]) -> str:
    errors = [_error(row, what) for what in ("allocated", "reserved", "forward", "backward")]
    if errors[0] is None:
        both = row["predicted"], row["measured"]
        said = [
            "error" if "error" in one else {True: "fits", False: "out of memory"}.get(one.get("fits"), "?")
            for one in both
        ]
        reasons = "; ".join(one["error"] for one in both if "error" in one)
        return f"| {row['name']} | {said[0]} | {said[1]} | {reasons} | |"
    return f"| {row['name']} | " + " | ".join("" if e is None else f"{e:+.3%}" for e in errors) + " |"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    head = "| training | allocated | reserved | forward's peak | backward's peak |"
    return [head, "| --- " * 5 + "|", *map(_line, rows)]


def _summaries(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| models | of | trainings | median | within 2 % | worst |", "| --- " * 6 + "|"]
    for kind in ("transformer", "recurrent", "convolutional"):
        for what in ("allocated", "reserved", "forward", "backward"):
            errors = [e for row in rows if row["kind"] == kind and (e := _error(row, what)) is not None]
            if errors:
                within = statistics.fmean(abs(e) <= 0.02 for e in errors)
                worst = max(errors, key=abs)
                median = statistics.median(map(abs, errors))
                lines.append(f"| {kind} | {what} | {len(errors)} | {median:.3%} | {within:.1%} | {worst:+.2%} |")
    answered = [row for row in rows if "fits" in row["predicted"] and "fits" in row["measured"]]
    right = sum(row["predicted"]["fits"] == row["measured"]["fits"] for row in answered)
    return [*lines, "", f"Whether it fits: {right} of {len(answered)} right, of {len(rows)} trainings."]


def _quoted(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What README says: trainings that were compared, peaks within 2 %, and the worst difference; both in percent."""
    errors = [[_error(row, what) for what in ("allocated", "reserved")] for row in rows]
    known = [abs(e) for pair in errors for e in pair if e is not None]
    near = 100 * statistics.fmean(e <= 0.02 for e in known)
    compared = len([pair for pair in errors if None not in pair])
    return {"cuda_trainings": compared, "cuda_near": near, "cuda_worst": 100 * max(known)}


def _about() -> dict[str, Any]:
    versions = {name: metadata.version(name) for name in ("torch", "transformers")}
    return {"date": datetime.date.today().isoformat(), "versions": versions}


def _versions() -> str:
    return ", ".join(f"{name} {version}" for name, version in _about()["versions"].items())


def _known_rows() -> dict[str, dict[str, Any]]:
    """Trainings of an earlier run with the same versions, by name; those without an answer are run again."""
    if not RESULTS.exists():
        return {}
    kept = json.loads(RESULTS.read_text())
    if kept["versions"] != _about()["versions"]:
        return {}
    return {row["name"]: row for row in kept["trainings"] if "error" not in row["predicted"] | row["measured"]}


def _keep(rows: dict[str, dict[str, Any]]) -> None:
    RESULTS.write_text(json.dumps({**_about(), "trainings": list(rows.values())}, indent=1) + "\n")


if __name__ == "__main__":
    main()
