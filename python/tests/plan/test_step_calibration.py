"""The time model calibrated by steps that were measured here, and what uses it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import asrconfig_go as ac
from asrconfig_go._core import native
from asrconfig_go.errors import InvalidArgumentError, NotFoundError
from asrconfig_go.plan import find_step_calibration
from asrconfig_go.plan.step_calibrations import MeasuredStep, calibrate_steps, store_step_calibration
from asrconfig_go.predict.memory_settings import MemorySettings

pytestmark = pytest.mark.usefixtures("fresh_cache")

MODEL = "tiny-wav2vec2"
HOW = MemorySettings("fp16", True)


@functools.cache
def estimated(model: str, settings: MemorySettings) -> float:
    """Seconds of a step on a T4."""
    one = ac.estimate_step_time(
        model, "T4", batch=4, seconds=10, precision=settings.precision,
        gradient_checkpointing=bool(settings.gradient_checkpointing),
    )  # fmt: skip
    return one.step_s.likely


def measured(factor: float, settings: MemorySettings = HOW, model: str = MODEL) -> Any:
    step = MeasuredStep(((4, 10.0),), factor * estimated(model, settings))
    record = calibrate_steps(model, "T4", settings, [step] * 12)
    assert store_step_calibration(ac.profile_model(model), record)
    return record


@pytest.mark.slow
def test_comparisons_use_what_was_measured_here() -> None:
    options: dict[str, Any] = {"gpus": ["T4", "L4"], "hours": 10, "mean_s": 8, "max_s": 20}
    before = ac.compare_gpus(MODEL, **options)
    assert [row.calibrated for row in before.rows] == [False, False]
    record = measured(2.0)
    assert record.gpu == "Tesla T4" and record.factor == pytest.approx(2.0)
    after = ac.compare_gpus(MODEL, **options)
    assert [row.calibrated for row in after.rows] == [True, False]
    slow, usual = after.rows[0].step_s, before.rows[0].step_s
    assert slow is not None and usual is not None and slow.likely == pytest.approx(2 * usual.likely)
    assert not ac.compare_gpus(MODEL, calibrations={}, **options).rows[0].calibrated
    assert not ac.compare_gpus(MODEL, precision="fp32", **options).rows[0].calibrated
    for other in ({"lora_rank": 8}, {"freeze_feature_encoder": True}):
        assert not ac.compare_gpus(MODEL, **{**options, "gpus": ["T4"], **other}).rows[0].calibrated


def test_the_newest_of_equal_settings_is_kept() -> None:
    measured(2.0)
    measured(3.0)
    measured(1.5, MemorySettings("fp16", False))
    newest = find_step_calibration(MODEL, "T4")
    assert newest is not None and newest.factor == pytest.approx(1.5)
    with_recomputing = find_step_calibration(MODEL, "T4", gradient_checkpointing=True)
    assert with_recomputing is not None and with_recomputing.factor == pytest.approx(3.0)


def test_vocabularies_do_not_tell_models_apart() -> None:
    transformers = pytest.importorskip("transformers")
    measured(2.0, model="facebook/wav2vec2-base")
    values = native.call("model.config", {"name": "facebook/wav2vec2-base"})["config"]
    config = transformers.Wav2Vec2Config(**{**values, "vocab_size": 77})
    assert find_step_calibration(config, "T4") is not None


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"gpu": "T4"}]', "not JSON"])
def test_broken_files_are_nothing(fresh_cache: Path, content: str) -> None:
    measured(2.0)
    (file,) = (fresh_cache / "calibrations").iterdir()
    file.write_text(content)
    assert find_step_calibration(MODEL, "T4") is None
    measured(3.0)
    assert find_step_calibration(MODEL, "T4") is not None


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path / "file"))
    with pytest.raises(AssertionError):
        measured(2.0)
    assert find_step_calibration(MODEL, "T4") is None


def test_wrong_questions() -> None:
    with pytest.raises(NotFoundError, match="T5"):
        find_step_calibration(MODEL, "T5")
    with pytest.raises(NotFoundError):
        find_step_calibration("no-such-model", "T4")
    with pytest.raises(InvalidArgumentError):
        find_step_calibration(MODEL, 4)  # type: ignore[arg-type]
