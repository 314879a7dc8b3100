"""Times of a Trainer's own first steps, and the calibration of the time model by them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import asrconfig_go as ac  # noqa: E402
from asrconfig_go._base import native  # noqa: E402
from asrconfig_go._base.timers import GPUMoments  # noqa: E402
from asrconfig_go.compare import find_step_calibration, step_calibration  # noqa: E402
from asrconfig_go.compare.step_calibration import (  # noqa: E402
    MeasuredStep,
    StepSettings,
    calibrate_steps,
    store_step_calibration,
)
from asrconfig_go.errors import InvalidArgumentError, NotFoundError  # noqa: E402
from asrconfig_go.guard import step_times  # noqa: E402
from asrconfig_go.memory.model_source import analytic_request  # noqa: E402
from asrconfig_go.monitor.step_times import ENOUGH, NOTED, SKIPPED, StepTimes, follow_steps  # noqa: E402
from speech_models import wav2vec2  # noqa: E402
from uneven_clips import Run  # noqa: E402

XLSR = "facebook/wav2vec2-xls-r-300m"
HOW = StepSettings("fp16", True)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Clock:
    """Tells the time that a test has let pass."""

    def __init__(self) -> None:
        self.now, self.waited, self.marks = 0.0, 0, 0

    def mark(self) -> float:
        self.marks += 1
        return self.now

    def between(self, begin: float, end: float) -> float:
        return end - begin

    def wait(self, end: float) -> None:
        self.waited += 1


class Training:
    """The events of a Trainer around the steps of a small speech model on a T4."""

    def __init__(self, gpu: str = "T4", **settings: Any) -> None:
        self.clock, self.model = Clock(), wav2vec2("mean").train()
        self.times = StepTimes(self.clock, lambda: gpu)
        usual = {"bf16": False, "fp16": True, "gradient_checkpointing": False, "optim": "adamw_torch_fused", "n_gpu": 1,
                 "gradient_accumulation_steps": 1}  # fmt: skip
        self.args = SimpleNamespace(**{**usual, "world_size": 1, **settings})
        self.state = SimpleNamespace(is_world_process_zero=True)

    def begin(self) -> Training:
        self.times.on_train_begin(self.args, self.state, None, model=self.model)
        return self

    def steps(self, count: int, seconds: Any, shapes: Any = ((2, 8000),)) -> Training:
        for number in range(count):
            self.clock.now += 100.0  # the loader, an evaluation
            self.times.on_step_begin(self.args, self.state, None)
            for clips, length in shapes:
                for hook in list(self.model._forward_pre_hooks.values()):
                    hook(self.model, (), {"input_values": torch.zeros(clips, length)})
            self.clock.now += seconds(number) if callable(seconds) else seconds
            self.times.on_step_end(self.args, self.state, None)
        return self

    def end(self) -> StepTimes:
        self.times.on_train_end(self.args, self.state, None)
        return self.times


def estimated(model: Any, clips: int, seconds: float, accumulation: int = 1) -> float:
    step = ac.estimate_step_time(
        model, "T4", batch=clips, seconds=seconds, precision="fp16", accumulation=accumulation, attention="sdpa"
    )
    return step.step_s.likely


def test_steps_are_held_against_the_estimate_of_what_they_computed() -> None:
    training = Training().begin()
    likely = estimated(training.model, 2, 1.5, 2)
    training.steps(SKIPPED, 999.0).steps(NOTED, 3 * likely, shapes=((2, 24_000), (2, 24_000)))
    times = training.times
    assert times.record is not None and times.problem == ""
    assert times.record.factor == pytest.approx(3.0)
    assert (times.record.steps, times.record.padded_s) == (NOTED, NOTED * 2 * 2 * 1.5)
    assert times.steps[0] == MeasuredStep(((2, 1.5), (2, 1.5)), pytest.approx(3 * likely))  # type: ignore[arg-type]
    assert training.clock.waited == 1, "the GPU is waited for once"
    assert not training.model._forward_pre_hooks, "and nothing is noted any more"
    marks = training.clock.marks
    training.steps(20, 1.0)
    assert training.clock.marks == marks

    found = find_step_calibration(training.model, "Tesla T4")
    assert found is not None and found == times.record.calibration
    assert find_step_calibration(training.model, "T4", precision="fp16", gradient_checkpointing=False) == found
    for other in ({"precision": "bf16"}, {"gradient_checkpointing": True}, {"lora_rank": 8}):
        assert find_step_calibration(training.model, "T4", **other) is None
    assert find_step_calibration(training.model, "L4") is None
    assert find_step_calibration(XLSR, "T4") is None
    assert json.loads(json.dumps(dataclasses.asdict(found)))["factor"] == pytest.approx(3.0)


def test_the_queue_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are recorded and read later: nothing waits but for the last one."""
    did: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            did.append("record")

        def synchronize(self) -> None:
            did.append("wait")

        def elapsed_time(self, end: Any) -> float:
            return 250.0  # milliseconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    training = Training("T4").begin()
    training.times._clock = GPUMoments()
    times = training.steps(SKIPPED + NOTED, 1.0).times
    assert did == ["record"] * 2 * NOTED + ["wait"]
    assert {step.seconds for step in times.steps} == {0.25}


def test_steps_that_differ_make_the_range() -> None:
    training = Training().begin()
    likely = estimated(training.model, 2, 0.5)
    times = training.steps(SKIPPED, 1.0).steps(20, lambda n: likely * (50.0 if n == 7 else 1.9 + 0.01 * n)).end()
    assert times.record is not None
    assert times.record.factor == pytest.approx(2.0, rel=0.01), "one outlier does not matter"
    assert times.record.low < 1.95 and 2.05 < times.record.high < 2.5


def test_few_steps_say_nothing() -> None:
    times = Training().begin().steps(SKIPPED + ENOUGH - 1, 1.0).end()
    assert times.record is None and times.steps == ()
    assert find_step_calibration(wav2vec2("mean"), "T4") is None


def test_evaluation_is_not_a_micro_batch() -> None:
    training = Training().begin().steps(SKIPPED, 1.0)
    training.model.eval()
    training.steps(20, 1.0)
    assert training.end().steps == ()


@pytest.mark.parametrize(
    ("gpu", "settings", "said"),
    [
        ("", {}, "no rates for CPUs"),
        ("T5", {}, "no GPU"),
        ("T4", {"torch_compile": True}, "compiled"),
        ("T4", {"n_gpu": 2}, "several GPUs"),
        ("T4", {"deepspeed": {"stage": 2}}, "sharded"),
    ],
)
def test_what_is_not_calibrated_is_told(gpu: str, settings: dict[str, Any], said: str) -> None:
    times = Training(gpu, **settings).begin().steps(SKIPPED + NOTED, 1.0).end()
    assert times.record is None and said in times.problem
    assert find_step_calibration(wav2vec2("mean"), "T4") is None


def test_beyond_belief_is_not_kept() -> None:
    training = Training().begin()
    times = training.steps(SKIPPED + NOTED, 1e6).end()
    assert times.record is not None and "was not kept" in times.problem
    assert find_step_calibration(training.model, "T4") is None


def test_other_processes_note_nothing() -> None:
    training = Training()
    training.state.is_world_process_zero = False
    assert training.begin().steps(SKIPPED + NOTED, 1.0).clock.marks == 0


def test_a_model_of_ones_own_is_told() -> None:
    training = Training()
    training.model = torch.nn.Linear(2, 2)
    times = training.begin().steps(SKIPPED + NOTED, 1.0).end()
    assert len(times.steps) == NOTED and times.record is None and times.problem


def measured(factor: float, how: StepSettings = HOW, gpu: str = "T4") -> Any:
    described = analytic_request(XLSR)
    one = ac.estimate_step_time(
        XLSR, gpu, batch=4, seconds=10, precision=how.precision, gradient_checkpointing=how.gradient_checkpointing
    )
    record = calibrate_steps(described, gpu, how, [MeasuredStep(((4, 10.0),), factor * one.step_s.likely)] * 12)
    assert store_step_calibration(described, record)
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


def test_a_real_training_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the guard; then as if the CPU were a T4."""
    settings = {"num_train_epochs": 6}
    run = Run(tmp_path / "cpu", settings=settings)
    (times,) = (each for each in run.trainer.callback_handler.callbacks if isinstance(each, StepTimes))
    run.guard.detach()
    assert not any(isinstance(each, StepTimes) for each in run.trainer.callback_handler.callbacks)
    run.guard.attach()
    (times,) = (each for each in run.trainer.callback_handler.callbacks if isinstance(each, StepTimes))
    run.train()
    assert times.problem == "the time model has no rates for CPUs" and times.record is None
    assert len(times.steps) == 18 - SKIPPED and all(step.seconds > 0 for step in times.steps)
    shapes = run.appetite.shapes
    per_step = len(times.steps[0].micro_batches)
    assert {clips for step in times.steps for clips, _ in step.micro_batches} <= {clips for clips, _ in shapes}
    assert per_step == 1 and times.steps[0].micro_batches[0][0] == 8

    cut = Run(tmp_path / "cut", micro_batch=3, settings={"num_train_epochs": 6})
    cut.train()
    (times,) = (each for each in cut.trainer.callback_handler.callbacks if isinstance(each, StepTimes))
    assert [clips for clips, _ in times.steps[3].micro_batches] == [3, 3, 2]

    monkeypatch.setattr(step_times, "_gpu_name", lambda: "Tesla T4")
    again = Run(tmp_path / "as a T4", settings={"num_train_epochs": 6})
    again.train()
    (times,) = (each for each in again.trainer.callback_handler.callbacks if isinstance(each, StepTimes))
    assert times.record is not None and times.record.factor > 0
    assert times.record.precision == "fp32" and times.record.gpu == "Tesla T4"


def test_the_callback_alone_measures(tmp_path: Path) -> None:
    run = Run(tmp_path, settings={"num_train_epochs": 6})
    run.guard.detach()
    callback = ac.AdaptiveMemoryCallback()
    run.trainer.add_callback(callback)
    run.trainer.train()
    (times,) = (each for each in run.trainer.callback_handler.callbacks if isinstance(each, StepTimes))
    assert len(times.steps) == 18 - SKIPPED
    assert len(run.trainer.model._forward_pre_hooks) == 1, "the test's own"
    leave = follow_steps(run.trainer.callback_handler)
    leave()
    assert times in run.trainer.callback_handler.callbacks, "who finds one there does not take it away"
