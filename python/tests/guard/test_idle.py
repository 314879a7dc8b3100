"""While nothing fails, a guarded training calls what the plain one calls, as often, in each kind of ``guard_kinds``."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard import attach
from locations import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))
kinds, runs = importlib.import_module("guard_kinds"), importlib.import_module("guard_kinds_runs")

NAMES = ("forward", "compute_loss", "training_step", "prediction_step", "get_batch_samples")
NOT_FINITE = ("a micro-batch of -100 alone", "first micro-batch of -100 alone")
"""Kinds whose loss is NaN in micro-batches of 4: its clips are computed alone to be named."""
PLACES = (runs.Place("nothing"), runs.Place("4 × 2, nothing", 4, 2))


class Rows(list[Any]):
    """A list whose items are got by a function of Python's, so that a profiler sees it."""

    def __getitem__(self, i: Any) -> Any:
        return super().__getitem__(i)


def dataset_of(kind: Any, rows: Sequence[dict[str, Any]]) -> Any:
    data = kind.dataset(rows)
    return Rows(data) if type(data) is list else data


class Calls:
    """Counts calls of functions by their names, wherever they are written, and those of a collator and a dataset."""

    def __init__(self, trainer: Any) -> None:
        collate, data = trainer.data_collator, type(trainer.train_dataset)
        owned = (getattr(collate, "__code__", None), _code(type(collate), "__call__"), _code(data, "__getitem__"))
        self._owned = {code for code in owned if code is not None}
        self.counts = Counter[tuple[str, int, str]]()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and (code.co_name in NAMES or code in self._owned)
            and "asrconfig_go" not in code.co_filename
        ):
            self.counts[code.co_filename, code.co_firstlineno, code.co_name] += 1


def _code(owner: type, name: str) -> CodeType | None:
    return getattr(getattr(owner, name, None), "__code__", None)


def trained(kind: Any, place: Any, folder: Path, guarded: bool) -> tuple[Counter[Any], Any]:
    """What was called, and the weights."""
    trainer = runs.prepared_trainer(kind, place, runs.Script(place, kind.depth), runs.WeightPath(), str(folder))
    calls = Calls(trainer)
    before = sys.getprofile()
    sys.setprofile(calls)
    try:
        if guarded:
            attach(trainer, **kind.attach)
        trainer.train()
    finally:
        sys.setprofile(before)
    return calls.counts, runs.flat(trainer.model)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of settings that a kind is about
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.title)
@pytest.mark.parametrize(
    "name", [n if i % 5 == 0 else pytest.param(n, marks=pytest.mark.slow) for i, n in enumerate(kinds.KINDS)]
)
def test_calls_and_weights_are_the_plain_trainer_s(tmp_path: Path, name: str, place: Any) -> None:
    made = kinds.KINDS[name]()
    kind = dataclasses.replace(made, dataset=lambda rows: dataset_of(made, rows))
    plain, weights = trained(kind, place, tmp_path, guarded=False)
    try:
        guarded, end = trained(kind, place, tmp_path, guarded=True)
    except InvalidArgumentError:  # what cannot be guarded is refused before the first step
        return
    if name in NOT_FINITE and place.accumulation > 1:
        assert guarded > plain
        return
    assert guarded == plain
    assert {name for *_, name in plain} >= {"training_step", "compute_loss"}
    if place.accumulation == 1:
        assert bool((end == weights).all())
