"""The guard under trainers, losses, optimizers and adapters of other projects: identical, exact, refused or wrong.

    python benchmarks/guard_libraries.py [--only NAME ...] [--cells NAME ...] [--list] [--json FILE] [--no-guard]

A kind is a training of 6 optimizer steps with an effective batch of 8, on the CPU, in float64 where the library allows
it, without dropout. The kinds are those of TRL, sentence-transformers, PEFT, of optimizers from PyPI, and Trainers with
private state. Their packages (``pip install --no-deps`` of ``PACKAGES``) are optional: a kind that lacks one is
skipped. Each kind is trained as 8 × 1 and as 4 × 2 (micro-batch × gradient accumulation steps): by the bare Trainer,
with the guard and undisturbed, and with the guard while one ``torch.OutOfMemoryError`` is raised in the third step, in
its last forward or in the middle of its last backward. The reference is the bare Trainer of the same shape.

The weights are those of the model that require a gradient, and all parameters of the optimizer. The state is all else
that the Trainer reaches: modules such as loss heads and averages of weights, buffers, the optimizer's state, private
generators, counters, metrics, and the generators of torch, numpy and Python; times are not compared. ``PYTHONPATH``
chooses the guard that is examined. With ``--no-guard`` the bare Trainer is examined in its place: nothing may be wrong.

identical  undisturbed: weights after each step, state and log are equal to the last bit.
exact      weights are within 1e-6 of the movement of the bare Trainer's weights; state and log are within 1e-6. The
           figure is the distance of the weights. After an error, or undisturbed with gradient accumulation.
named      the weights are right, and the guard names all state and log entries that differ, in an event, a warning or a
           note; or the loss is computed from state that it names as not put back, from which the weights follow.
refused    the error of memory is raised, or an InfeasiblePlanError from it. All steps before are the bare Trainer's.
n/a        the bare Trainer does not train this shape, or micro-batches draw random numbers, others after an error.
wrong      all else. The lines after the table have what differs. Exit status 1.
"""

from __future__ import annotations

import argparse
import atexit
import collections
import contextlib
import dataclasses
import gc
import importlib
import json
import logging
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import library_runs
import torch
from library_adapters import ADAPTERS
from library_memory import CELLS, SHAPES, Cell, Kind
from library_optimizers import (
    OPTIMIZERS,
)
from library_sentences import (
    SENTENCES,
)
from library_steps import (
    TRAINERS,
)
from library_trl import (
    TRL,
)
from library_verdicts import (
    NONE,
    WRONG,
    Result,
    Runs,
    _line,
    verdict,
)
from transformers.utils import logging as hf_logging

PACKAGES = (
    "trl sentence-transformers peft schedulefree prodigyopt lomo-optim galore-torch apollo-torch torch-optimi "
    "pytorch-optimizer adam-mini came-pytorch lion-pytorch dadaptation muon-optimizer bitsandbytes torchao grokadamw "
    "sophia-opt torch-optimizer "
    "scikit-learn joblib threadpoolctl narwhals cloudpickle pytorch-ranger"  # what two of them need
)
KINDS: dict[str, Callable[[], Kind]] = {
    f"{library}: {name}": kind
    for library, kinds in (
        ("Trainer", TRAINERS),
        ("optimizer", OPTIMIZERS),
        ("PEFT", ADAPTERS),
        ("TRL", TRL),
        ("sentence-transformers", SENTENCES),
    )
    for name, kind in kinds.items()
}


def row(name: str, cells: Sequence[Cell]) -> list[Result]:
    """The cells of one kind."""
    try:
        runs = Runs(KINDS[name]())
        runs.bare(SHAPES[0])
    except ImportError as error:
        return [Result(NONE, f"skipped: {_line(error)}")] * len(cells)
    except Exception as error:
        return [Result(NONE, f"the bare Trainer raises {_line(error)}")] * len(cells)
    gc.collect()
    gc.freeze()  # what the kind has imported; the guard collects garbage with each error
    return [verdict(runs, cell) for cell in cells]


def reasons(name: str, cells: Sequence[Cell], results: Sequence[Result]) -> Iterator[str]:
    """Why cells are as they are, those of one reason together."""
    rule = next((result.rule for result in results if len(result.rule) > 20), "")
    if rule:
        yield f"- {name} | left alone: {' '.join(rule.split())}"
    together: dict[tuple[str, str], list[str]] = {}
    for cell, result in zip(cells, results, strict=True):
        if result.reason:
            together.setdefault((result.word, result.reason), []).append(str(cell))
    for (word, reason), titles in together.items():
        yield f"- {name} | {'all' if len(titles) == len(cells) else '; '.join(titles)} | {word}: {reason}"


def quiet() -> None:
    """One thread, and no messages but the table."""
    torch.set_num_threads(1)
    atexit.register(gc.unfreeze)
    hf_logging.set_verbosity_error()
    for name in ("trl", "sentence_transformers", "datasets", "accelerate", "peft", "torchao"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with contextlib.suppress(ImportError):
        importlib.import_module("datasets").disable_progress_bars()


def main() -> int:
    """Print the table as its lines come, then what is not exact."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="kinds whose name contains one of these")
    parser.add_argument("--cells", nargs="+", metavar="NAME", help="cells whose title contains one of these")
    parser.add_argument("--list", action="store_true", help="print the names of the kinds and exit")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts to it as well")
    parser.add_argument("--no-guard", action="store_true", help="a check of this script: nothing may be wrong")
    options = parser.parse_args()
    names = [n for n in KINDS if not options.only or any(part in n for part in options.only)]
    cells = [c for c in CELLS if not options.cells or any(part in str(c) for part in options.cells)]
    if not names or not cells:
        parser.error("no kind or no cell has this name")
    if options.list:
        print(*names, sep="\n")
        return 0
    quiet()
    if options.no_guard:
        library_runs.attach = lambda trainer: types.SimpleNamespace(events=[], notes=(), rule="")
    print(f"| kind | rule | {' | '.join(map(str, cells))} |\n|{' --- |' * (len(cells) + 2)}", flush=True)
    begin, counts, lines, verdicts = time.perf_counter(), collections.Counter[str](), list[str](), dict[str, Any]()
    for name in names:
        start = time.perf_counter()
        results = row(name, cells)
        rule = next((result.rule for result in results if result.rule), "")
        print(f"| {name} | {rule if len(rule) <= 20 else 'left alone'} | {' | '.join(map(str, results))} |", flush=True)
        lines += reasons(name, cells, results)
        counts.update(result.word for result in results)
        verdicts[name] = {str(cell): dataclasses.asdict(result) for cell, result in zip(cells, results, strict=True)}
        verdicts[name]["seconds"] = round(time.perf_counter() - start, 1)
    print("", *lines, sep="\n")
    summary = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    print(f"\n{len(names)} kinds, {len(cells)} cells: {summary}; {time.perf_counter() - begin:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(verdicts, indent=1, ensure_ascii=False))
    return int(bool(counts[WRONG]))


if __name__ == "__main__":
    sys.exit(main())
