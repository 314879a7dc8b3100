"""Trainings with the guard compared with the bare Trainer's: identical, exact, named, refused or wrong."""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import Any

import torch
from library_memory import FAILING, OOM, Cell, Kind, Memory, Run, Shape
from library_runs import trained
from library_state import (
    _TIMES,
    Item,
)

from asrconfig_go.errors import InfeasiblePlanError

AIM = 1e-6
IDENTICAL, EXACT, NAMED, REFUSED, NONE, WRONG = "identical", "exact", "named", "refused", "n/a", "wrong"


class Runs:
    """The bare trainings of one kind, each once."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.trained = kind, dict[Shape, Run]()

    def bare(self, shape: Shape) -> Run:
        if shape not in self.trained:
            run = trained(self.kind, shape, guarded=False, memory=Memory())
            self.trained[shape] = run
            if not run.error and not (run.weights[-1] - run.weights[0]).norm() > 1e-4 * run.weights[0].norm():
                run.error = ValueError("weights that move too little to compare")
        return self.trained[shape]


@dataclasses.dataclass(frozen=True)
class Result:
    """What a cell is, why, and how far the weights are from the bare Trainer's."""

    word: str
    reason: str = ""
    distance: float | None = None
    rule: str = ""

    def __str__(self) -> str:
        word = f"**{self.word}**" if self.word == WRONG else self.word
        if self.distance is None or self.word == IDENTICAL:
            return word
        return f"{word} {self.distance:.0e}" if self.distance else f"{word} 0"


def verdict(runs: Runs, cell: Cell) -> Result:
    """Train the cell's run and compare it."""
    kind, bare = runs.kind, runs.bare(cell.shape)
    if bare.error:
        return Result(NONE, f"the bare Trainer raises {_line(bare.error)}")
    if cell.place and not bare.arrivals[cell.place]:
        return Result(NONE, f"no {cell.place} in this step")
    memory = Memory(cell.place, bare.arrivals[cell.place] - 1 if cell.place else 0)
    run = trained(kind, cell.shape, guarded=True, memory=memory)
    before = [i for i in range(min(FAILING + 1, len(run.weights))) if not torch.equal(run.weights[i], bare.weights[i])]
    drift = f"weights differ before the error, from step {before[0]}" if before and cell.place else ""
    if run.error:
        end = f"raises {'the error of memory' if isinstance(run.error, torch.OutOfMemoryError) else _line(run.error)}"
        word = REFUSED if run.raised and refused(run.error) and not drift else WRONG
        return Result(word, "; ".join(filter(None, [end, drift])), rule=run.rule)
    far, same = distance(run, bare), not before and all(map(torch.equal, run.weights, bare.weights))
    if cell.place and not run.raised:
        return Result(WRONG, "memory never ran out", far, run.rule)
    bitwise = cell.place is None and cell.shape.accumulation == 1
    off = differing(run, bare, None if bitwise else AIM)
    unnamed = [name for name in off if not is_named(name, run, kind)]
    right = same if bitwise else far <= AIM
    if right and not off:
        equal = cell.place is None and same and not differing(run, bare, None)
        return Result(IDENTICAL if equal else EXACT, distance=far, rule=run.rule)
    if right and not unnamed:
        return Result(NAMED, f"differs, and is named: {_brief(off)}", far, run.rule)
    if cell.place and not drift and kind.follows and any(kind.follows in text for text in run.texts):
        return Result(NAMED, f"weights {far:.1e}, after an error of {kind.follows}, which is named", far, run.rule)
    if kind.draws and cell.place and not drift and len(run.weights) == len(bare.weights):
        return Result(NONE, "other micro-batches draw other random numbers", far, run.rule)
    causes = [f"weights {far:.1e}"] * (not right) + [drift] * bool(drift) + [_brief(unnamed)] * bool(unnamed)
    return Result(WRONG, "; ".join(causes), far, run.rule)


def refused(error: BaseException) -> bool:
    """Whether it is the error of memory, or an InfeasiblePlanError from it."""
    behind = error.__cause__ or error.__context__ if isinstance(error, InfeasiblePlanError) else error
    return isinstance(behind, torch.OutOfMemoryError) and str(behind) == OOM


def distance(run: Run, bare: Run) -> float:
    """Of the final weights, relative to the movement of the bare Trainer's."""
    if len(run.weights) != len(bare.weights) or run.weights[-1].shape != bare.weights[-1].shape:
        return float("nan")
    moved = (bare.weights[-1] - bare.weights[0]).norm()
    return float((run.weights[-1] - bare.weights[-1]).norm() / moved)


def differing(run: Run, bare: Run, aim: float | None) -> list[str]:
    """Names of what differs in state and log: by more than ``aim`` of its size, or in any bit where it is None."""
    names = [f"log: {name}" for name in _logged(run.log, bare.log, aim)]
    groups: dict[str, list[str]] = {}
    for name, item in bare.state.items():
        other = run.state.get(name)
        if other is None or not _equal(other.value, item.value):
            groups.setdefault(item.group, []).append(name)
    for group, members in groups.items():
        if aim is None or not _near(group, members, run.state, bare.state, aim):
            names += members
    return names


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        return bool(((one == other) | ((one != one) & (other != other))).all())
    return type(one) is type(other) and (one == other or (one != one and other != other))


def _near(group: str, members: list[str], state: dict[str, Item], bare: dict[str, Item], aim: float) -> bool:
    """Whether the floating-point values of a group are near in total; all others must be equal."""
    off = size = 0.0
    for name, item in bare.items():
        if item.group != group:
            continue
        one: Any = state[name].value if name in state else None
        other: Any = item.value
        if isinstance(one, float) and isinstance(other, float):
            one, other = torch.tensor(one, dtype=torch.float64), torch.tensor(other, dtype=torch.float64)
        tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        if tensors and other.is_floating_point() and one.shape == other.shape:
            if name in members:
                off += float((one.double() - other.double()).square().sum())
            size += float(other.double().nan_to_num(0.0, 0.0, 0.0).square().sum())
        elif name in members:
            return False
    return bool(off**0.5 <= aim * max(size**0.5, 1e-6))


def _logged(log: list[dict[str, Any]], bare: list[dict[str, Any]], aim: float | None) -> list[str]:
    """Names of entries that differ."""
    if len(log) != len(bare):
        return ["entries"]
    names: dict[str, None] = {}
    for entry, reference in zip(log, bare, strict=True):
        for name in {**reference, **entry}:
            one, other = entry.get(name), reference.get(name)
            near = _equal(one, other)
            if aim is not None and isinstance(one, int | float) and isinstance(other, int | float):
                near = near or abs(one - other) <= aim * max(abs(other), 0.1)
            if not near and not _TIMES.search(name):
                names[name] = None
    return list(names)


_COMMON = {
    "log", "model", "module", "state", "optimizer", "params", "weight", "bias", "train", "groups", "grad", "torch",
    "numpy", "python", "first", "middle", "last",
}  # fmt: skip
_OF_TRAINER = {"loss", "grad_norm", "learning_rate", "epoch", "step", "train_loss", "total_flos", "entries"}


def is_named(name: str, run: Run, kind: Kind) -> bool:
    """Whether an event, a warning or a note has a word of this name that no other sentence would have."""
    place, _, entry = name.partition("log: ")
    if entry in _OF_TRAINER:
        return False
    words = {word for word in re.findall(r"[A-Za-z_]\w+", place or entry) if word not in _COMMON}
    if entry:
        words |= {*kind.metrics.get("*", ()), *kind.metrics.get(entry, ())}
    return any(re.search(rf"\b{re.escape(word)}\b", text) for word in words for text in run.texts)


def _brief(names: list[str]) -> str:
    """One name for those of one beginning, with their number."""
    short = [re.sub(r"(\.\d+)+(?=\.|$)", ".*", re.sub(r"\.(weight|bias)$", "", name)) for name in names]
    heads = collections.Counter(name.split(".")[0] for name in short)
    counts = collections.Counter(f"{n.split('.')[0]}.*" if heads[n.split(".")[0]] > 3 else n for n in short)
    brief = [name + (f" ({count})" if count > 1 else "") for name, count in counts.items()]
    return ", ".join(brief if len(brief) <= 8 else [*brief[:7], f"and {len(brief) - 7} more"])


def _line(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 180 else f"{text[:179]}…"
