"""Overrides of a plan: the effective batch stays, and what no longer holds is said at once."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.plan import OverrideWarning
from training_fixtures import make_plan


def overridden(config: ac.TrainingConfig, **changes: Any) -> list[str]:
    """What is said of the changes, one after the other."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for name, value in changes.items():
            setattr(config, name, value)
    assert all(each.category is OverrideWarning and each.filename == __file__ for each in told)
    return [str(each.message) for each in told]


def by_arguments(config: ac.TrainingConfig, **changes: Any) -> tuple[Any, list[str]]:
    pytest.importorskip("transformers")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        args = config.to_training_arguments("out", **changes)
    mine = [each for each in told if each.category is OverrideWarning]
    assert all(each.filename == __file__ for each in mine)
    return args, [str(each.message) for each in mine]


@pytest.mark.parametrize(
    ("batch", "steps", "effective"), [(4, 8, 32), (1, 32, 32), (32, 1, 32), (5, 6, 30), (64, 1, 64)]
)
def test_accumulation_follows_the_batch(batch: int, steps: int, effective: int) -> None:
    config = make_plan()
    (said,) = overridden(config, per_device_train_batch_size=batch)
    assert (config.gradient_accumulation_steps, config.effective_batch_size) == (steps, effective)
    assert f"per_device_train_batch_size = {batch} instead of 8: gradient_accumulation_steps = {steps} follows" in said
    assert ("a step keeps its 32 clips" in said) == (effective == 32)
    assert ("learning_rate = 4e-05 is for 32: sqrt scaling gives" in said) == (effective != 32)
    args, (said,) = by_arguments(make_plan(), per_device_train_batch_size=batch)
    assert args.gradient_accumulation_steps == steps
    assert f"gradient_accumulation_steps = {steps} follows" in said


def test_several_devices_share_the_step() -> None:
    config = make_plan(device_count=2, gradient_accumulation_steps=2)
    overridden(config, per_device_train_batch_size=4)
    assert (config.gradient_accumulation_steps, config.effective_batch_size) == (4, 32)


@pytest.mark.parametrize("order", [("batch", "steps"), ("steps", "batch")])
def test_both_count_where_both_are_set(order: tuple[str, str]) -> None:
    values = {"batch": ("per_device_train_batch_size", 2), "steps": ("gradient_accumulation_steps", 4)}
    changes = dict(values[name] for name in order)
    for config in (make_plan(), copy.deepcopy(make_plan()), pickle.loads(pickle.dumps(make_plan()))):
        said = overridden(config, **changes)
        assert (config.per_device_train_batch_size, config.gradient_accumulation_steps) == (2, 4)
        assert (
            "a step has 8 clips instead of 32, and learning_rate = 4e-05 is for 32: sqrt scaling gives 2e-05"
            in said[-1]
        )
    args, (told,) = by_arguments(make_plan(), **changes)
    assert (args.per_device_train_batch_size, args.gradient_accumulation_steps) == (2, 4)
    assert "a step has 8 clips instead of 32" in told


def test_set_steps_stay_also_where_they_are_the_plans() -> None:
    config = make_plan()
    overridden(config, gradient_accumulation_steps=4, per_device_train_batch_size=2)
    assert config.gradient_accumulation_steps == 4
    args, _ = by_arguments(make_plan(), per_device_train_batch_size=2, gradient_accumulation_steps=4)
    assert args.gradient_accumulation_steps == 4


def test_the_learning_rate_is_named_only_where_it_is_the_plans() -> None:
    config = make_plan(lr_scaling="linear")
    assert "linear scaling gives 2e-05 for 16" in overridden(config, gradient_accumulation_steps=2)[0]
    for other in (make_plan(lr_scaling="none"), make_plan()):
        overridden(other, learning_rate=1e-4)
        assert "scaling gives" not in overridden(other, gradient_accumulation_steps=2)[0]


def test_one_kind_of_half_precision_turns_the_other_off() -> None:
    config = make_plan(bf16=True)
    (said,) = overridden(config, fp16=True)
    assert (config.fp16, config.bf16, config.precision) == (True, False, "fp16")
    assert "bf16 = False follows" in said


@pytest.mark.parametrize(("name", "value"), [("gradient_checkpointing", True), ("optimizer", "adafactor")])
def test_predictions_that_no_longer_hold_are_named(name: str, value: Any) -> None:
    (said,) = overridden(make_plan(), **{name: value})
    assert said.startswith(f"{name} = {value!r} instead of ")
    assert "predicted memory and times are those of the plan → plan again" in said
    assert overridden(make_plan(**{name: value}), **{name: value}) == [], "nothing has changed"
    passed = {"optim" if name == "optimizer" else name: value}
    _, (said,) = by_arguments(make_plan(), **passed)
    assert said.startswith(f"{name} = {value!r} instead of ")
    assert by_arguments(make_plan(**{name: value}), **passed)[1] == []


def test_nothing_is_said_of_what_no_prediction_rests_on(tmp_path: Path) -> None:
    config = make_plan()
    assert overridden(config, learning_rate=1e-4, num_train_epochs=2, seed=3, dataloader_num_workers=2) == []
    assert by_arguments(make_plan(), learning_rate=1e-4, save_steps=5, seed=3)[1] == []
    config.save(tmp_path / "plan.json")
    assert ac.TrainingConfig.load(tmp_path / "plan.json") == config
