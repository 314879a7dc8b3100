"""Kinds of trainings, each disturbed in many places, compared with an undisturbed one: exact, refused or wrong.

    python benchmarks/guard_kinds.py [--quick] [--only NAME ...] [--places NAME ...] [--json FILE]

A kind is a Trainer, a model and a dataset, small, on the CPU (``guard_kinds_*.py``). Where the guard knows what the
loss divides by, the reference is the plain Trainer with one micro-batch of 8, to which nothing happens: the Trainer
alone multiplies gradients of many speech models by the accumulation steps. Elsewhere, and in a kind in which the size
of a micro-batch counts by intention, it is the plain Trainer with batches of the same shape.

A cell is *exact* when the final weights are within 1e-5 of the reference's (bf16: 2e-2), relative to how far training
moved them, and optimizer steps, the clips of each and the log (losses, gradient norms, evaluation) are right. With
nothing in the way and nothing cut, weights and buffers must be equal to the last bit. It is *refused* when the training
was left alone up to the error of memory, which was then raised as it is, or as the cause of an InfeasiblePlanError,
with a reason that names the Trainer, the model or what is special about them, or when an option was refused so before
the first step: the weights behind each step are the plain Trainer's to the last bit. It is *named* where it ends, and
what was not put back after the error was named. All else is *wrong*. *n/a*: random numbers are drawn for other
micro-batches, and order and steps were right; or the plain Trainer cannot train this shape. Exit status 1 when a cell
is wrong.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from pathlib import Path

import torch
from guard_exactness import distance, quiet
from guard_kinds_batches import BATCHES
from guard_kinds_changing import CHANGING
from guard_kinds_losses import LOSSES
from guard_kinds_models import MODELS
from guard_kinds_runs import EFFECTIVE, Kind, Place, Run, trained
from guard_kinds_settings import SETTINGS
from guard_kinds_steps import STEPS
from guard_runs import OOM

from asrconfig_go.errors import AsrConfigError, InfeasiblePlanError

KINDS = {**STEPS, **LOSSES, **BATCHES, **CHANGING, **SETTINGS, **MODELS}
PLACES = (
    Place("nothing"),
    Place("forward", forward=((0, 0), (2, 0), (4, 1))),
    Place("backward", backward=((1, 0), (2, 0), (3, 1))),
    Place("several in one step", forward=((1, 0), (1, 3)), backward=((1, 0),)),
    Place("two halvings", fits=2),
    Place("optimizer", optimizer=True),
    Place("optimizer, half done", half_done=True),
    Place("evaluation", evaluation=True),
    Place("4 × 2, nothing", 4, 2),
    Place("4 × 2, forward", 4, 2, forward=((0, 0), (2, 0))),
    Place("4 × 2, second micro-batch", 4, 2, backward=((1, 1), (4, 2))),
    Place("1 × 8, nothing", 1, 8),
    Place("1 × 8, backward", 1, 8, backward=((1, 3),)),
    Place("micro_batch=2", options={"micro_batch": 2}),
    Place("overhead_s=1e-4", options={"overhead_s": 1e-4}),
)
QUICK = ("nothing", "backward", "4 × 2, second micro-batch", "micro_batch=2")
_OWN = {"part", "step", "epoch"}  # an entry that compute_loss has logged
COUNTED = ("step", "learning_rate")
_EXACT, _REFUSED, _NAMED, _WRONG, _NONE = "exact", "refused", "named", "wrong", "n/a"


class Runs:
    """The trainings of one kind, each once."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.plain = functools.cache(lambda place: trained(kind, place, guarded=False))

    def reference(self, place: Place, is_certain: bool) -> Run | None:
        """None for a shape of its own that the plain Trainer cannot train."""
        plain_run: Run = self.plain(Place(""))
        if plain_run.error:
            raise RuntimeError(f"the reference of {place.title} fails") from plain_run.error
        run = self.plain(place.calm) if self.own_shape(is_certain) else plain_run
        return None if run.error or not bool(run.end.isfinite().all()) else run

    def own_shape(self, is_certain: bool) -> bool:
        """Whether the reference has batches of the same shape."""
        return self.kind.own_shape or not is_certain


def verdict(runs: Runs, place: Place) -> tuple[str, str]:
    """What a cell is, and why or how exact."""
    kind, run = runs.kind, trained(runs.kind, place, guarded=True)
    reference = runs.reference(place, run.is_certain)
    if reference is None:
        return _NONE, ""
    if not run.raised and place.optimizer and not trained(kind, place, guarded=False).raised:
        return _NONE, ""  # an optimizer that does nothing in its step
    off = differences(run, reference, place, kind, runs.own_shape(run.is_certain))
    if not off:
        return _EXACT, f"{_far(run, reference):.0e}"
    refusal = refused(run, reference, kind)
    if refusal:
        return _REFUSED, refusal
    cut = place.fails_in_training or place.options
    order = differences(run, reference, place, kind, runs.own_shape(run.is_certain), only_order=True)
    if kind.random and cut and not order:
        return _NONE, ""
    return _NAMED if not run.error and not order and named(run, kind) else _WRONG, "; ".join(off)


def differences(
    run: Run, reference: Run, place: Place, kind: Kind, own_shape: bool, only_order: bool = False
) -> list[str]:
    """What is not as it should be, in words."""
    if run.error:
        return [f"step {run.computed_steps}: {_line(run.died)}"]
    names = []
    if not run.raised and (place.fails_in_training or place.optimizer or place.evaluation):
        names.append("memory never ran out")
    if (run.global_step, run.computed_steps) != (reference.global_step, reference.computed_steps):
        names.append(f"{run.computed_steps} steps of {reference.computed_steps}")
    if run.order != reference.order:
        names.append("order")
    if only_order:
        return names
    calm = not (place.fails_in_training or place.options)
    same = calm and (place.micro == EFFECTIVE or own_shape) and not (place.optimizer or place.evaluation)
    far = _far(run, reference)
    if not far <= kind.aim:
        names.append(f"weights {far:.1e}")
    elif same and (far or not torch.equal(run.buffers, reference.buffers)):
        names.append(f"not bit by bit: {'buffers' if not far else f'weights {far:.1e}'}")
    return names + logged(run, reference, max(1e-4, kind.aim), calm and not place.evaluation)


def _far(run: Run, reference: Run) -> float:
    if torch.equal(run.end, reference.end):  # where nothing moves, too
        return 0.0
    return distance(run, reference) if run.end.shape == reference.end.shape else float("nan")


def logged(run: Run, reference: Run, aim: float, calm: bool) -> list[str]:
    """Entries of the log that differ; what ``compute_loss`` itself logs of micro-batches counts where none is cut."""
    logs = [
        [_of_trainer(entry, calm) for entry in recorded.log if calm or set(entry) - _OWN]
        for recorded in (run, reference)
    ]
    if [sorted(entry) for entry in logs[0]] != [sorted(entry) for entry in logs[1]]:
        return ["other entries in the log"]
    worst: dict[str, float] = {}
    for mine, wanted in zip(*logs, strict=True):
        for name, value in wanted.items():
            if name == "epoch":  # counted in batches, of which an incomplete window has another share
                continue
            off = abs(mine[name] - value) / max(abs(value), 1e-2)
            if not off <= (1e-9 if name in COUNTED else aim):
                worst[name] = max(worst.get(name, 0.0), off) if off == off else float("nan")
    return [f"logged {name} {off:.0e}" for name, off in worst.items()]


def _of_trainer(entry: dict[str, float], calm: bool) -> dict[str, float]:
    return entry if calm else {name: value for name, value in entry.items() if name != "part"}


def refused(run: Run, reference: Run, kind: Kind) -> str:
    """How the training was refused, by a name, and left alone until then; "" where it was not."""
    own = kind.trainer.__name__ if kind.trainer.__name__ != "Trainer" else "training_step"
    is_named = any(name in run.died for name in (own, run.model, *kind.names, "the optimizer's step was half done"))
    if run.error is None or not is_named:
        return ""
    if isinstance(run.error, AsrConfigError) and run.computed_steps == 0 and not run.raised:
        return "option" if torch.equal(run.start, run.end) else ""
    moved = max(float((reference.end - reference.start).norm()), 1e-30)
    aim = kind.aim if run.raised > 1 or run.is_certain else 0.0  # the errors before the last one were recovered from
    same = all(float((a - b).norm()) <= aim * moved for a, b in zip(run.path, reference.path, strict=False))
    return "error" if same and run.order == reference.order[: len(run.order)] and _of_memory(run.error) else ""


def named(run: Run, kind: Kind) -> bool:
    """Whether what differs was named."""
    names = (kind.trainer.__name__, run.model, *kind.names)
    return any(name in text and name != "Trainer" for name in names for _, text in run.told)


def _of_memory(error: Exception) -> bool:
    """Whether it is the error of memory as it was raised, or says in the package's words that nothing else is left."""
    behind = error.__cause__ if isinstance(error, InfeasiblePlanError) else error
    return isinstance(behind, torch.cuda.OutOfMemoryError) and str(behind) == OOM


def _line(text: str) -> str:
    return " ".join(text.split())[:140]


def row(name: str, titles: tuple[str, ...]) -> list[tuple[str, str]]:
    """The cells of one kind."""
    torch.manual_seed(0)
    kind = KINDS[name]()
    if isinstance(kind, str):
        return [("skipped", kind)] * len(titles)
    runs = Runs(kind)
    cells = []
    for place in PLACES:
        if place.title in titles:
            try:
                cells.append(verdict(runs, place))
            except Exception as error:  # of the kind itself: the plain Trainer's run
                cells.append(("broken", f"{_line(repr(error))} from {_line(repr(error.__cause__))}"))
    return cells


def _shown(cell: tuple[str, str]) -> str:
    verdict, reason = cell
    return {_WRONG: "**wrong**", _REFUSED: f"refused ({reason})"}.get(
        verdict, f"{verdict} {reason}" if verdict == _EXACT else verdict
    )


def main() -> int:
    """Print the table as its lines come, then what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four places only")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="kinds whose name contains one of these")
    parser.add_argument("--places", nargs="+", metavar="NAME", help="places whose title contains one of these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    options = parser.parse_args()
    names = [n for n in KINDS if not options.only or any(part in n for part in options.only)]
    titles = tuple(p.title for p in PLACES if p.title in QUICK or not options.quick)
    if options.places:
        titles = tuple(p.title for p in PLACES if any(part in p.title for part in options.places))
    if not names or not titles:
        parser.error("nothing is called so")
    print(f"| kind | {' | '.join(titles)} |\n|{' --- |' * (len(titles) + 1)}", flush=True)
    begin, counts, wrong = time.perf_counter(), dict[str, int](), list[str]()
    quiet()
    good = run = 0
    for name in names:
        cells = row(name, titles)
        print(f"| {name} | {' | '.join(_shown(cell) for cell in cells)} |", flush=True)
        good += all(verdict in (_EXACT, _REFUSED, _NONE) for verdict, _ in cells)
        run += cells[0][0] != "skipped"
        for title, (verdict, reason) in zip(titles, cells, strict=True):
            counts[verdict] = counts.get(verdict, 0) + 1
            if verdict in (_WRONG, "broken"):
                wrong.append(f"{name} | {title} | {verdict}: {reason}")
    print("", *(f"- {line}" for line in wrong), sep="\n")
    summary = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    print(f"\n{len(names)} kinds, {len(titles)} places: {summary}; {time.perf_counter() - begin:.0f} s")
    if options.json:
        options.json.write_text(json.dumps({"guard_kinds": f"{good} of {run}"}))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
