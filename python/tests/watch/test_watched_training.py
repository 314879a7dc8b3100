"""Whole trainings under the callback: what the monitor is told, what is shown, and that nothing is left behind."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import Trainer, TrainerCallback, TrainingArguments

from asrconfig_go.guard import attach
from asrconfig_go.watch import watch as watch_module, watch_setup
from asrconfig_go.watch.callback import AdaptiveMemoryCallback
from asrconfig_go.watch.display import Panel
from asrconfig_go.watch.step_times import StepTimes
from asrconfig_go.watch.telemetry import RunLog
from speech_models import Clips, wav2vec2
from tiny_training import OUT_OF_MEMORY, tiny_trainer
from training_fixtures import make_plan
from watching_fakes import FakeMonitor, alert, gpu, makes


class Masked(Clips):
    """Clips of which the second half is padding."""

    def __getitem__(self, i: int) -> dict[str, Any]:
        item = super().__getitem__(i)
        mask = torch.ones(len(item["input_values"]), dtype=torch.long)
        mask[len(mask) // 2 :] = 0
        return {**item, "attention_mask": mask}


def speech_trainer(output: Path, **settings: Any) -> Any:
    """Three steps of two clips, which are 0.05 s long with their padding."""
    torch.manual_seed(0)
    arguments = {
        "per_device_train_batch_size": 2,
        "max_steps": 3,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        **settings,
    }
    return Trainer(wav2vec2("mean"), TrainingArguments(str(output), **arguments), train_dataset=Masked("ctc mean"))


def test_the_monitor_is_told_of_steps_lengths_and_waits(tmp_path: Path) -> None:
    monitor = FakeMonitor([gpu(5.0)])
    callback = AdaptiveMemoryCallback(monitor=makes(monitor))
    trainer = speech_trainer(tmp_path, gradient_accumulation_steps=2)
    trainer.add_callback(callback)
    before = list(trainer.callback_handler.callbacks)
    trainer.train()
    assert [step["number"] for step in monitor.steps] == [1, 2, 3]
    for step in monitor.steps:
        assert step["waited_s"] > 0
        assert step["longest_s"] == pytest.approx(0.05)
        assert step["padded_s"] == pytest.approx(4 * 0.05), "two batches of two clips"
        assert 0 < step["audio_s"] <= step["padded_s"]
    assert not trainer.model._forward_pre_hooks
    after = [c for c in trainer.callback_handler.callbacks if not isinstance(c, StepTimes)]
    assert set(map(id, after)) == set(map(id, before))
    assert monitor.saved[-1] == tmp_path / "asrconfig_monitor.json" and monitor.stops == 1


def test_a_calm_and_a_watched_training_end_with_the_same_weights(tmp_path: Path) -> None:
    def weights(watched: bool) -> Any:
        trainer = speech_trainer(tmp_path / str(watched), seed=3)
        if watched:
            trainer.add_callback(AdaptiveMemoryCallback(interval_ms=5))
        trainer.train()
        return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])

    assert torch.equal(weights(False), weights(True))


def test_what_the_guard_met_is_told(tmp_path: Path) -> None:
    monitor = FakeMonitor([gpu(5.0)])

    def fail(model: Any, size: int) -> None:
        if size > 2 and len(monitor.steps) == 1:
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

    trainer = tiny_trainer(tmp_path, callbacks=[AdaptiveMemoryCallback(monitor=makes(monitor))])
    trainer.model.fail = fail
    attach(trainer)
    trainer.train()
    (event,) = [text for kind, text in monitor.events if kind == "out_of_memory"]
    assert "step 1 (training): 4 → 2" in event
    assert len(monitor.steps) == 4


@pytest.mark.parametrize("guarded", [False, True])
def test_a_batch_that_will_not_fit_is_warned_of_before_it_runs(
    tmp_path: Path, guarded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    order: list[str] = []
    monitor = FakeMonitor([gpu(5.0)])
    plan = make_plan(length_buckets=[{"up_to_s": 30.0, "clips": 12, "micro_batch": 1}])
    trainer = speech_trainer(tmp_path)
    trainer.add_callback(AdaptiveMemoryCallback(plan, monitor=makes(monitor)))
    if guarded:
        attach(trainer)
    trainer.model.register_forward_hook(lambda *_: order.append(f"ran after {len(warned())}"))

    def warned() -> list[str]:
        return [text for kind, text in monitor.events if kind == "next_batch"]

    trainer.train()
    assert len(warned()) == (0 if guarded else 1), "the guard cuts what does not fit"
    if not guarded:
        assert "is more than the 1 clip of that length" in warned()[0]
        assert order[0] == "ran after 1"
        assert "memory: the next batch, 2 × " in caplog.text


@pytest.mark.parametrize("bars", [False, True])
def test_what_the_trainer_prints_stays_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bars: bool
) -> None:
    trainer = tiny_trainer(
        tmp_path, callbacks=[AdaptiveMemoryCallback(monitor=makes(FakeMonitor()))], disable_tqdm=not bars
    )
    printer = trainer.callback_handler.callbacks[-1]
    trainer.train()
    written = "".join(capsys.readouterr())
    assert written.count("'loss'") == 4 and "asrconfig/" not in written
    assert "on_log" not in vars(printer), "as it was found"


def test_the_trainer_s_bar_ends_with_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    monkeypatch.setattr(sys, "stderr", drawn)
    for progress in (True, False):
        callback = AdaptiveMemoryCallback(monitor=makes(FakeMonitor([gpu(8.2)])), progress=progress)
        tiny_trainer(tmp_path, callbacks=[callback], disable_tqdm=False).train()
        assert ("mem 82% 8.2/10.0 GiB" in drawn.getvalue()) is progress
        drawn.truncate(0)


class Display:
    """IPython's, as far as it is used; ``broken`` from the second picture on."""

    def __init__(self, broken: bool = False) -> None:
        self.pictures: list[str] = []
        self.broken = broken

    def __call__(self, card: Any, raw: bool, display_id: bool) -> Any:
        self.pictures.append(card["text/html"])
        return self

    def update(self, card: Any, raw: bool) -> None:
        if self.broken:
            raise RuntimeError("the notebook is gone")
        self.pictures.append(card["text/html"])


@pytest.mark.parametrize("broken", [False, True])
def test_the_panel_lives_as_long_as_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: bool
) -> None:
    display = Display(broken)
    monkeypatch.setattr(watch_setup, "Panel", lambda: Panel(display))
    monkeypatch.setattr(watch_module, "_EVERY_S", 0.0)
    monitor = FakeMonitor([gpu(8.2)])
    monitor.warn(alert(1, "memory grows"))
    trainer = tiny_trainer(
        tmp_path, callbacks=[AdaptiveMemoryCallback(monitor=makes(monitor), panel=True, interval_ms=1e-6)]
    )
    trainer.train()
    assert trainer.state.global_step == 4 and len(monitor.steps) == 4
    if broken:
        assert len(display.pictures) == 1
        assert caplog.text.count("memory is not shown from here on: RuntimeError: the notebook is gone") == 1
    else:
        assert "Step 4 of 4" in display.pictures[-1] and "memory grows" in display.pictures[-1]
        assert len(display.pictures) == 5, "each step here, and the end"


# From here on the real monitor.


def test_the_story_is_kept_beside_the_checkpoints_and_across_a_resume(tmp_path: Path) -> None:
    def train(**arguments: Any) -> None:
        trainer = tiny_trainer(
            tmp_path,
            callbacks=[AdaptiveMemoryCallback(interval_ms=5)],
            num_train_epochs=2,
            save_strategy="steps",
            save_steps=4,
            eval_strategy="epoch",
        )
        trainer.train(**arguments)

    train()
    run_log = RunLog.load(tmp_path / "asrconfig_monitor.json")
    assert run_log.samples > 0
    recorded = list(zip(run_log.steps.kind, run_log.steps.number, strict=True))
    assert [number for kind, number in recorded if kind == "train"] == list(range(1, 9))
    assert [number for kind, number in recorded if kind == "checkpoint"] == [4, 8]
    assert sum(kind == "evaluation" for kind, _ in recorded) > 2
    texts = [event.text for event in run_log.events]
    assert texts[0] == "training begins after step 0 of 8" and texts[-1] == "training ends after step 8"
    assert "checkpoint after step 4" in texts and "evaluation after step 8" in texts
    (tmp_path / "checkpoint-4" / "rng_state.pth").unlink()  # which not every transformers can read with every torch
    train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    again = RunLog.load(tmp_path / "asrconfig_monitor.json")
    assert [number for kind, number in zip(again.steps.kind, again.steps.number, strict=True) if kind == "train"] == [
        5, 6, 7, 8,
    ]  # fmt: skip
    assert json.loads((tmp_path / "asrconfig_monitor-until-step-4.json").read_text())["samples"] == run_log.samples


def test_after_ctrl_c_a_with_block_leaves_nothing_behind(tmp_path: Path) -> None:
    class Interrupt(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, *others: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                raise KeyboardInterrupt

    trainer = speech_trainer(tmp_path)
    with pytest.raises(KeyboardInterrupt), AdaptiveMemoryCallback(interval_ms=5) as callback:
        trainer.add_callback(callback)
        trainer.add_callback(Interrupt())
        trainer.train()
    assert callback._monitor is not None and not callback._monitor.running
    hooks = [hook for hook in trainer.model._forward_pre_hooks.values() if "watching" in hook.__module__]
    assert not hooks
    assert RunLog.load(tmp_path / "asrconfig_monitor.json").steps.number[-1] >= 1
