"""Trainings that run out of memory and go on in four ways, against trainings in which nothing happens.

    python benchmarks/guard_exactness.py [--quick] [--peers-everywhere] [--jobs 2] [--json FILE]

Four small speech models on the CPU, dropout off, SGD (AdamW would hide gradients of the wrong size), clips of unequal
length, an effective batch of 16 for 24 optimizer steps. Memory runs out 1, 3 or 20 times in one run, in the forward,
in the middle of the backward, in the optimizer's step or in evaluation, at 16 × 1, 8 × 2, 4 × 4 and 1 × 16 (micro-batch
× accumulation); ``guard_runs.Memory`` says how. For the guard it is shown how far the final weights are from those of
the calm run of the same kind, and from those of a plain Trainer with one batch of 16, relative to how far training
moved them: the worst of the four accumulations. Steps, learning rates, the order of clips, and the clips behind each
optimizer step must be equal, and losses within 1e-4.

Beside it, at 8 × 2, what people use, against the plain Trainer with one batch of 16: the Trainer's
auto_find_batch_size; halving the batch in training_step and trying that batch again; and accelerate's
find_executable_batch_size around a function that makes model and Trainer and trains. Cells are the relative distance,
optimizer steps that were computed of those that there should be, and how many times a clip counted too often (+) or not
at all (−) in the final weights. "died" are runs that ended with an error.

AdamW is run in float64: in float32 it turns the rounding of gradients that should be zero (the keys' biases) into steps
of its own. Exit status 1 when the guard misses anything.
"""

from __future__ import annotations

import argparse
import atexit
import concurrent.futures
import functools
import gc
import json
import logging
import math
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from guard_runs import RATES, STEPS, WAYS, Case, Outcome, trained
from transformers.utils import logging as hf_logging

AIM = 1e-5
PLACES = ("forward", "backward", "optimizer", "evaluation")
COUNTS = (1, 3, 20)
ACCUMULATIONS = (1, 2, 4, 16)
PEERS_AT = (2,)
Cell = tuple[str, str, int, str, bool]  # kind, place, OOMs, optimizer, whether peers are run everywhere


class Line(NamedTuple):
    """One line of the table."""

    text: str
    missed: list[str]
    worst: float
    """The largest of the guard's distances."""
    auto: float | None
    """The distance of auto_find_batch_size where it was run last; None where it died."""


@functools.lru_cache(maxsize=64)
def calm(case: Case) -> Outcome:
    """A run in which nothing happens."""
    return trained(case)


def distance(run: Outcome, other: Outcome) -> float:
    """Of the final weights, relative to the movement of ``other``."""
    return float((run.end - other.end).norm() / (other.end - other.start).norm())


def faults(run: Outcome, same: Outcome, large: Outcome, ooms: int) -> list[str]:
    """What differs that must not, in words."""
    checks = {
        run.died or "died": not run.died,
        f"{run.raised} errors instead of {ooms}": run.raised == ooms,
        "steps": run.global_step == run.computed_steps == same.global_step == STEPS,
        "order of clips": run.order == same.order and _in_a_row(run) == _in_a_row(large),
        "clips of a step": run.applied == same.applied == large.applied,
        "a clip repeated or lost": run.twice_and_lost() == (0, 0),
        "logs": len(run.log) == len(same.log) and all(map(_same_entry, run.log, same.log)),
        "far from the calm run": distance(run, same) <= AIM,
        "far from the large batch": distance(run, large) <= AIM,
    }
    return [name for name, passed in checks.items() if not passed]


def _in_a_row(run: Outcome) -> list[int]:
    return [clip for batch in run.order for clip in batch]


def _same_entry(one: dict[str, float], other: dict[str, float]) -> bool:
    exact = ("learning_rate", "epoch", "step")
    return one.keys() == other.keys() and all(
        v == other[n] if n in exact else abs(v - other[n]) <= 1e-4 * abs(other[n]) for n, v in one.items()
    )


def row(cell: Cell) -> Line:
    """Run one line."""
    kind, place, ooms, optimizer, everywhere = cell
    settings: dict[str, Any] = {"optimizer": optimizer, "double": optimizer == "adamw"}
    large = calm(Case(kind, way="plain", **settings))
    to_calm, to_large, missed = 0.0, 0.0, []
    for accumulation in ACCUMULATIONS:
        case = Case(kind, accumulation, place, ooms, evaluates=place == "evaluation", **settings)
        same = calm(Case(kind, accumulation, evaluates=case.evaluates, **settings))
        run = trained(case)
        to_calm, to_large = max(to_calm, distance(run, same)), max(to_large, distance(run, large))
        where = f"{kind}, {place}, {ooms} times, accumulation {accumulation}"
        missed += [f"{where}: {fault}" for fault in faults(run, same, large, ooms)]
    cells, auto = [f"{to_calm:.1e}", f"{to_large:.1e}", f"{run.computed_steps}/{STEPS}"], None
    for way in WAYS[1:]:
        for accumulation in ACCUMULATIONS if everywhere else PEERS_AT:
            peer = trained(Case(kind, accumulation, place, ooms, way, evaluates=place == "evaluation", **settings))
            cells.append(_told(peer, large))
            if way == "auto_find_batch_size":
                auto = None if peer.died else distance(peer, large)
    name = kind if optimizer == "sgd" else f"{kind}, AdamW"
    text = f"| {name} | {place} | {ooms} | {' | '.join(cells)} |"
    return Line(text, missed, max(to_calm, to_large), auto)


def _told(peer: Outcome, large: Outcome) -> str:
    if peer.died:
        return f"died at step {peer.computed_steps}"
    twice, lost = peer.twice_and_lost()
    return f"{distance(peer, large):.1e}, {peer.computed_steps}/{STEPS}, +{twice} −{lost}"


def cells(quick: bool, everywhere: bool) -> list[Cell]:
    """The lines of the table; those that share calm runs are neighbours."""
    if quick:
        few = zip(RATES, PLACES, (1, 20, 3, 3), strict=True)
        return [(kind, place, count, "sgd", everywhere) for kind, place, count in few]
    runs = [*((count, "sgd") for count in COUNTS), (3, "adamw")]
    return [(kind, place, *run, everywhere) for kind in RATES for place in PLACES for run in runs]


def quiet() -> None:
    """Of a process: one thread, no warnings, and objects of imports left alone by the garbage collector."""
    torch.set_num_threads(1)
    hf_logging.set_verbosity_error()
    logging.getLogger("asrconfig_go").setLevel(logging.ERROR)
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)


def main() -> int:
    """Print the table as its lines come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four lines only, one for each model and place")
    parser.add_argument("--peers-everywhere", action="store_true", help="the others at all four accumulations")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    options = parser.parse_args()
    at = ACCUMULATIONS if options.peers_everywhere else PEERS_AT
    peers = [f"{way}, {16 // accumulation} × {accumulation}" for way in WAYS[1:] for accumulation in at]
    titles = ["model", "memory runs out in", "times"]
    titles += ["guard: from calm", "guard: from one batch", "guard: steps", *peers]
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}", flush=True)
    begin, lines = time.perf_counter(), list[Line]()
    chosen = cells(options.quick, options.peers_everywhere)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, context, initializer=quiet) as pool:
        for line in pool.map(row, chosen, chunksize=1 if options.quick else 8):
            print(line.text, flush=True)
            lines.append(line)
    missed = [fault for line in lines for fault in line.missed]
    for fault in missed:
        print(f"MISSED: {fault}")
    took, worst = time.perf_counter() - begin, max(line.worst for line in lines)
    print(f"\nguard: worst distance {worst:.1e}, aim {AIM:.0e}; {len(missed)} missed; {took:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(figures(chosen, lines)))
    return int(bool(missed))


def figures(chosen: list[Cell], lines: list[Line]) -> dict[str, Any]:
    """What README quotes; auto_find_batch_size's with SGD, as AdamW hides gradients of the wrong size."""
    auto = [line.auto for cell, line in zip(chosen, lines, strict=True) if cell[3] == "sgd"]
    ended = [far for far in auto if far is not None]
    return {
        "guard_runs": len(lines) * len(ACCUMULATIONS),
        "guard_distance": power(max(line.worst for line in lines)),
        "auto_distance": f"{min(ended):.1g} to {max(ended):.2g}",
        "auto_died": f"{len(auto) - len(ended)} of {len(auto)}",
    }


def power(value: float) -> str:
    """One digit and a power of ten, as people write it."""
    exponent = math.floor(math.log10(value))
    digit = round(value / 10**exponent)
    digit, exponent = (1, exponent + 1) if digit == 10 else (digit, exponent)
    return f"{digit}·10{str(exponent).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


if __name__ == "__main__":
    sys.exit(main())
