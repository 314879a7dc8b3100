"""Clips on which a model raises an error are found among those of their batch, named, saved, and left out if asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard import attach
from asrconfig_go.guard.saved_batch import read_batch
from asrconfig_go.train import replay_batch
from bad_clip_runs import BAD, bad_trainer
from tiny_training import Regression, flat, tiny_trainer

Asked = Any  # asks whether a batch is refused: by its indices and whether the model trains


class Choosy(Regression):
    """Raises ``error`` on the batches that ``refuses``."""

    def __init__(self, refuses: Asked, error: type[Exception] = IndexError) -> None:
        super().__init__()
        self.refuses, self.error = refuses, error

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        if self.refuses(index.tolist(), self.training):
            raise self.error("index out of range in self")
        return super().forward(x, labels, index)


def has_bad(rows: list[int], training: bool) -> bool:
    return BAD in rows


def choosy(output: Path, refuses: Asked = has_bad, error: type[Exception] = IndexError, **settings: Any) -> Any:
    """Batches of 4, accumulated twice, of which the model refuses some."""
    torch.manual_seed(0)
    return tiny_trainer(output, model=Choosy(refuses, error), gradient_accumulation_steps=2, **settings)


def without(output: Path, row: int = BAD, **settings: Any) -> Any:
    """The same with a collator that drops the clip."""
    trainer = choosy(output, lambda *_: False, **settings)
    collate = trainer.data_collator
    trainer.data_collator = lambda rows: collate([example for example in rows if example["index"] != row])
    return trainer


def notes(error: BaseException) -> str:
    return " ".join(getattr(error, "__notes__", ()))


def test_a_text_that_is_too_long_for_the_decoder_is_named_in_the_models_error(tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path, "whisper", "labels")
    guard = attach(trainer)
    with pytest.raises(ValueError, match="Labels' sequence length 100 cannot exceed") as caught:
        trainer.train()
    assert type(caught.value) is ValueError, "the model's own"
    (batch,) = guard.bad_batches
    (clip,) = batch.clips
    assert (batch.what, batch.done, clip.row, clip.path) == ("error", "raised", BAD, f"clips/{BAD}.wav")
    assert "its labels need 100 decoder positions" in " ".join(clip.findings)
    if hasattr(caught.value, "__notes__"):  # from Python 3.11 on
        assert str(batch) in notes(caught.value)
    saved, _, _ = read_batch(batch.folder)
    assert saved.what == "error" and saved.error.startswith("Labels' sequence length 100")


def test_its_replay_names_it(tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path, "whisper", "labels")
    attach(trainer, bad_clips="skip")
    trainer.train()
    replay = replay_batch(tmp_path / "bad-batch", trainer.model, device="cpu")
    assert [clip.clip.row for clip in replay.to_blame] == [BAD]
    assert replay.to_blame[0].error.startswith("Labels' sequence length 100")
    assert all(clip.finite for clip in replay.clips if clip.clip.row != BAD)
    assert "shorten the text" in " ".join(replay.recommendations())


@pytest.mark.parametrize("options", [{}, {"rule": "mean"}, {"rule": "mean", "micro_batch": 2}])
@pytest.mark.parametrize("error", [IndexError, ValueError, RuntimeError])
def test_whatever_the_rule_is_a_skipped_clip_was_never_there(
    tmp_path: Path, options: dict[str, Any], error: type[Exception]
) -> None:
    trainer = choosy(tmp_path, error=error)
    guard = attach(trainer, bad_clips="skip", **options)
    trainer.train()
    assert [clip.row for batch in guard.bad_batches for clip in batch.clips] == [BAD]
    assert guard.bad_batches[0].clips[0].why == f"it raises {error.__name__}: index out of range in self"
    assert not guard.events and guard.rule == options.get("rule")
    calm = without(tmp_path)
    attach(calm, **options)
    calm.train()
    torch.testing.assert_close(flat(trainer.model), flat(calm.model), rtol=1e-5, atol=1e-6)
    assert float(trainer.model.batches) == float(calm.model.batches), "what the failed forward counted is put back"


def test_an_error_that_only_training_raises_is_found(tmp_path: Path) -> None:
    trainer = choosy(tmp_path, lambda rows, training: training and BAD in rows)
    guard = attach(trainer)
    with pytest.raises(IndexError):
        trainer.train()
    assert [clip.row for batch in guard.bad_batches for clip in batch.clips] == [BAD]
    replay = replay_batch(guard.bad_batches[0].folder, trainer.model, device="cpu")
    assert replay.training_mode and [blamed.clip.row for blamed in replay.to_blame] == [BAD]


@pytest.mark.parametrize("policy", ["report", "skip"])
def test_where_every_clip_raises_it_is_the_models_fault(tmp_path: Path, policy: Any) -> None:
    trainer = choosy(tmp_path, lambda *_: True)
    guard = attach(trainer, bad_clips=policy)
    with pytest.raises(IndexError, match="index out of range"):
        trainer.train()
    (batch,) = guard.bad_batches
    assert batch.said.endswith("every clip alone does so") and batch.done == "raised"
    assert not batch.clips
    assert guard.bad_clips == 0


@pytest.mark.parametrize("policy", ["report", "skip"])
def test_where_no_clip_raises_alone_none_is_blamed(tmp_path: Path, policy: Any) -> None:
    trainer = choosy(tmp_path, lambda rows, _: len(rows) > 1)
    guard = attach(trainer, bad_clips=policy)
    with pytest.raises(IndexError):
        trainer.train()
    (batch,) = guard.bad_batches
    assert (batch.clips, batch.done, guard.bad_clips) == ((), "raised", 0)
    assert "no clip alone stands out" in str(batch)


@pytest.mark.parametrize("error", [KeyError, TypeError, AssertionError, InvalidArgumentError])
def test_errors_of_other_kinds_are_not_of_clips(tmp_path: Path, error: type[Exception]) -> None:
    made = (lambda text: InvalidArgumentError(text, "hint")) if error is InvalidArgumentError else error
    trainer = choosy(tmp_path, error=made)  # type: ignore[arg-type]
    guard = attach(trainer, bad_clips="skip")
    with pytest.raises(error) as caught:
        trainer.train()
    assert not guard.bad_batches and not notes(caught.value)
    assert not list(tmp_path.glob("bad-batch*"))


@pytest.mark.parametrize("policy", ["report", "skip"])
def test_of_a_batch_that_cannot_be_split_no_clip_is_blamed(tmp_path: Path, policy: Any) -> None:
    class Accepting(Choosy):
        def forward(self, x: Any, labels: Any = None, index: Any = None, table: Any = None) -> dict[str, Any]:
            return super().forward(x, labels, index)

    torch.manual_seed(0)
    trainer = tiny_trainer(tmp_path, model=Accepting(has_bad))
    collate = trainer.data_collator
    trainer.data_collator = lambda rows: {**collate(rows), "table": torch.zeros(3)}
    guard = attach(trainer, bad_clips=policy)
    with pytest.raises(IndexError, match="index out of range"):
        trainer.train()
    (batch,) = guard.bad_batches
    assert (batch.clips, batch.done, guard.bad_clips) == ((), "raised", 0)
    saved, (saved_batch,), _ = read_batch(batch.folder)
    assert saved.batches == (4,) and BAD in saved_batch["index"].tolist()


@pytest.mark.parametrize("options", [{}, {"rule": "mean"}])
def test_batches_of_one_clip_are_left_out_wherever_they_are_in_the_window(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    settings: dict[str, Any] = {"per_device_train_batch_size": 1}
    for row in range(4):
        trainer = choosy(tmp_path, lambda rows, _, row=row: row in rows, **settings)
        trainer.args.gradient_accumulation_steps = 4
        guard = attach(trainer, bad_clips="skip", **options)
        trainer.train()
        assert [clip.row for batch in guard.bad_batches for clip in batch.clips] == [row]
        assert trainer.state.global_step == 4 and guard.bad_clips == 1


def test_a_window_of_which_nothing_is_left_raises_the_models_error(tmp_path: Path) -> None:
    trainer = choosy(tmp_path, lambda *_: True, per_device_train_batch_size=1)
    guard = attach(trainer, bad_clips="skip")
    with pytest.raises(IndexError):
        trainer.train()
    assert guard.bad_batches[-1].done == "raised"
