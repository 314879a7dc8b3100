"""Methods of a Trainer are replaced as the table has it, and put back."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from transformers.trainer_callback import TrainerCallback

from asrconfig_go import ASRConfigManager, StepSampler
from asrconfig_go._core.training_session import REPLACED, SESSION_KEY, Part, attached, replace_method, session_of
from asrconfig_go.guard import attach
from asrconfig_go.train import StreamBatches, use_batches
from asrconfig_go.train.guarded_training import GuardedTraining
from asrconfig_go.train.planned_batches import group_by_durations
from disturbed_runs import OutOfMemory
from tiny_training import tiny_trainer
from training_fixtures import make_plan

OWNERS = ("", "accelerator.", "optimizer.", "callback_handler.")


def replaced(trainer: Any) -> set[str]:
    """The attributes of a Trainer, and of what it owns, that are functions of this package."""
    owners = {prefix: getattr(trainer, prefix[:-1]) if prefix else trainer for prefix in OWNERS}
    return {
        f"{prefix}{name}"
        for prefix, owner in owners.items()
        for name, value in getattr(owner, "__dict__", {}).items()
        if callable(value) and _module(value).startswith("asrconfig_go.")
    }


def _module(value: Any) -> str:
    function = getattr(value, "func", value)  # of a partial
    function = getattr(function, "__func__", function)
    return str(getattr(function, "__globals__", {}).get("__name__", type(function).__module__))


class Noting(TrainerCallback):  # type: ignore[misc]
    """Notes what is replaced between the steps of a Trainer and within; more than two clips do not fit in one."""

    def __init__(self, output: Path) -> None:
        self.trainer = tiny_trainer(output, callbacks=[self], save_strategy="steps", save_steps=2)
        self.seen = SimpleNamespace(between=set(), within=set())  # a set of its own would be put back with the step
        self.trainer.model.register_forward_pre_hook(self._forward, with_kwargs=True)

    def _forward(self, _: Any, __: Any, inputs: dict[str, Any]) -> None:
        self.seen.within |= replaced(self.trainer)
        if self.trainer.state.global_step == 1 and len(inputs["x"]) > 2:
            raise OutOfMemory("CUDA out of memory")

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.seen.between |= replaced(self.trainer)


def of(*parts: str, span: tuple[str, ...] = ("attached", "training", "a step")) -> set[str]:
    return {row.method for row in REPLACED if row.part in parts and row.span in span}


def everything(trainer: Any) -> list[Callable[[], None]]:
    leave = use_batches(trainer, StepSampler([1.0] * 16, 4))
    return [attach(trainer).detach, leave, group_by_durations(trainer, None, array("d"))]


@pytest.mark.filterwarnings("ignore:an epoch has only:asrconfig_go.predict.BatchingWarning")
def test_the_table_is_what_is_replaced(tmp_path: Path) -> None:
    noting, parts = Noting(tmp_path), ("guard", "batches", "lengths")
    undo = everything(noting.trainer)
    assert replaced(noting.trainer) == of(*parts, span=("attached",))
    GuardedTraining(noting.trainer).train()
    assert noting.seen.between == of(*parts, "run", span=("attached", "training"))
    assert noting.seen.within == of(*parts, "run")
    for leave in undo:
        leave()
    assert not replaced(noting.trainer)
    assert SESSION_KEY not in {*vars(noting.trainer), *vars(noting.trainer.callback_handler)}


def test_a_stream_replaces_what_the_table_has(tmp_path: Path) -> None:
    import datasets

    trainer, manager = tiny_trainer(tmp_path, max_steps=2), ASRConfigManager()
    rows = datasets.Dataset.from_dict({"input_values": [[0.0] * 800] * 6}).to_iterable_dataset()
    trainer.train_dataset = StreamBatches(rows)
    guard = manager.attach(trainer)
    assert replaced(trainer) == of("guard", "stream", "lengths", span=("attached",))
    assert {row.part for row in REPLACED} == {*get_args(Part)} - {"arguments"}
    guard.detach()
    assert not replaced(trainer)


def test_loaders_are_wrapped_once_and_left_in_any_order(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    original, session = trainer.get_train_dataloader, session_of(trainer)
    session.add("run")
    session.wrap_loader("run", lambda make: ["run", make()])
    session.add("batches")
    session.wrap_loader("batches", lambda make: ["batches", make()])
    wrapped = trainer.get_train_dataloader
    assert wrapped()[0] == "run" and wrapped()[1][0] == "batches", "by the order of the table"
    session.remove("run")
    assert trainer.get_train_dataloader is wrapped and wrapped()[0] == "batches"
    session.remove("batches")
    session.remove("batches")
    assert trainer.get_train_dataloader == original


def test_other_methods_are_refused(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    with pytest.raises(LookupError, match="train is not among the methods of a Trainer that guard replaces"):
        replace_method(trainer, "guard", "train", print)
    with pytest.raises(LookupError):
        session_of(trainer).add("stream", True, {"training_step": print})
    assert not replaced(trainer)


def test_a_detached_trainer_is_what_it_was(tmp_path: Path) -> None:
    trainer, manager = tiny_trainer(tmp_path), ASRConfigManager()
    manager.config = make_plan()
    before = {name: id(value) for name, value in vars(trainer).items()}
    for _ in range(2):
        guard = manager.attach(trainer)
        assert attached(trainer, "guard") is attached(trainer.callback_handler, "guard") is guard
        guard.detach()
        assert {name: id(value) for name, value in vars(trainer).items()} == before
        assert attached(trainer, "guard") is None and attached(None, "guard") is None
    pickle.dumps(trainer.state)
