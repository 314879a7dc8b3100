"""A saved batch, replayed: which clip, and what to do about it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import Module

from asrconfig_go.__main__ import main
from asrconfig_go.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from asrconfig_go.guard import attach
from asrconfig_go.train import replay_batch
from bad_clip_runs import BAD, bad_trainer
from speech_models import MODELS
from tiny_training import OUT_OF_MEMORY, tiny_trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a checkpoint at each of two steps, the clip in the second."""
    folder = tmp_path_factory.mktemp("run")
    trainer = bad_trainer(folder, save_strategy="steps", save_steps=1)
    attach(trainer, bad_clips="skip")
    trainer.train()
    return folder


def test_the_clip_is_found_with_the_weights_from_before_the_step(run: Path) -> None:
    replay = replay_batch(run / "bad-batch")
    assert replay.weights == str(run / "checkpoint-1"), "not the newest"
    assert [replayed.clip.row for replayed in replay.to_blame] == [BAD]
    assert [replayed.finite for replayed in replay.clips].count(False) == 1
    assert all(replayed.gradient_norm and replayed.gradient_norm > 0 for replayed in replay.clips if replayed.finite)
    saved = {clip.row: clip.loss for clip in replay.saved.clips}
    for replayed in replay.clips:
        if replayed.finite:
            assert replayed.loss == pytest.approx(saved[replayed.clip.row], rel=1e-4), "as in the training"
    assert not math.isfinite(replay.batches[0].loss or 0.0)
    (advice,) = replay.recommendations()
    assert advice == f"row {BAD} clips/{BAD}.wav: its audio has 1 value not finite: decode it again, or leave it out"
    assert replay._repr_html_().startswith("<") and advice in repr(replay)


def test_the_command_prints_the_clip(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(run / "bad-batch")]) == 0
    lines = capsys.readouterr().out.splitlines()
    marked = [line.split() for line in lines if line.startswith("→")]
    assert marked == [["→", "row", str(BAD), f"{BAD}.wav", "0.05", "4", "nan", "nan", "–"]]
    assert main(["replay", str(run / "bad-batch"), "--model", str(run / "checkpoint-2"), "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert printed.err == "", "no bar of transformers"
    assert document["weights"].endswith("checkpoint-2")
    assert [(c["clip"]["row"], c["loss"]) for c in document["clips"] if c["stands_out"]] == [(BAD, "nan")]
    assert main(["replay", str(run)]) == 1
    assert "name a folder bad-batch" in capsys.readouterr().err


def test_labels_that_need_more_frames_than_there_are(tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path, damage="labels")
    attach(trainer, bad_clips="skip")
    trainer.train()
    replay = replay_batch(tmp_path / "bad-batch", MODELS["ctc mean"]())
    assert replay.weights == "the given Wav2Vec2ForCTC"
    assert [(clip.clip.row, clip.loss) for clip in replay.to_blame] == [(BAD, math.inf)]
    assert "its labels need 100 frames, of which there are 3" in "".join(replay.recommendations())


def test_a_loss_that_overflows_in_half_precision_is_tried_in_others(tmp_path: Path) -> None:
    folder = does_not_fit(bad_trainer(tmp_path, damage="loud", bf16=True))
    document = json.loads((folder / "batch.json").read_text())
    document["settings"] |= {"fp16": True, "bf16": False}
    (folder / "batch.json").write_text(json.dumps(document))

    class Narrow(Module):  # type: ignore[misc]
        """Its product is too large for 16 bits of which 5 are the exponent's."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((1, 1), 100.0))

        def forward(self, input_values: Any, labels: Any) -> Any:
            peak = input_values.abs().amax(1, keepdim=True)
            return {"loss": (peak @ self.weight).float().mean()}

    replay = replay_batch(folder, Narrow(), device="cpu")
    assert replay.precision == "fp16"
    (blamed,) = replay.to_blame
    assert blamed.clip.row == BAD and set(blamed.others) == {"bf16", "fp32"}
    assert "train with bf16 in place of fp16" in "".join(replay.recommendations())
    assert "times as loud as the batch's median clip" in "".join(replay.recommendations())


def does_not_fit(trainer: Any) -> Path:
    """The batch with the bad clip, saved as one that does not fit."""
    guard, rows = attach(trainer), [4, 5, 6, 7]
    batch = trainer.data_collator([trainer.train_dataset[i] for i in rows])
    guard._window.begin([batch])
    guard._rows.of = lambda *_: rows  # type: ignore[method-assign]
    guard._bad.does_not_fit(guard._window.add(batch), "raised")
    return Path(guard.bad_batches[0].folder)


def test_what_a_model_raises_is_shown(run: Path) -> None:
    class Failing(Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def forward(self, input_values: Any, labels: Any) -> Any:
            if bool(input_values.isnan().any()):
                raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)
            return {"loss": self.weight * input_values.mean()}

    replay = replay_batch(run / "bad-batch", Failing())
    assert [clip.clip.row for clip in replay.to_blame] == [BAD]
    assert replay.to_blame[0].error.startswith("CUDA out of memory") and "CUDA out of memory" in str(replay)


@pytest.mark.parametrize("kind", ["whisper", "w2v-bert"])
def test_other_architectures_are_loaded(tmp_path: Path, kind: str) -> None:
    trainer = bad_trainer(tmp_path, kind, save_strategy="steps", save_steps=1)
    attach(trainer, bad_clips="skip")
    trainer.train()
    replay = replay_batch(tmp_path / "bad-batch")
    assert (replay.saved.architecture, replay.weights) == (type(trainer.model).__name__, str(tmp_path / "checkpoint-1"))
    assert [clip.clip.row for clip in replay.to_blame] == [BAD]


def test_where_no_clip_stands_out_that_is_said(run: Path) -> None:
    class Calm(Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def forward(self, input_values: Any, labels: Any) -> Any:
            return {"loss": self.weight * input_values.nan_to_num().shape[1]}

    replay = replay_batch(run / "bad-batch", Calm())
    assert not replay.to_blame and replay.training_mode, "also with the training's random numbers"
    assert "no clip stands out with the weights of the given Calm" in str(replay)


def test_without_a_checkpoint_from_before_the_first_one_is_taken(run: Path, tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path, save_strategy="steps", save_steps=2)
    attach(trainer)
    trainer.train()
    with pytest.raises(InvalidArgumentError, match="checkpoint-2 is not finite"):
        replay_batch(tmp_path / "bad-batch")
    shutil.rmtree(tmp_path / "checkpoint-2")
    shutil.copytree(run / "checkpoint-2", tmp_path / "checkpoint-2")
    assert replay_batch(tmp_path / "bad-batch").weights == str(tmp_path / "checkpoint-2")


def test_what_cannot_be_loaded(run: Path, tmp_path: Path) -> None:
    folder = run / "bad-batch"
    with pytest.raises(InvalidArgumentError, match="list is not a model"):
        replay_batch(folder, [])
    with pytest.raises(NotFoundError, match="cannot load Wav2Vec2ForCTC"):
        replay_batch(folder, tmp_path)
    MODELS["whisper"]().save_pretrained(tmp_path / "other")
    with pytest.raises(NotFoundError, match="other lacks most weights of Wav2Vec2ForCTC"):
        replay_batch(folder, tmp_path / "other")
    with pytest.raises(InvalidArgumentError, match="device = 'abacus'"):
        replay_batch(folder, device="abacus")
    moved = tmp_path / "bad-batch"
    moved.symlink_to(folder)
    assert replay_batch(moved).weights.endswith("checkpoint-1"), "of the run"
    (tmp_path / "elsewhere").mkdir()
    for name in ("batch.json", "batch.pt"):
        (tmp_path / "elsewhere" / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(NotFoundError, match=r"no checkpoint to load weights from\s.*--model"):
        replay_batch(tmp_path / "elsewhere")
    for name in ("default", "speech"):
        adapter = tmp_path / name / ("" if name == "default" else name)  # as PEFT saves it
        adapter.mkdir(parents=True)
        (adapter / "adapter_config.json").write_text("{}")
        with pytest.raises(UnsupportedError, match="holds adapters alone"):
            replay_batch(folder, tmp_path / name)
    document = json.loads((folder / "batch.json").read_text()) | {"architecture": "Mine"}
    (tmp_path / "elsewhere/batch.json").write_text(json.dumps(document))
    with pytest.raises(UnsupportedError, match="transformers has no Mine"):
        replay_batch(tmp_path / "elsewhere", run / "checkpoint-1")


def test_the_trainer_of_a_small_module_is_replayed_too(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    trainer.train_dataset.y[BAD] = float("nan")
    guard = attach(trainer, bad_clips="skip")
    trainer.train()
    assert guard.bad_clips == 1
    model = type(trainer.model)()
    model.last.bias.grad = torch.full((1,), float("nan"))  # of an earlier step
    assert [clip.clip.row for clip in replay_batch(tmp_path / "bad-batch", model).to_blame] == [BAD]
    assert model.training and model.first.bias.grad is None and torch.isnan(model.last.bias.grad).all(), "as it was"
