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
from training_fixtures import UNGUARDED, make_plan


def overridden(config: ac.TrainingConfig, **changes: Any) -> list[str]:
    """What is said of the changes, one after the other."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name, value in changes.items():
            setattr(config, name, value)
    assert all(warning.category is OverrideWarning and warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


def by_arguments(config: ac.TrainingConfig, **changes: Any) -> tuple[Any, list[str]]:
    pytest.importorskip("transformers")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        args = config.to_training_arguments("out", **changes)
    mine = [warning for warning in caught if warning.category is OverrideWarning]
    assert all(warning.filename == __file__ for warning in mine)
    return args, [str(warning.message) for warning in mine]


@pytest.mark.parametrize(
    ("batch", "steps", "effective"), [(4, 8, 32), (1, 32, 32), (32, 1, 32), (5, 6, 30), (64, 1, 64)]
)
def test_accumulation_follows_the_batch(batch: int, steps: int, effective: int) -> None:
    config = make_plan()
    (text,) = overridden(config, per_device_train_batch_size=batch)
    assert (config.gradient_accumulation_steps, config.effective_batch_size) == (steps, effective)
    assert f"per_device_train_batch_size = {batch} instead of 8: gradient_accumulation_steps = {steps} follows" in text
    assert ("a step keeps its 32 clips" in text) == (effective == 32)
    assert ("learning_rate = 4e-05 is for 32: sqrt scaling gives" in text) == (effective != 32)
    args, (text,) = by_arguments(make_plan(), per_device_train_batch_size=batch)
    assert args.gradient_accumulation_steps == steps
    assert f"gradient_accumulation_steps = {steps} follows" in text


def test_several_devices_share_the_step() -> None:
    config = make_plan(device_count=2, gradient_accumulation_steps=2)
    overridden(config, per_device_train_batch_size=4)
    assert (config.gradient_accumulation_steps, config.effective_batch_size) == (4, 32)


@pytest.mark.parametrize("order", [("batch", "steps"), ("steps", "batch")])
def test_both_count_where_both_are_set(order: tuple[str, str]) -> None:
    values = {"batch": ("per_device_train_batch_size", 2), "steps": ("gradient_accumulation_steps", 4)}
    changes = dict(values[name] for name in order)
    for config in (make_plan(), copy.deepcopy(make_plan()), pickle.loads(pickle.dumps(make_plan()))):
        messages = overridden(config, **changes)
        assert (config.per_device_train_batch_size, config.gradient_accumulation_steps) == (2, 4)
        assert (
            "a step has 8 clips instead of 32, and learning_rate = 4e-05 is for 32: sqrt scaling gives 2e-05"
            in messages[-1]
        )
    args, (text,) = by_arguments(make_plan(), **changes)
    assert (args.per_device_train_batch_size, args.gradient_accumulation_steps) == (2, 4)
    assert "a step has 8 clips instead of 32" in text


def test_the_learning_rate_is_named_only_where_it_is_the_plans() -> None:
    config = make_plan(lr_scaling="linear")
    assert "linear scaling gives 2e-05 for 16" in overridden(config, gradient_accumulation_steps=2)[0]
    for other in (make_plan(lr_scaling="none"), make_plan()):
        overridden(other, learning_rate=1e-4)
        assert "scaling gives" not in overridden(other, gradient_accumulation_steps=2)[0]


def test_one_kind_of_half_precision_turns_the_other_off() -> None:
    config = make_plan(bf16=True)
    (text,) = overridden(config, fp16=True)
    assert (config.fp16, config.bf16, config.precision) == (True, False, "fp16")
    assert "bf16 = False follows" in text


@pytest.mark.parametrize(("name", "value"), [("gradient_checkpointing", True), ("optimizer", "adafactor")])
def test_predictions_that_no_longer_hold_are_named(name: str, value: Any) -> None:
    (text,) = overridden(make_plan(), **{name: value})
    assert text.startswith(f"{name} = {value!r} instead of ")
    assert "predicted memory and times are those of the plan → plan again" in text
    assert overridden(make_plan(**{name: value}), **{name: value}) == [], "nothing has changed"
    passed = {"optim" if name == "optimizer" else name: value}
    _, (text,) = by_arguments(make_plan(), **passed)
    assert text.startswith(f"{name} = {value!r} instead of ")
    assert by_arguments(make_plan(**{name: value}), **passed)[1] == []


def test_nothing_is_said_of_what_no_prediction_rests_on(tmp_path: Path) -> None:
    config = make_plan()
    assert overridden(config, learning_rate=1e-4, num_train_epochs=2, seed=3, dataloader_num_workers=2) == []
    assert by_arguments(make_plan(), learning_rate=1e-4, save_steps=5, seed=3)[1] == []
    config.save(tmp_path / "plan.json")
    assert ac.TrainingConfig.load(tmp_path / "plan.json") == config


def test_arguments_are_those_for_a_trainer_without_the_guard() -> None:
    plan = {"micro_batching": "memory", "target_batch_size": 8, "unguarded": UNGUARDED}
    batch = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
    names = [*batch, "gradient_checkpointing"]

    def settings(source: Any) -> list[Any]:
        return [getattr(source, name) for name in names]

    config = make_plan(**plan, **batch)
    args, texts = by_arguments(config)
    assert settings(args) == settings(config.without_guard()) == [4, 2, True] and not texts
    assert settings(config) == [1, 8, False]
    args, _ = by_arguments(config, gradient_checkpointing=False)
    assert settings(args) == [1, 8, False], "four may not fit without checkpointing"
    args, (text,) = by_arguments(config, per_device_train_batch_size=2)
    assert settings(args) == [2, 4, True] and "instead of 4" in text
    assert ac.TrainingConfig.from_dict(config.to_dict()).unguarded == config.unguarded
    overridden(config, learning_rate=1e-5, bf16=config.bf16)
    assert config.unguarded is not None
    overridden(config, per_device_train_batch_size=2)
    args, _ = by_arguments(config)
    assert settings(args) == [2, 4, True] and settings(config) == [2, 4, False]
    overridden(config, optimizer="adafactor")
    args, _ = by_arguments(config)
    assert config.unguarded is None and settings(args) == [2, 4, False]
