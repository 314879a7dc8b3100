"""Clips whose loss is not finite in an evaluation are named at the first that meets them, and nothing else changes."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, RandomSampler

from asrconfig_go import ASRConfigManager
from asrconfig_go.guard import attach, evaluation
from asrconfig_go.guard.saved_batch import read_batch
from asrconfig_go.watch import AdaptiveMemoryCallback
from bad_clip_runs import BAD, NamedClips, bad_trainer
from tiny_training import flat

EACH_STEP: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
BEST: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "load_best_model_at_end": True}


def evaluating(output: Path, kind: str = "ctc mean", damage: str = "nan", evaluation: Any = None, **more: Any) -> Any:
    """A training of good clips, two steps, evaluated with clips of which ``BAD`` is bad."""
    clips = NamedClips(kind, damage) if evaluation is None else evaluation
    return bad_trainer(output, kind, bad=None, evaluation=clips, **{**EACH_STEP, **more})


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings of the package, as they come."""
    caplog.set_level(logging.WARNING, "asrconfig_go")
    return Lines(caplog)  # type: ignore[return-value]


class Lines:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.caplog = caplog

    def __iter__(self) -> Any:
        return iter(record.getMessage() for record in self.caplog.records if record.name == "asrconfig_go")


@pytest.mark.parametrize(
    ("kind", "damage"), [("ctc mean", "nan"), ("ctc sum", "labels"), ("whisper", "nan"), ("w2v-bert", "nan")]
)
def test_the_clip_is_named_once(tmp_path: Path, lines: list[str], kind: str, damage: str) -> None:
    trainer = evaluating(tmp_path, kind, damage)
    guard = attach(trainer)
    trainer.train()
    (batch,) = guard.bad_batches
    (clip,) = batch.clips
    value = "nan" if damage == "nan" else "inf"
    assert (batch.what, batch.done, batch.global_step) == ("evaluation", "reported", 1)
    assert batch.said == f"the loss of batch 2 of the evaluation is {value}"
    assert (clip.row, clip.path, clip.text) == (BAD, "clips/5.wav", "text 5")
    assert clip.why == f"its loss is {value}"
    assert sum("row 5 clips/5.wav" in line for line in lines) == 1
    (summary,) = [line for line in lines if line.startswith("evaluation at step 1")]
    assert "the loss of 1 of 4 batches is not finite" in summary
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(losses) == 2
    assert ("eval_loss is the mean of the others" in summary) == math.isfinite(losses[0])
    saved, batches, _ = read_batch(batch.folder)
    assert (saved.what, saved.batches, len(batches)) == ("evaluation", (4,), 1)


def test_training_is_what_it_is_without_a_look(tmp_path: Path) -> None:
    runs = []
    for bad in (BAD, None):
        trainer = evaluating(tmp_path / f"{bad}", evaluation=NamedClips("ctc mean", bad=bad), num_train_epochs=2)
        guard = attach(trainer)
        trainer.train()
        assert len(guard.bad_batches) == (bad is not None)
        runs.append((flat(trainer.model), torch.get_rng_state(), trainer.model.training))
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1], runs[1][1])
    assert runs[0][2] == runs[1][2]


def test_rows_of_any_order_and_of_none(tmp_path: Path) -> None:
    trainer = evaluating(tmp_path / "shuffled")
    trainer._get_eval_sampler = lambda dataset: RandomSampler(dataset)
    guard = attach(trainer)
    trainer.evaluate()
    assert [clip.row for batch in guard.bad_batches for clip in batch.clips] == [BAD]
    guard.detach()

    class Stream(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter(NamedClips("ctc mean").items)

    trainer = evaluating(tmp_path / "stream", evaluation=Stream())
    guard = attach(trainer)
    trainer.evaluate()
    ((clip,),) = [batch.clips for batch in guard.bad_batches]
    assert (clip.row, clip.number) == (None, 1)


def test_each_of_several_evaluation_sets_is_named(tmp_path: Path, lines: list[str]) -> None:
    sets = {name: NamedClips("ctc mean", bad=row) for name, row in (("a", 1), ("good", None), ("b", 14))}
    trainer = evaluating(tmp_path, evaluation=sets)
    guard = attach(trainer)
    trainer.train()
    assert [clip.row for batch in guard.bad_batches for clip in batch.clips] == [1, 14]
    assert len([line for line in lines if line.startswith("evaluation at step")]) == 2


def test_only_the_first_batches_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    monkeypatch.setattr(evaluation, "_MAX_BATCHES", 2)
    clips = NamedClips("ctc mean", bad=None)
    for row in (0, 5, 10, 15):
        clips._spoil(clips.items[row], "nan")
    guard = attach(trainer := evaluating(tmp_path, evaluation=clips))
    trainer.train()
    assert [clip.row for batch in guard.bad_batches for clip in batch.clips] == [0, 5]
    assert [bool(batch.folder) for batch in guard.bad_batches] == [True, False]
    (summary,) = [line for line in lines if line.startswith("evaluation at step")]
    assert "the loss of 4 of 4 batches is not finite; clips of the first 2 are named" in summary


def test_lost_weights_are_no_clips_fault(tmp_path: Path, lines: list[str]) -> None:
    trainer = evaluating(tmp_path, evaluation=NamedClips("ctc mean", bad=None))
    guard = attach(trainer)
    with torch.no_grad():
        [*trainer.model.parameters()][-1].view(-1)[0] = float("nan")
    trainer.evaluate()
    assert [batch.what for batch in guard.bad_batches] == ["weights"]
    assert not any("named clips" in line for line in lines)


def test_what_chooses_the_best_checkpoint_is_named(tmp_path: Path, lines: list[str]) -> None:
    trainer = evaluating(tmp_path, "ctc sum", "labels", per_device_eval_batch_size=16, **BEST)
    attach(trainer)
    trainer.train()
    (summary,) = [line for line in lines if line.startswith("evaluation at step")]
    assert "eval_loss is inf; load_best_model_at_end goes by eval_loss" in summary
    assert "leave the named clips out" in summary


@pytest.mark.parametrize("guarded", [False, True])
def test_the_callback_alone_names_the_metric(tmp_path: Path, lines: list[str], guarded: bool) -> None:
    trainer = evaluating(tmp_path, per_device_eval_batch_size=16, **BEST)
    trainer.add_callback(AdaptiveMemoryCallback(panel=False))
    if guarded:
        attach(trainer)
    trainer.train()
    (line,) = [line for line in lines if "eval_loss is nan" in line]
    assert "load_best_model_at_end goes by eval_loss" in line
    assert ("with a guard the clips are named" in line) != guarded


def test_the_report_of_the_manager_has_it(tmp_path: Path) -> None:
    manager, trainer = ASRConfigManager(), evaluating(tmp_path)
    manager.train(trainer, verbose=False)
    report = manager.report
    assert report is not None and report.bad_samples == 0
    assert "the loss of batch 2 of the evaluation is nan; row 5 clips/5.wav" in repr(report)
