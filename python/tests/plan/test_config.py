"""The configuration: overrides, saving, loading, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.errors import (
    AsrConfigError,
    CorruptFileError,
    InvalidArgumentError,
    NotFoundError,
    VersionMismatchError,
)


def test_an_override_changes_its_field_and_what_follows_it(plan: ac.TrainingConfig) -> None:
    before = plan.to_dict()
    plan.per_device_train_batch_size = 2
    plan.learning_rate = 1
    assert (plan.gradient_accumulation_steps, plan.effective_batch_size) == (16, 32)
    assert plan.learning_rate == 1.0
    assert isinstance(plan.learning_rate, float)
    changed = {name for name, value in plan.to_dict().items() if value != before[name]}
    assert changed == {"per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("per_device_train_batch_size", 0, "between 1 and 65536"),
        ("per_device_train_batch_size", 2.5, "not a whole number"),
        ("per_device_train_batch_size", True, "not a whole number"),
        ("per_device_train_batch_size", "8", "not a whole number"),
        ("fp16", 1, "not True or False"),
        ("learning_rate", float("nan"), "not finite"),
        ("learning_rate", float("inf"), "not finite"),
        ("learning_rate", -1.0, "between"),
        ("safety_margin", 0.99, "between 0.7 and 0.95"),
        ("preset", "fast", "one of 'balanced', 'speed', 'reproducible'"),
        ("dataloader_prefetch_factor", 0, "between 1 and 256"),
        ("batch_size", 8, "no setting 'batch_size'"),
        ("per_device_batch_size", 8, "'per_device_eval_batch_size' or 'per_device_train_batch_size'"),
        ("optimizer", "nonsense", "is not one of 'adafactor'"),
        ("per_device_train_batchsize", 8, "did you mean 'per_device_train_batch_size'"),
    ],
)
def test_wrong_override_is_refused(plan: ac.TrainingConfig, name: str, value: Any, message: str) -> None:
    before = plan.to_dict()
    with pytest.raises(InvalidArgumentError, match=message):
        setattr(plan, name, value)
    assert plan.to_dict() == before


def test_optional_fields_take_none(plan: ac.TrainingConfig) -> None:
    plan.chunk_length_s = None
    plan.dataloader_prefetch_factor = None
    with pytest.raises(InvalidArgumentError):
        plan.seed = None  # type: ignore[assignment]


def test_saved_and_loaded_is_equal(plan: ac.TrainingConfig, tmp_path: Path) -> None:
    plan.num_train_epochs = 2.5
    manager = ac.ASRConfigManager(gpu="T4")
    manager.save_config(plan, tmp_path / "config.json")
    assert manager.load_config(tmp_path / "config.json") == plan
    assert manager.explain().config == plan
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def edited(plan: ac.TrainingConfig, **changes: Any) -> str:
    return json.dumps({**plan.to_dict(), **changes})


def test_what_load_refuses(plan: ac.TrainingConfig, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    cases: list[tuple[str, type[AsrConfigError], str]] = [
        (edited(plan, schema_version=3), VersionMismatchError, "pip install -U"),
        (edited(plan, learning_rat=1), InvalidArgumentError, "did you mean 'learning_rate'"),
        (edited(plan, learning_rate="fast"), InvalidArgumentError, "learning_rate = 'fast'"),
        (edited(plan, decisions=[{"x": 1}]), AsrConfigError, "Decision"),
        ('{"schema_version": 1}', InvalidArgumentError, "lacks policy"),
        ("[]", CorruptFileError, "holds no configuration"),
        ("{", CorruptFileError, "ends in the middle"),
        ("\x00\xff}", CorruptFileError, "is not JSON"),
        ("[" * 100_000 + "]", CorruptFileError, "nests too deeply"),
    ]
    for text, kind, message in cases:
        path.write_text(text)
        with pytest.raises(kind, match=message):
            ac.TrainingConfig.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CorruptFileError, match="not UTF-8"):
        ac.TrainingConfig.load(path)
    with pytest.raises(NotFoundError, match="missing"):
        ac.TrainingConfig.load(tmp_path / "missing.json")
    with pytest.raises(NotFoundError, match=r"cannot write [^[]*: No such file or directory"):
        plan.save(tmp_path / "missing" / "config.json")


def test_a_long_warning_is_marked_once_and_indented(plan: ac.TrainingConfig) -> None:
    plan.warnings = ("first " * 30, "second")
    lines = [line for line in repr(plan).splitlines() if "first" in line or "second" in line]
    assert [line[:2] for line in lines] == ["! ", "  ", "  ", "! "]
