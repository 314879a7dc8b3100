"""Clips whose loss or gradient goes wrong are named exactly, saved, and left out where that is asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset
from transformers.trainer_callback import TrainerCallback

from asrconfig_go import ASRConfigManager
from asrconfig_go.errors import CorruptFileError, InfeasiblePlanError, NotFoundError
from asrconfig_go.guard import BadClipError, attach, bad_clips, clip_findings, saved_batch
from asrconfig_go.guard.clip_findings import ClipDetails
from asrconfig_go.guard.optimizer_step import LEAST
from asrconfig_go.guard.saved_batch import MOST_FOLDERS, read_batch
from asrconfig_go.predict import StepSampler
from asrconfig_go.train import use_batches
from bad_clip_runs import BAD, NamedClips, bad_trainer
from tiny_training import OUT_OF_MEMORY, Regression, flat, tiny_trainer
from uneven_clips import Run

SKIP: dict[str, Any] = {"bad_clips": "skip"}


@pytest.mark.parametrize("kind", ["ctc mean", "ctc sum", "whisper", "w2v-bert"])
@pytest.mark.parametrize("damage", ["nan", "labels"])
def test_the_bad_clip_of_a_window_is_named(tmp_path: Path, kind: str, damage: str) -> None:
    if damage == "labels" and kind == "whisper":
        pytest.skip("its decoder raises: see test_clips_that_raise")
    trainer = bad_trainer(tmp_path, kind, damage)
    guard = attach(trainer, **SKIP)
    trainer.train()
    (batch,) = guard.bad_batches
    (clip,) = batch.clips
    assert (batch.what, batch.done, guard.bad_clips) == ("loss", "left out", 1)
    assert (clip.row, clip.path, clip.text) == (BAD, "clips/5.wav", "text 5")
    assert clip.why == ("its loss is nan" if damage == "nan" else "its loss is inf")
    wrong = "not finite" if damage == "nan" else "its labels need 100 frames"
    assert wrong in " ".join(clip.findings)
    assert f"row {BAD} clips/5.wav" in str(batch)
    assert torch.isfinite(flat(trainer.model)).all()
    assert clip.name in repr(guard)


def test_a_clip_of_one_value_is_silent_and_not_loud() -> None:
    inputs = {"input_values": torch.stack([torch.randn(800), torch.randn(800), torch.full((800,), 100.0)])}
    model = Regression()
    *_, found = clip_findings.findings(clip_findings.look_at(inputs, model), model)
    assert found == ("its audio is silent: leave it out",)


@pytest.mark.parametrize(
    ("kind", "damage", "seed"),
    [(kind, "nan", 42) for kind in ("ctc mean", "ctc sum", "whisper")] + [("whisper", "labels", n) for n in (0, 1, 3)],
)
def test_a_training_that_skips_the_clip_is_one_without_it(tmp_path: Path, kind: str, damage: str, seed: int) -> None:
    """In the first batch of a window and in the second, whose first is computed again; labels raise an error."""
    settings: dict[str, Any] = {"num_train_epochs": 2, "seed": seed}
    trainer = bad_trainer(tmp_path, kind, damage, **settings)
    start = flat(trainer.model)
    guard = attach(trainer, **SKIP)
    trainer.train()
    what = "error" if damage == "labels" else "loss"
    assert [(batch.what, batch.done) for batch in guard.bad_batches] == [(what, "left out")] * 2
    assert guard.bad_clips == 2, "once an epoch"
    calm = bad_trainer(tmp_path, kind, damage, drop=(BAD,), **settings)
    attach(calm)
    calm.train()
    wanted = flat(calm.model)
    assert float((flat(trainer.model) - wanted).norm() / (wanted - start).norm()) < 1e-5
    losses = [[e["loss"] for e in t.state.log_history if "loss" in e] for t in (trainer, calm)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_others_of_the_batch_lose_the_padding_to_the_clip(tmp_path: Path) -> None:
    run = Run(tmp_path, bad_clips="skip")
    clips = run.trainer.train_dataset.items
    longest = max(range(len(clips)), key=lambda i: len(clips[i]["audio"]))
    clips[longest]["audio"] = clips[longest]["audio"].clone()
    clips[longest]["audio"][3] = float("inf")
    run.train()
    assert {clip.row for batch in run.guard.bad_batches for clip in batch.clips} == {longest}
    # What is computed again is in a batch of 7, shorter than that of 8.
    assert any(n == 7 and length < len(clips[longest]["audio"]) for n, length in run.appetite.shapes)


def test_reporting_leaves_the_training_the_trainers(tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path, num_train_epochs=3)
    guard = attach(trainer)
    trainer.train()
    plain = bad_trainer(tmp_path, num_train_epochs=3)
    blind = attach(plain)
    blind._bad.check = lambda *_: None  # type: ignore[method-assign]
    blind._bad.norms.not_finite = lambda: None
    plain.train()
    assert not [batch for batch in blind.bad_batches if batch.what != "weights"]
    assert torch.isnan(flat(trainer.model)).any(), "as the Trainer does it"
    assert torch.equal(torch.isnan(flat(trainer.model)), torch.isnan(flat(plain.model)))
    reports = [(batch.what, batch.done, len(batch.clips)) for batch in guard.bad_batches]
    assert reports == [("loss", "reported", 1), ("weights", "reported", 0)], "and no more of what follows"
    assert "continue from a checkpoint" in str(guard.bad_batches[1])
    assert [path.name for path in tmp_path.glob("bad-batch*")] == ["bad-batch"]


@pytest.mark.parametrize(
    ("kind", "damage", "why"),
    [
        ("ctc mean", "nan", "its loss is nan"),
        ("whisper", "labels", "it raises ValueError: Labels' sequence length 100"),
    ],
)
def test_raising_names_the_clip_before_weights_change(tmp_path: Path, kind: str, damage: str, why: str) -> None:
    trainer = bad_trainer(tmp_path, kind, damage)
    attach(trainer, bad_clips="raise")
    with pytest.raises(BadClipError, match=rf"row {BAD} clips/{BAD}\.wav.*'text {BAD}': {why}") as caught:
        trainer.train()
    assert isinstance(caught.value.__cause__, ValueError if damage == "labels" else type(None))
    assert torch.isfinite(flat(trainer.model)).all()


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.slow), 0])
def test_the_manager_reports_and_a_resumed_run_names_the_right_row(tmp_path: Path, workers: int) -> None:
    class Stop(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            control.should_training_stop = state.global_step == 1
            return control

    settings: dict[str, Any] = {
        "per_device_train_batch_size": 2, "save_strategy": "steps", "save_steps": 1, "dataloader_num_workers": workers,
    }  # fmt: skip
    order = [row for seed in range(20) for row in _last_rows(tmp_path / f"{seed}", settings, seed)][:1]
    manager, first = ASRConfigManager(), bad_trainer(tmp_path / "run", bad=order[0], seed=0, **settings)
    first.add_callback(Stop())
    manager.train(first, verbose=False)
    assert manager.report is not None and not manager.report.bad_batches
    again = bad_trainer(tmp_path / "run", bad=order[0], seed=0, **settings)
    guard = attach(again, **SKIP)
    manager.train(again, resume=True, verbose=False)
    assert [clip.row for batch in guard.bad_batches for clip in batch.clips] == [order[0]]
    assert manager.report.bad_samples == 1
    assert f"row {order[0]}" in repr(manager.report) and "1 sample left out: loss" in repr(manager.report)
    record = json.loads((tmp_path / "run/.asrconfig/run.json").read_text())
    assert record["bad_batches"][0]["clips"][0]["row"] == order[0]
    manager.train(again, resume=True, verbose=False)
    assert (guard.bad_clips, manager.report.bad_samples) == (1, 0), "nothing was left to train"
    manager.train(bad_trainer(tmp_path / "run", bad=None, seed=0, **settings), resume=True, verbose=False)
    assert len(manager.report.bad_batches) == 1, "of the earlier process"


def _last_rows(output: Path, settings: dict[str, Any], seed: int) -> Iterator[int]:
    """The rows of the last batch of a training of this seed."""
    if seed:
        return
    trainer = bad_trainer(output, bad=None, seed=seed, **settings)
    guard = attach(trainer)
    trainer.train()
    yield from guard._rows.of(-1, None, settings["per_device_train_batch_size"]) or ()


def test_a_gradient_that_is_not_finite_is_found_before_the_optimizer(tmp_path: Path) -> None:
    class Sharp(Regression):
        """The root of zero for clip 5: its gradient is infinite, times zero."""

        def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
            output = super().forward(x, labels, index)
            own = output["logits"][index == BAD]
            return {**output, "loss": output["loss"] + (own * 0).abs().sqrt().sum()}

    torch.manual_seed(0)
    trainer = tiny_trainer(tmp_path, model=Sharp(), gradient_accumulation_steps=2)
    guard = attach(trainer, rule="mean", **SKIP)
    trainer.train()
    (batch,) = guard.bad_batches
    assert (batch.what, [clip.row for clip in batch.clips]) == ("gradient", [BAD])
    assert batch.clips[0].why == "its gradient norm is nan"
    assert torch.isfinite(flat(trainer.model)).all()


def jumping(output: Path, monkeypatch: pytest.MonkeyPatch, reports: int = 20) -> tuple[Any, Any, int]:
    """A training with dropout of which one clip, that comes after enough steps, has labels far from all others."""
    monkeypatch.setattr(bad_clips, "_MAX_REPORTS", reports)

    def trained(row: int | None) -> tuple[Any, Any]:
        torch.manual_seed(0)
        trainer = tiny_trainer(output, samples=4 * (LEAST + 5), model=Regression(0.1), learning_rate=1e-3)
        if row is not None:
            trainer.train_dataset.y[row] = 1e4
        guard = attach(trainer)
        trainer.train()
        return trainer, guard

    row = trained(None)[0].model.seen[-5][1]
    return (*trained(row), row)


def test_a_gradient_norm_that_jumps_is_reported_with_its_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, guard, row = jumping(tmp_path, monkeypatch)
    batch = guard.bad_batches[0]
    assert batch.what == "jump" and "times the median of" in batch.said
    assert [clip.row for clip in batch.clips] == [row]
    assert batch.clips[0].gradient_norm is not None
    assert torch.equal(flat(trainer.model), flat(jumping(tmp_path, monkeypatch, reports=0)[0].model)), "as without"


def test_a_clip_that_does_not_fit_alone_is_named_and_saved(tmp_path: Path) -> None:
    run = Run(tmp_path, limit=1500)
    with pytest.raises(InfeasiblePlanError) as error:
        run.train()
    (batch,) = run.guard.bad_batches
    clips = run.trainer.train_dataset.items
    assert batch.what == "memory" and batch.clips[0].row is not None
    assert len(clips[batch.clips[0].row]["audio"]) > 1500
    assert batch.clips[0].name in " ".join(getattr(error.value, "__notes__", ()))
    saved, _, _ = read_batch(tmp_path / "bad-batch")
    assert saved.error.startswith("step 0 (training) ran out of GPU memory")


def test_a_clip_that_is_too_long_and_left_out_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path, limit=1500, too_long="skip").train()
    rows = [clip.row for batch in run.guard.bad_batches for clip in batch.clips]
    long = [i for i, clip in enumerate(run.trainer.train_dataset.items) if len(clip["audio"]) > 1500]
    assert sorted(row for row in rows if row is not None) == long
    assert {(batch.what, batch.done) for batch in run.guard.bad_batches} == {("memory", "left out")}


def test_of_a_stream_the_batch_is_saved_without_rows(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            yield from NamedClips("ctc mean").items

    trainer = bad_trainer(tmp_path, data=Stream(), max_steps=2)
    guard = attach(trainer, **SKIP)
    trainer.train()
    (clip,) = guard.bad_batches[0].clips
    assert (clip.row, clip.text) == (None, " ".join(map(str, NamedClips("ctc mean").items[BAD]["labels"].tolist())))
    assert "stream" in read_batch(tmp_path / "bad-batch")[0].rows_unknown


def test_a_collator_that_changes_the_order_is_seen(tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path, reverse=True)
    guard = attach(trainer, **SKIP)
    trainer.train()
    assert guard.bad_batches[0].clips[0].row is None
    assert "labels of the dataset and of the batch differ" in read_batch(tmp_path / "bad-batch")[0].rows_unknown


def test_steps_of_a_sampler_name_the_row(tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path, per_device_train_batch_size=8, gradient_accumulation_steps=1)
    guard = attach(trainer, micro_batch=3, **SKIP)
    use_batches(trainer, StepSampler([1.0 + row % 5 for row in range(16)], 8, seed=1))
    trainer.train()
    assert [clip.row for batch in guard.bad_batches for clip in batch.clips] == [BAD]


def test_after_the_loader_was_restarted_the_row_is_named(tmp_path: Path) -> None:
    class ShortOfMemory(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 1:
                guard._loading.ran_short(MemoryError())

    settings: dict[str, Any] = {"per_device_train_batch_size": 2}
    (row, *_) = _last_rows(tmp_path, settings, 0)
    trainer = bad_trainer(tmp_path, bad=row, seed=0, **settings)
    trainer.add_callback(ShortOfMemory())
    guard = attach(trainer, **SKIP)
    trainer.train()
    assert "loading" in [event.place for event in guard.events]
    assert [clip.row for batch in guard.bad_batches for clip in batch.clips] == [row]


def test_rows_of_a_hub_dataset_are_read_without_decoding(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"audio": ["a.wav", "no/such/file.wav"], "sentence": ["one", "two"], "labels": [[1, 2], [3]]}
    dataset = datasets.Dataset.from_dict(rows).cast_column("audio", datasets.Audio())
    dataset.set_transform(lambda batch: 1 / 0)
    trainer = bad_trainer(tmp_path)
    trainer.train_dataset = dataset
    details = ClipDetails(trainer, trainer.train_dataset)
    assert details.of(1, [3]) == (True, "no/such/file.wav", "two")
    assert details.of(0, [3]) == (False, "", "3"), "its labels are others"
    assert details.of(None, [3]) == (True, "", "3")


def test_labels_are_decoded_where_no_column_has_the_text(tmp_path: Path) -> None:
    class Tokenizer:
        def decode(self, labels: list[int], skip_special_tokens: bool) -> str:
            return "".join(chr(96 + label) for label in labels)

    trainer = bad_trainer(tmp_path)
    trainer.data_collator.processor = Tokenizer()
    assert ClipDetails(trainer, trainer.train_dataset).of(None, [1, 2, 3]) == (True, "", "abc")


@pytest.mark.parametrize("several", [False, True])
def test_batches_of_one_clip_are_left_out_whole(tmp_path: Path, several: bool) -> None:
    settings: dict[str, Any] = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
    drop = (BAD, 2, 9) if several else (BAD,)
    trainer = bad_trainer(tmp_path, **settings)
    for row in drop:
        trainer.train_dataset.items[row]["input_values"] = torch.full((800,), float("nan"))
    guard, start = attach(trainer, **SKIP), flat(trainer.model)
    trainer.train()
    named = [clip.row for batch in guard.bad_batches for clip in batch.clips if clip.row is not None]
    assert sorted(named) == sorted(drop)
    assert guard.bad_clips == len(drop)
    calm = bad_trainer(tmp_path, bad=None, drop=drop)  # the same windows, in two batches of four
    attach(calm)
    calm.train()
    wanted = flat(calm.model)
    assert float((flat(trainer.model) - wanted).norm() / (wanted - start).norm()) < 1e-5


def test_a_look_that_fails_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_memory(*_: Any) -> Any:
        raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

    monkeypatch.setattr(clip_findings, "untouched", no_memory)
    trainer = bad_trainer(tmp_path)
    guard = attach(trainer)
    trainer.train()
    assert "cannot compute the clips of a batch alone: CUDA out of memory" in caplog.text
    assert guard.bad_batches[0].folder and "no clip alone stands out" in str(guard.bad_batches[0])
    assert trainer.state.global_step == 2


def test_every_clip_that_fails_is_the_models_fault(tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path, bad=None)
    for item in trainer.train_dataset.items:
        item["input_values"] = item["input_values"] * float("inf")
    guard = attach(trainer, **SKIP)
    trainer.train()
    assert guard.bad_batches[0].said.endswith("every clip alone does so")
    assert guard.bad_clips == 0


def test_only_so_many_batches_are_saved(tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path, num_train_epochs=8)
    guard = attach(trainer, **SKIP)
    trainer.train()
    assert guard.bad_clips == 8, "left out all the same"
    assert len(list(tmp_path.glob("bad-batch*"))) == MOST_FOLDERS
    assert [bool(batch.folder) for batch in guard.bad_batches] == [True] * MOST_FOLDERS + [False] * 3


def test_a_batch_that_is_too_large_keeps_the_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_batch, "MOST_BYTES", 5_000)  # one clip has 800 samples
    trainer = bad_trainer(tmp_path)
    attach(trainer, **SKIP)
    trainer.train()
    saved, (batch,), _ = read_batch(tmp_path / "bad-batch")
    assert ([clip.row for clip in saved.clips], saved.whole, len(batch["labels"])) == ([BAD], False, 1)


def test_a_batch_that_cannot_be_saved_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = bad_trainer(tmp_path / "file")
    (tmp_path / "file").rmdir() if (tmp_path / "file").is_dir() else None
    guard = attach(trainer, **SKIP)
    (tmp_path / "file").write_text("not a folder")
    trainer.train()
    assert "cannot save the batch" in caplog.text
    assert (guard.bad_batches[0].folder, guard.bad_batches[0].clips[0].row) == ("", BAD)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path)
    attach(trainer, **SKIP)
    trainer.train()
    with pytest.raises(NotFoundError, match="no saved batch"):
        read_batch(tmp_path)
    folder = tmp_path / "bad-batch"
    content = (folder / "batch.pt").read_bytes()
    (folder / "batch.pt").write_bytes(content[:200])
    with pytest.raises(CorruptFileError, match=r"batch\.pt cannot be read"):
        read_batch(folder)
    (folder / "batch.pt").write_bytes(content)
    document = json.loads((folder / "batch.json").read_text())
    (folder / "batch.json").write_text(json.dumps({**document, "clips": document["clips"][1:]}))
    with pytest.raises(CorruptFileError, match="does not hold the clips"):
        read_batch(folder)
    (folder / "batch.json").write_text(json.dumps({**document, "schema": 9}))
    with pytest.raises(CorruptFileError, match="another version"):
        read_batch(folder)


def test_a_scaler_that_skips_steps_is_left_alone(tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path, bad=None)
    guard = attach(trainer)
    norms = guard._bad.norms
    norms.newest = math.inf
    unusual = norms.look()
    assert unusual is not None and math.isinf(unusual[0])
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu")
    norms.follow(trainer)
    norms.newest = math.inf
    assert norms.look() is None


def test_detaching_leaves_trainer_and_loader_as_they_were(tmp_path: Path) -> None:
    trainer = bad_trainer(tmp_path)
    guard = attach(trainer, **SKIP)
    trainer.train()
    loader = trainer.callback_handler.train_dataloader
    assert "clip_grad_norm_" in vars(trainer.accelerator)
    guard.detach()
    assert "clip_grad_norm_" not in vars(trainer.accelerator)
    base = getattr(loader, "base_dataloader", loader)
    assert type(base.batch_sampler).__module__.startswith(("torch", "accelerate"))
