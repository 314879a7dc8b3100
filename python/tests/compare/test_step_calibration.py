"""The time model calibrated by steps that were measured here, and what uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import asrconfig_go as ac  # noqa: E402
from asrconfig_go._base import native  # noqa: E402
from asrconfig_go.compare import find_step_calibration, step_calibration  # noqa: E402
from asrconfig_go.compare.step_calibration import (  # noqa: E402
    MeasuredStep,
    StepSettings,
    calibrate_steps,
    store_step_calibration,
)
from asrconfig_go.errors import InvalidArgumentError, NotFoundError  # noqa: E402

XLSR = "facebook/wav2vec2-xls-r-300m"
HOW = StepSettings("fp16", True)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def measured(factor: float, how: StepSettings = HOW, gpu: str = "T4") -> Any:
    one = ac.estimate_step_time(
        XLSR, gpu, batch=4, seconds=10, precision=how.precision, gradient_checkpointing=how.gradient_checkpointing
    )
    record = calibrate_steps(XLSR, gpu, how, [MeasuredStep(((4, 10.0),), factor * one.step_s.likely)] * 12)
    assert store_step_calibration(ac.profile_model(XLSR), record)
    return record


def test_comparisons_use_what_was_measured_here() -> None:
    asked: dict[str, Any] = {"gpus": ["T4", "L4"], "hours": 10, "mean_s": 8, "max_s": 20}
    before = ac.compare_gpus(XLSR, **asked)
    assert [row.calibrated for row in before.rows] == [False, False]
    record = measured(2.0)
    assert record.gpu == "Tesla T4" and record.factor == pytest.approx(2.0)
    after = ac.compare_gpus(XLSR, **asked)
    assert [row.calibrated for row in after.rows] == [True, False]
    slow, usual = after.rows[0].step_s, before.rows[0].step_s
    assert slow is not None and usual is not None and slow.likely == pytest.approx(2 * usual.likely)
    assert not ac.compare_gpus(XLSR, calibrations={}, **asked).rows[0].calibrated
    assert not ac.compare_gpus(XLSR, precision="fp32", **asked).rows[0].calibrated
    assert not ac.compare_gpus(XLSR, lora_rank=8, **asked).rows[0].calibrated
    assert not ac.compare_gpus(XLSR, freeze_feature_encoder=True, **asked).rows[0].calibrated


def test_what_if_uses_it_too() -> None:
    measured(2.0)
    manager = ac.ASRConfigManager(gpu="T4")
    manager.profile_model(XLSR)
    manager.dataset = ac.scan_audio([torch.zeros(16_000 * n).numpy() for n in (2, 5, 9)], progress=False).profile
    assert manager.what_if(["T4"]).rows[0].calibrated


def test_the_newest_of_equal_settings_is_kept() -> None:
    measured(2.0)
    measured(3.0)
    measured(1.5, StepSettings("fp16", False))
    newest = find_step_calibration(XLSR, "T4")
    assert newest is not None and newest.factor == pytest.approx(1.5)
    with_recomputing = find_step_calibration(XLSR, "T4", gradient_checkpointing=True)
    assert with_recomputing is not None and with_recomputing.factor == pytest.approx(3.0)


def test_vocabularies_do_not_tell_models_apart() -> None:
    transformers = pytest.importorskip("transformers")
    measured(2.0)
    known = native.call("model.config", {"name": XLSR})["config"]
    config = transformers.Wav2Vec2Config(**{**known, "vocab_size": 77})
    assert find_step_calibration(config, "T4") is not None


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"gpu": "T4"}]', "not JSON"])
def test_broken_files_are_nothing(own_cache: Path, content: str) -> None:
    measured(2.0)
    (file,) = (own_cache / "calibrations").iterdir()
    file.write_text(content)
    assert find_step_calibration(XLSR, "T4") is None
    measured(3.0)
    assert find_step_calibration(XLSR, "T4") is not None


def test_another_torch_measures_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(2.0)
    monkeypatch.setattr(step_calibration, "torch_version", lambda: "9.9")
    assert find_step_calibration(XLSR, "T4") is None


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path / "file"))
    with pytest.raises(AssertionError):
        measured(2.0)
    assert find_step_calibration(XLSR, "T4") is None


def test_wrong_questions() -> None:
    with pytest.raises(NotFoundError, match="T5"):
        find_step_calibration(XLSR, "T5")
    with pytest.raises(NotFoundError):
        find_step_calibration("no-such-model", "T4")
    with pytest.raises(InvalidArgumentError):
        find_step_calibration(XLSR, 4)  # type: ignore[arg-type]
