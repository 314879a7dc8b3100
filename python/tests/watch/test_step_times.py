"""Times of a Trainer's own first steps, and the calibration of the time model by them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import TrainerCallback

import asrconfig_go as ac
from asrconfig_go.plan import find_step_calibration, step_calibrations
from asrconfig_go.plan.step_calibrations import MeasuredStep
from asrconfig_go.predict.memory_model import open_model
from asrconfig_go.watch import step_times
from asrconfig_go.watch.step_times import ENOUGH, NOTED, SKIPPED, CPUMoments, GPUMoments, StepTimes
from speech_models import wav2vec2
from uneven_clips import Run
from watching_fakes import MovedMoments

pytestmark = pytest.mark.usefixtures("fresh_cache")

XLSR = "facebook/wav2vec2-xls-r-300m"


class Training:
    """Tells of the steps of a small speech model on a T4, as a callback does."""

    def __init__(self, gpu: str = "T4", **settings: Any) -> None:
        self.clock, self.model = MovedMoments(), wav2vec2("mean").train()
        self.times = StepTimes(self.clock, lambda: gpu)
        usual = {"bf16": False, "fp16": True, "gradient_checkpointing": False, "optim": "adamw_torch_fused", "n_gpu": 1,
                 "gradient_accumulation_steps": 1}  # fmt: skip
        self.args = SimpleNamespace(**{**usual, "world_size": 1, **settings})

    def begin(self) -> Training:
        self.times.begin(self.args, self.model)
        return self

    def steps(self, count: int, seconds: Any, shapes: Any = ((2, 8000),)) -> Training:
        for number in range(count):
            self.clock.now += 100.0  # the loader, an evaluation
            if self.times.noting:
                self.times.step_begins()
            for clips, length in shapes:
                for hook in list(self.model._forward_pre_hooks.values()):
                    hook(self.model, (), {"input_values": torch.zeros(clips, length)})
            self.clock.now += seconds(number) if callable(seconds) else seconds
            if self.times.noting:
                self.times.step_ends()
        return self

    def end(self) -> StepTimes:
        self.times.end(self.args)
        return self.times


def estimated(model: Any, clips: int, seconds: float, accumulation: int = 1) -> float:
    step = ac.estimate_step_time(model, "T4", batch=clips, seconds=seconds, precision="fp16", accumulation=accumulation)
    return step.step_s.likely


def test_steps_are_held_against_the_estimate_of_what_they_computed() -> None:
    training = Training().begin()
    likely = estimated(training.model, 2, 1.5, 2)
    training.steps(SKIPPED, 999.0).steps(NOTED, 3 * likely, shapes=((2, 24_000), (2, 24_000)))
    times = training.times
    assert not training.model._forward_pre_hooks, "what is needed has been noted"
    marks = training.clock.marks
    training.steps(20, 1.0)
    assert training.clock.marks == marks
    assert (times.record, times.steps, training.clock.waited) == (None, (), 0), "and the training goes on alone"
    training.end()
    assert times.record is not None and times.problem == ""
    assert times.record.factor == pytest.approx(3.0)
    assert (times.record.steps, times.record.padded_s) == (NOTED, NOTED * 2 * 2 * 1.5)
    assert times.steps[0] == MeasuredStep(((2, 1.5), (2, 1.5)), pytest.approx(3 * likely))  # type: ignore[arg-type]
    assert training.clock.waited == 1, "the GPU is waited for once"

    stored = find_step_calibration(training.model, "Tesla T4")
    assert stored is not None and stored == times.record.calibration
    assert find_step_calibration(training.model, "T4", precision="fp16", gradient_checkpointing=False) == stored
    for other in ({"precision": "bf16"}, {"gradient_checkpointing": True}, {"lora_rank": 8}):
        assert find_step_calibration(training.model, "T4", **other) is None
    assert find_step_calibration(training.model, "L4") is None
    assert find_step_calibration(XLSR, "T4") is None
    assert json.loads(json.dumps(dataclasses.asdict(stored)))["factor"] == pytest.approx(3.0)


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
    training.steps(SKIPPED + NOTED + 5, 1.0)
    assert did == ["record"] * 2 * NOTED
    times = training.end()
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
    ("gpu", "settings", "reason"),
    [
        ("", {}, "no rates for CPUs"),
        ("T5", {}, "no GPU"),
        ("T4", {"torch_compile": True}, "compiled"),
        ("T4", {"n_gpu": 2}, "several GPUs"),
        ("T4", {"deepspeed": {"stage": 2}}, "sharded"),
    ],
)
def test_what_is_not_calibrated_is_told(gpu: str, settings: dict[str, Any], reason: str) -> None:
    times = Training(gpu, **settings).begin().steps(SKIPPED + NOTED, 1.0).end()
    assert times.record is None and reason in times.problem
    assert find_step_calibration(wav2vec2("mean"), "T4") is None


@pytest.mark.parametrize("first", [True, False])
def test_of_several_processes_the_first_notes(tmp_path: Path, first: bool) -> None:
    callback, training = ac.AdaptiveMemoryCallback(panel=False, run_file=False), Training()
    callback.times = training.times
    state = SimpleNamespace(is_world_process_zero=first, is_local_process_zero=False, global_step=0, max_steps=9)
    args = SimpleNamespace(**vars(training.args), output_dir=str(tmp_path), process_index=0)
    callback.on_train_begin(args, state, None, model=training.model)
    assert training.times.noting == first == bool(training.model._forward_pre_hooks)
    for _ in range(SKIPPED + 2):
        callback.on_step_begin(args, state, None)
        callback.on_step_end(args, state, None)
    assert training.clock.marks == (4 if first else 0)
    callback.stop()
    assert not training.times.noting and not training.model._forward_pre_hooks


def test_one_training_is_measured_and_what_was_stopped_is_forgotten() -> None:
    training = Training().begin().steps(SKIPPED + NOTED - 1, 1.0)
    training.times.stop()
    assert not training.times.steps and not training.model._forward_pre_hooks
    training.begin().steps(SKIPPED + NOTED, 1.0).times.stop()
    assert not training.times.steps, "by an exception, after all had been noted"
    training.begin().steps(SKIPPED + NOTED, 1.0).end()
    measured, marks = training.times.steps, training.clock.marks
    assert len(measured) == NOTED
    training.begin().steps(SKIPPED + NOTED, 2.0).end()
    assert training.times.steps == measured and training.clock.marks == marks


def watched(output: Path, epochs: int = 6, others: Sequence[Any] = (), **options: Any) -> tuple[Run, StepTimes]:
    """A training of three steps an epoch under the guard and the callback, and what the callback has measured."""
    callback = ac.AdaptiveMemoryCallback(panel=False)
    run = Run(output, settings={"num_train_epochs": epochs}, callbacks=[callback, *others], **options).train()
    assert len(run.trainer.model._forward_pre_hooks) == 1, "the test's own"
    assert callback.times is not None
    return run, callback.times


def test_a_training_as_if_the_cpu_were_a_t4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "_gpu_name", lambda: "Tesla T4")
    run, times = watched(tmp_path)
    assert len(times.steps) == 18 - SKIPPED and all(step.seconds > 0 for step in times.steps)
    assert {clips for step in times.steps for clips, _ in step.micro_batches} <= {n for n, _ in run.appetite.shapes}
    assert [len(step.micro_batches) for step in times.steps] == [1] * (18 - SKIPPED)
    assert times.steps[0].micro_batches[0][0] == 8
    assert times.record is not None and times.record.factor > 0 and times.problem == ""
    assert times.record.precision == "fp32" and times.record.gpu == "Tesla T4"


def test_nothing_is_traced_or_awaited_before_the_training_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 steps the 55 that are noted end early; the model is asked about when all are done."""
    order: list[Any] = []

    class Steps(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            order.append((state.global_step, len(model._forward_pre_hooks)))

    def traced(*arguments: Any, **settings: Any) -> Any:
        order.append("trace")
        return open_model(*arguments, **settings)

    def waits(self: Any, end: float) -> None:
        order.append("wait")

    monkeypatch.setattr(step_times, "_gpu_name", lambda: "Tesla T4")
    monkeypatch.setattr(step_calibrations, "open_model", traced)
    monkeypatch.setattr(CPUMoments, "wait", waits)
    run, times = watched(tmp_path, epochs=20, others=[Steps()])
    noted = SKIPPED + NOTED
    others = 2  # hooks of the monitor and of the test
    assert order == [(step, others + (step < noted)) for step in range(1, 61)] + ["wait", "trace"]
    assert len(run.appetite.shapes) == 60, "forwards of the training alone"
    assert len(times.steps) == NOTED and times.record is not None and times.problem == ""
