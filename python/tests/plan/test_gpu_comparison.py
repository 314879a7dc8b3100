"""Comparing GPUs, through the library."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asrconfig_go as ac
from asrconfig_go.errors import CorruptFileError, InvalidArgumentError, NotFoundError, UnsupportedError
from asrconfig_go.plan import Comparison, gpu_prices
from asrconfig_go.plan.gpu_comparison import _given
from asrconfig_go.plan.plan_records import StepCalibration
from asrconfig_go.predict import ModelProfile
from html_checks import tags

XLSR = "facebook/wav2vec2-xls-r-300m"
TEN_HOURS: dict[str, Any] = {"hours": 10, "mean_s": 8, "max_s": 25}
WIDE = {"layers": 2, "attention_heads": 76, "ffn_dim": 19456}


@pytest.fixture(scope="module")
def compared() -> Comparison:
    """Whisper as large as its large model, in few layers, which are recorded sooner."""
    transformers = pytest.importorskip("transformers")
    width = {f"{part}_{name}": n for part in ("encoder", "decoder") for name, n in WIDE.items()}
    config = transformers.WhisperConfig(d_model=4864, **width)
    return ac.compare_gpus(config, gpus=["T4", "RTX 4090", "2xA100-40GB"], **TEN_HOURS)


def test_rows_are_in_the_order_asked_for(compared: Comparison) -> None:
    assert [row.name for row in compared.rows] == ["T4", "RTX 4090", "2 × A100-40GB SXM"]
    assert [row.fits for row in compared.rows] == [False, True, True]
    assert compared.fastest is compared.rows[2]
    assert compared.cheapest is not None and compared.cheapest.fits
    assert compared.model.name == "whisper" and compared.model.total_parameters > 1.5e9
    assert compared.longest_s == 25 and compared.clips == 4500


def test_what_does_not_fit_says_what_would(compared: Comparison) -> None:
    row = compared.rows[0]
    assert row.run_hours is None and row.cost_usd is None
    assert [way.fits for way in row.remedies] == [False, False, True, True]
    assert "LoRA" in row.remedies[2].what and "A10 instead" in row.remedies[3].what


def test_text(compared: Comparison) -> None:
    text = repr(compared)
    for part in (
        "whisper (WhisperForConditionalGeneration): 4500 clips, 10.00 h",
        "effective batch 32, 3 epochs",
        "! T4 (12.8 GiB of 15.0 GiB to use): does not fit",
        '✗ with optimizer="adamw_bnb_8bit" and offloaded gradient checkpointing: ',
        "→ LoRA of rank 32",
        "fastest: 2 × A100-40GB SXM",
        "cheapest: RTX 4090",
        " 8-bit",
        "RTX 4090 0.34 (RunPod, 2026-03, deploybase.ai",
        "were not checked against a source",
        "every clip takes as long as one of 30",
    ):
        assert part in " ".join(text.split()), part
    assert any(line.startswith("RTX 4090 ") for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 110


def test_html_is_whole_and_fits_light_and_dark(compared: Comparison) -> None:
    page = compared._repr_html_()
    tags(page)
    for word in ("cheapest", "fastest", "does not fit", "assumptions", "2 × A100-40GB SXM"):
        assert word in page
    assert "prefers-color-scheme:dark" in page
    assert "color:black" not in page and "background:white" not in page


def test_prices_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text('{"t4": 2.0}')
    rows = tmp_path / "rows.json"
    rows.write_text('[{"gpu": "T4", "usd_per_hour": 2.0, "date": "2026-11"}]')
    costs = []
    for prices in ({"T4": 2}, file, str(rows)):
        plan = ac.compare_gpus(XLSR, gpus=["T4"], prices=prices, trace=False, **TEN_HOURS).rows[0]
        assert plan.price is not None and plan.cost_usd is not None and plan.run_hours is not None
        assert (plan.price.usd_per_hour, plan.price.provider) == (2.0, "given")
        assert plan.cost_usd.likely == pytest.approx(2 * plan.run_hours.likely)
        costs.append(plan.cost_usd)
    assert costs[0] == costs[1] == costs[2]


def test_every_built_in_price_has_a_date_and_a_known_card() -> None:
    prices = gpu_prices()
    assert len(prices) > 10
    comparison = ac.compare_gpus("wav2vec2-base", gpus=[price.gpu for price in prices], trace=False, **TEN_HOURS)
    assert [row.price for row in comparison.rows] == list(prices)


def test_calibration_replaces_the_assumption() -> None:
    shape: dict[str, Any] = {"batch": 4, "seconds": 10, "accumulation": 8}
    guessed = ac.estimate_step_time(XLSR, "T4", **shape)
    assert guessed.calibration is None and guessed.precision == "fp16"
    likely = guessed.step_s.likely
    measured = ac.estimate_step_time(XLSR, "T4", measured_s=[1.9 * likely, 2.0 * likely, 2.1 * likely], **shape)
    assert measured.calibration is not None
    assert measured.calibration.factor == pytest.approx(2)
    assert measured.step_s.likely == pytest.approx(2 * likely)
    before = ac.compare_gpus(XLSR, gpus=["T4"], **TEN_HOURS).rows[0]
    after = ac.compare_gpus(XLSR, gpus=["T4"], calibrations={"t4": measured.calibration}, **TEN_HOURS).rows[0]
    assert before.run_parts is not None and after.run_parts is not None
    guess, calibrated = before.run_parts.training, after.run_parts.training
    assert calibrated.likely == pytest.approx(2 * guess.likely)
    assert calibrated.high / calibrated.low < guess.high / guess.low
    assert after.calibrated and "calibrated" in repr(ac.compare_gpus(
        XLSR, gpus=["T4"], calibrations={"t4": measured.calibration}, **TEN_HOURS
    ))  # fmt: skip


def test_a_whole_run() -> None:
    shape: dict[str, Any] = {"batch": 16, "seconds": 10, "accumulation": 2, "workers": 4, "loader_rate": 1000}
    run = ac.estimate_run_time(
        "whisper-small", "T4", steps=400, eval_steps=100, eval_samples=300, save_steps=200, **shape
    )
    parts = dataclasses.asdict(run.run_parts).values()
    assert sum(part["likely"] for part in parts) == pytest.approx(run.run_hours.likely)
    step = ac.estimate_step_time("whisper-small", "T4", batch=16, seconds=10, accumulation=2).step_s
    assert run.step_s == step
    alone = ac.estimate_run_time("whisper-small", "T4", steps=400, **shape)
    assert alone.run_parts.evaluation.high == 0 == alone.run_parts.checkpoints.high
    with pytest.raises(InvalidArgumentError, match="num_beams is 0"):
        ac.estimate_run_time("whisper-small", "T4", steps=1, num_beams=0, **shape)
    with pytest.raises(InvalidArgumentError, match="not finite"):
        ac.estimate_run_time("whisper-small", "T4", steps=1, max_eval_share=float("nan"), **shape)
    with pytest.raises(InvalidArgumentError, match="accumulation = -1"):
        ac.estimate_run_time("whisper-small", "T4", steps=1, **(shape | {"accumulation": -1}))


def test_comparisons_take_the_options_of_evaluations() -> None:
    rows = [ac.compare_gpus(XLSR, gpus=["T4"], **TEN_HOURS, eval_samples=n).rows[0].run_parts for n in (0, 200)]
    assert rows[0] is not None and rows[1] is not None
    assert rows[0].evaluation.likely == 0 < rows[1].evaluation.likely
    with pytest.raises(InvalidArgumentError, match="eval_samples is -1"):
        ac.compare_gpus(XLSR, gpus=["T4"], **TEN_HOURS, eval_samples=-1)


def test_largest_models() -> None:
    models = ac.largest_models("T4", "whisper", seconds=30)
    full, lora = models.largest(), models.largest("lora")
    assert full is not None and lora is not None
    assert full.parameters < lora.parameters
    assert full.full.fits and full.full.peak_bytes <= models.budget_bytes < lora.full.peak_bytes
    text = repr(models)
    assert f"largest, fully: {full.name}" in text and f"largest, LoRA: {lora.name}" in text
    page = models._repr_html_()
    assert page.count("<tr>") == len(models.models) + 1
    fitting = sum(way.fits for model in models.models for way in (model.full, model.eight_bit, model.lora))
    assert page.count("✓") == fitting and page.count("✗") == 3 * len(models.models) - fitting
    assert json.dumps(models.to_dict())
    with pytest.raises(InvalidArgumentError, match="method = 'half'"):
        models.largest("half")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"gpus": ["T5"]}, NotFoundError, "no GPU"),
        ({"gpus": []}, InvalidArgumentError, "no GPU to compare"),
        ({"gpus": [4]}, InvalidArgumentError, "gpus = 4"),
        ({"prices": {"T4": -0.1}}, InvalidArgumentError, "the price of T4 is -0.1"),
        ({"prices": {"T4": math.nan}}, InvalidArgumentError, "the price of T4 = nan is not finite"),
        ({"prices": {"T4": True}}, InvalidArgumentError, "the price of T4 = True is not"),
        ({"prices": {"T5": 1}}, NotFoundError, "T5"),
        ({"prices": "no/such.json"}, NotFoundError, "cannot read the prices"),
        ({"hours": 0}, InvalidArgumentError, "hours = 0 is not above 0"),
        ({"hours": None}, InvalidArgumentError, "neither a dataset nor hours"),
        ({"mean_s": math.nan}, InvalidArgumentError, "mean_s"),
        ({"max_s": 1}, InvalidArgumentError, "at most 1"),
        ({"epochs": 0}, InvalidArgumentError, "epochs = 0"),
        ({"target_batch_size": 0}, InvalidArgumentError, "target_batch_size = 0"),
        ({"target_batch_size": 1.5}, InvalidArgumentError, "target_batch_size = 1.5"),
        ({"speed": 9}, InvalidArgumentError, "takes no 'speed'"),
        ({"loader_rate": math.inf}, InvalidArgumentError, "loader_rate"),
    ],
)
def test_wrong_values_get_one_clear_error(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ac.compare_gpus(XLSR, **{"gpus": ["T4"], **TEN_HOURS, **change})


def test_unreadable_prices(tmp_path: Path) -> None:
    none, cut = (InvalidArgumentError, "are not prices"), (CorruptFileError, "ends in the middle")
    for content, (kind, message) in {"[1]": none, "7": none, "{": cut, '[{"gpu": "T4"}]': none}.items():
        file = tmp_path / "prices.json"
        file.write_text(content)
        with pytest.raises(kind, match=message):
            ac.compare_gpus(XLSR, gpus=["T4"], prices=file, **TEN_HOURS)


def test_a_model_without_a_recording_is_to_be_traced() -> None:
    with pytest.raises(UnsupportedError, match="no recording of speech_to_text with these settings") as caught:
        ac.compare_gpus({"model_type": "speech_to_text"}, gpus=["T4"], trace=False, **TEN_HOURS)
    assert "leave trace=False out" in caught.value.hint
    for trace in (False, None, True):
        with pytest.raises(UnsupportedError, match="has only its counts"):
            ac.compare_gpus(ModelProfile(total_parameters=10**8), gpus=["T4"], trace=trace, **TEN_HOURS)


def test_options_say_the_library_nothing_for_none() -> None:
    given = _given({"precision": None, "epochs": 2, "calibrations": {"T4": StepCalibration(1, 0.9, 1.1, 3)}})
    assert "precision" not in given and given["num_train_epochs"] == 2.0
    assert given["calibrations"]["T4"].steps == 3
    with pytest.raises(InvalidArgumentError, match=r"calibrations\['T4'\]"):
        _given({"calibrations": {"T4": 1.0}})  # type: ignore[dict-item]


def clips(tmp_path: Path) -> Path:
    import wave

    for i, length in enumerate((1.0, 2.0, 3.0, 4.0)):
        with wave.open(str(tmp_path / f"{i}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes(bytes(int(32000 * length)))
    return tmp_path


def test_what_if_uses_the_profiles_and_the_plan(tmp_path: Path) -> None:
    config, manager = ac.create_optimal_config(
        clips(tmp_path), "openai/whisper-small", gpu="T4", target_batch_size=16, num_train_epochs=5, verbose=False
    )
    comparison = manager.what_if(["T4", "L4"], prices={"T4": 0.5})
    assert (comparison.target_batch_size, comparison.epochs, comparison.clips) == (16, 5.0, 4)
    assert comparison.longest_s == pytest.approx(4.0)
    assert [row.effective_batch_size for row in comparison.rows] == [16, 16]
    assert manager.what_if(gpus=["T4"], target_batch_size=8).rows[0].effective_batch_size == 8
    assert config.target_batch_size == 16


@pytest.mark.parametrize("gpu", ["T4", "2xT4", "A100-40GB"])
def test_a_row_is_the_plan(gpu: str) -> None:
    manager = ac.ASRConfigManager(gpu=gpu)
    manager.profile_model(XLSR)
    manager.profile_dataset([np.zeros(1600 * n, np.float32) for n in range(10, 210)], progress=False)
    config = manager.plan(ac.PlanOptions(), trace=False)
    (row,) = manager.what_if([gpu]).rows
    assert config.times is not None and row.parts == config.times.parts and row.epoch_hours == config.times.epoch_hours
    assert (row.per_device_train_batch_size, row.gradient_accumulation_steps, row.gradient_checkpointing) == (
        config.per_device_train_batch_size, config.gradient_accumulation_steps, config.gradient_checkpointing,
    )  # fmt: skip
    assert (row.peak_bytes, row.micro_batching) == (config.predicted_bytes, config.micro_batching)


def test_what_if_before_there_is_anything() -> None:
    manager = ac.ASRConfigManager(gpu="T4")
    with pytest.raises(InvalidArgumentError, match="nothing to compare yet"):
        manager.what_if(["T4"])
