"""Plans that ask for traces, and what they are told of the machine and the data."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.audio import LoaderNotMeasuredWarning
from asrconfig_go.errors import AsrConfigError, UnsupportedError
from asrconfig_go.plan import planner
from asrconfig_go.plan.plan_options import PlanOptions
from asrconfig_go.plan.plan_records import StepCalibration
from asrconfig_go.plan.planner import NotTracedWarning, Tracer
from asrconfig_go.plan.traced_answers import Wanted
from asrconfig_go.predict import MemoryModel

XLSR = "facebook/wav2vec2-xls-r-300m"
SECONDS = array("d", [1 + 19 * (i * 0.618 % 1) ** 2 for i in range(2000)])


class Clips:
    """Durations without audio, as a scan of arrays of so many samples at 1000 Hz sees them."""

    def __new__(cls) -> Any:
        return [[0.0] * int(1000 * s) for s in SECONDS[:200]]


def manager_for(model: Any = XLSR, gpu: str = "T4") -> ac.ASRConfigManager:
    manager = ac.ASRConfigManager(gpu=gpu)
    manager.profile_model(model)
    manager.profile_dataset(Clips(), sampling_rate=1000)
    return manager


def reason(config: ac.TrainingConfig, setting: str) -> str:
    return next(d.reason for d in config.decisions if d.setting == setting)


def test_a_plan_without_torch_rests_on_the_recordings_of_the_package() -> None:
    config = manager_for().plan(trace=False)
    assert config.policy == "fastest"
    assert "by a traced step" in reason(config, "predicted_bytes")
    assert config.predicted_bytes <= config.budget_bytes
    assert config.predicted_bytes == sum(part.bytes for part in config.memory_parts)
    assert config.effective_batch_size == 32
    assert config.times is not None and config.times.cost_usd is not None, "the T4 has a price"
    assert config.alternatives[0].name == "published"


def test_a_step_of_the_planned_micro_batches_fits() -> None:
    manager = ac.ASRConfigManager(gpu="H100")
    manager.profile_model(XLSR)
    manager.profile_dataset([[0.0] * 10 * n for n in range(10, 251)], sampling_rate=100)
    config = manager.plan(trace=False)
    assert config.micro_batch_size > config.per_device_train_batch_size, "more than divides the step"
    assert config.predicted_bytes <= config.budget_bytes


def test_clips_that_are_padded_to_30_s_take_as_long_whatever_they_last() -> None:
    def step(seconds: float) -> float:
        manager = ac.ASRConfigManager(gpu="T4")
        manager.profile_model("openai/whisper-tiny")
        manager.profile_dataset([[0.0] * int(1000 * seconds)] * 64, sampling_rate=1000)
        times = manager.plan().times
        assert times is not None
        return times.parts.compute.likely

    assert step(1.0) < step(30.0) < 1.5 * step(1.0), "only texts are longer"


def test_the_chosen_way_is_traced_and_believed() -> None:
    torch = pytest.importorskip("torch")
    from speech_models import wav2vec2

    with torch.device("cpu"):
        model = wav2vec2("mean")
    config = manager_for(model).plan(PlanOptions(target_batch_size=8))
    assert "by a traced step" in reason(config, "predicted_bytes")
    assert "traced evaluation" in reason(config, "per_device_eval_batch_size")
    assert config.predicted_high_bytes is not None
    assert config.predicted_high_bytes >= config.model_memory_bytes


class FakeTracer(Tracer):
    """Answers how many clips of any length fit, and what was asked for."""

    def __init__(self, fits: dict[bool, int]) -> None:
        super().__init__("wav2vec2-base")
        self.fits, self.asked = fits, list[dict[str, Any]]()

    def trace(self, wanted: Wanted, durations: Any, gpu: str | None) -> dict[str, Any]:
        settings, budget_bytes = wanted.settings, wanted.budget_bytes
        self.asked.append(settings)
        assert wanted.share == 32 and max(durations) == pytest.approx(max(SECONDS[:200]), abs=0.01)
        fits = self.fits[wanted.gradient_checkpointing]
        return {
            **settings,
            "budget_bytes": budget_bytes,
            "memory": [{"seconds": max(durations), "batch": fits}],
            "peaks": [{"batch": max(1, fits), "bytes": budget_bytes, "parts": []}],
            "eval_batch": None,
            "high_bytes": None,
        }


@pytest.mark.parametrize(("fits", "traces"), [({False: 4, True: 9}, 1), ({False: 0, True: 9}, 2)])
def test_ways_are_traced_until_the_plan_stays_with_one(
    fits: dict[bool, int], traces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = FakeTracer(fits)
    monkeypatch.setattr(planner, "tracer_for", lambda *_, **__: tracer)
    config = manager_for(gpu="L4").plan()
    assert len(tracer.asked) == traces
    assert config.gradient_checkpointing is (traces == 2)
    assert all(getattr(config, name) == value for name, value in tracer.asked[-1].items())


def test_a_trace_that_fails_is_said_and_the_plan_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise UnsupportedError("no kernel for that", "none")

    monkeypatch.setattr(MemoryModel, "trace", fail)
    with pytest.warns(NotTracedWarning, match="no kernel for that"):
        config = manager_for().plan(trace=True)
    assert config.policy == "published"
    assert "no kernel for that" in config.warnings[0]


def test_durations_are_kept_when_all_are_known() -> None:
    manager = ac.ASRConfigManager(gpu="T4")
    manager.profile_dataset(Clips(), sampling_rate=1000)
    assert len(manager.durations) == 200
    profile = manager.profile_dataset(Clips(), sample_size=20, sampling_rate=1000)
    assert len(manager.durations) == 0, "a sample stands for the whole"
    manager.profile_dataset(profile)
    manager.profile_model(XLSR)
    assert manager.plan(trace=False).policy == "fastest", "by the histogram"


def test_options_reach_the_planner() -> None:
    manager = manager_for(gpu="A100-40GB")
    options = PlanOptions(
        precision="bf16", gradient_checkpointing=True, length_handling="bucketed", max_length_s=10.0, price_usd_hour=3.0
    )
    config = manager.plan(options, trace=False)
    assert (config.precision, config.gradient_checkpointing, config.length_handling) == ("bf16", True, "bucketed")
    assert config.max_length_s == 10.0
    assert config.times is not None and config.times.cost_usd is not None
    assert config.times.cost_usd.likely == pytest.approx(3 * config.times.run_hours.likely)
    for wrong in ({"precision": "fp8"}, {"length_handling": "sorted"}, {"max_length_s": -1.0}, {"max_length_s": 0.1}):
        with pytest.raises(AsrConfigError):
            manager.plan(PlanOptions(**wrong), trace=False)


def test_the_loader_is_measured_on_the_files(make_wav: Any, tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    for i in range(4):
        make_wav(f"{i}.wav", 1.0 + i)
    config, manager = ac.create_optimal_config(tmp_path, XLSR, gpu="T4", trace=False, verbose=False)
    assert manager.loader is not None and manager.loader.rate > 0
    assert config.dataloader_num_workers >= 0
    assert manager.plan(PlanOptions(policy="published")).policy == "published", "which takes no rate"


def test_a_loader_that_cannot_be_measured_is_said(tmp_path: Path) -> None:
    manager = manager_for()
    with pytest.warns(LoaderNotMeasuredWarning):
        assert manager.measure_loader(iter([])) is None


def test_steps_that_were_measured_replace_the_assumed_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manager_for()
    assumed = manager.plan(trace=False)
    measured = StepCalibration(factor=2.0, low=1.9, high=2.1, steps=30)
    monkeypatch.setattr(planner, "known_calibrations", lambda *_: {"Tesla T4": measured})
    config = manager.plan(trace=False)
    assert config.times is not None and assumed.times is not None
    assert config.times.calibrated and not assumed.times.calibrated
    assert config.times.run_hours.likely == pytest.approx(2 * assumed.times.run_hours.likely, rel=0.2)


def test_a_stream_is_planned_in_windows() -> None:
    class Stream:
        column_names = ("audio",)

        def __iter__(self) -> Any:
            return ({"audio": {"array": clip, "sampling_rate": 1000}} for clip in Clips())

    from asrconfig_go.data.source import open_source

    def is_stream(dataset: Any) -> bool:
        return open_source(dataset).is_stream

    assert is_stream(Stream()) and is_stream({"train": Stream()})
    assert is_stream("hf://datasets/a/b/*.parquet") and is_stream(["https://a/b.tar"])
    assert not any(map(is_stream, (Clips(), "clips/", Path("clips"), {"train": Clips()}, None, [], ["a.tar"])))
    manager = manager_for()
    manager._streamed = True
    config = manager.plan(trace=False)
    assert (config.streaming, config.length_handling, config.micro_batching) == (True, "random", "memory")
    assert config.max_length_s is not None
    assert any("max_steps" in warning for warning in config.warnings)
