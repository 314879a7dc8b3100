"""Worst batches, and the pre-flight: everything tried before the first step, and nothing changed by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import TrainerCallback

from asrconfig_go.errors import InfeasiblePlanError, InvalidArgumentError
from asrconfig_go.predict.worst_batch import PreflightReport, longest, preflight, worst_batch
from speech_models import MODELS, Clips
from tiny_training import OUT_OF_MEMORY, tiny_trainer
from uneven_clips import Run

# Worst batches


def waves() -> dict[str, Any]:
    """Two clips of six and four values, with three labels and one."""
    return {
        "input_values": torch.arange(12.0).reshape(2, 6),
        "attention_mask": torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0]], dtype=torch.int32),
        "labels": torch.tensor([[5, 6, 7], [8, -100, -100]]),
        "name": ["a", "b"],
    }


def test_audio_is_repeated_masks_are_full_and_labels_grow_with_it() -> None:
    batch = waves()
    made = longest(batch, 14, 3)
    assert made["input_values"].tolist()[0] == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1]
    assert made["input_values"].shape == made["attention_mask"].shape == (3, 14)
    assert made["attention_mask"].dtype == torch.int32
    assert bool((made["attention_mask"] == 1).all())
    assert made["labels"].tolist() == [[5, 6, 7, 5, 6, 7, 5], [8] * 7, [5, 6, 7, 5, 6, 7, 5]]
    assert made["name"] == ["a", "b", "a"]
    assert longest(batch, 4, 1)["input_values"].tolist() == [[0, 1, 2, 3]]
    assert longest(batch)["labels"].tolist() == [[5, 6, 7], [8, 8, 8]], "rows are full at any length"
    assert batch["labels"].tolist() == waves()["labels"].tolist(), "the batch itself stays"


def test_frames_of_features_are_repeated_in_time() -> None:
    features = torch.randn(2, 5, 8)
    batch = {"input_features": features, "attention_mask": torch.ones(2, 5), "labels": torch.ones(2, 2).long()}
    made = longest(batch, 7, 2)
    assert torch.equal(made["input_features"], torch.cat([features, features[:, :2]], dim=1))
    assert (made["attention_mask"].shape, made["labels"].shape) == ((2, 7), (2, 3))


def test_spectrograms_keep_their_length() -> None:
    model = MODELS["whisper"]()
    batch = {"input_features": torch.randn(2, 4, 32), "labels": torch.tensor([[3, 4, -100], [5, 6, 7]])}
    made = longest(batch, 900, 4, model=model)
    assert made["input_features"].shape == (4, 4, 32)
    assert made["labels"].tolist() == [[3, 4, 3], [5, 6, 7]] * 2


def test_labels_stay_within_what_positions_allow() -> None:
    model = MODELS["whisper"]()  # eight positions
    batch = {"input_values": torch.randn(1, 4), "labels": torch.tensor([[3, 4, 5, 6]])}
    assert longest(batch, 40, model=model)["labels"].shape == (1, 8)


def test_odd_labels_are_left_as_far_as_they_can_be() -> None:
    nothing = {"input_values": torch.randn(2, 4), "labels": torch.full((2, 1), -100)}
    assert longest(nothing, 8)["labels"].tolist() == [[-100, -100]] * 2
    one_empty = {"input_values": torch.randn(2, 4), "labels": torch.tensor([[-100, -100], [3, 4]])}
    assert longest(one_empty)["labels"].tolist() == [[3, 4], [3, 4]]
    classes = {"input_values": torch.randn(2, 4), "labels": torch.tensor([1, 0])}
    assert longest(classes, 8, 3)["labels"].tolist() == [1, 0, 1]
    with pytest.raises(InvalidArgumentError, match="no known audio"):
        longest({"x": torch.ones(2, 3)}, 5)


def pad(items: list[dict[str, Any]]) -> dict[str, Any]:
    """A collator that pads to the longest."""
    rows = [torch.as_tensor(item["input_values"], dtype=torch.float32) for item in items]
    labels = [torch.as_tensor(item["labels"]) for item in items]
    padded = torch.nn.utils.rnn.pad_sequence
    return {
        "input_values": padded(rows, batch_first=True),
        "labels": padded(labels, batch_first=True, padding_value=-100),
    }


def speech_trainer(output: Path, kind: str = "ctc mean", **options: Any) -> Any:
    """A trainer of a small speech model, AdamW, with evaluation."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 8,
        "num_train_epochs": 2,
    }
    settings |= {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1}
    datasets = {
        name: options.pop(name) for name in ("train_dataset", "eval_dataset", "data_collator") if name in options
    }
    data = {"train_dataset": Clips(kind), "eval_dataset": Clips(kind), **datasets}
    args = TrainingArguments(str(output), **{**settings, **options})
    return Trainer(MODELS[kind](), args, **data)


@pytest.mark.parametrize("column", ["length", "input_length", "own"])
def test_the_longest_clips_are_found_by_their_column(tmp_path: Path, column: str) -> None:
    datasets = pytest.importorskip("datasets")
    lengths = [900, 1200, 1000, 1300, 800]
    rows = {"input_values": [[0.1] * n for n in lengths], "labels": [[3, 4]] * 5, column: lengths}
    trainer = speech_trainer(
        tmp_path, train_dataset=datasets.Dataset.from_dict(rows), data_collator=pad, length_column_name="own"
    )
    batch, note = worst_batch(trainer, 2)
    assert note == f"the longest clips by the column '{column}'"
    assert sorted(batch) == ["input_values", "labels"], "the model takes no lengths"
    assert batch["input_values"].shape == (2, 1300)
    assert worst_batch(trainer, 7)[0]["input_values"].shape == (7, 1300), "fewer clips than samples: some twice"


def test_without_a_column_the_first_clips_are_stretched(tmp_path: Path) -> None:
    trainer = speech_trainer(tmp_path)
    batch, note = worst_batch(trainer, 3, 0.1)
    assert (note, tuple(batch["input_values"].shape)) == ("the first clips, stretched to 0.1 s", (3, 1600))
    data = {"input_values": torch.randn(2, 500), "labels": torch.ones(2, 3).long()}
    batch, note = worst_batch(trainer, 3, 0.1, data)
    assert (note, tuple(batch["input_values"].shape)) == ("the first batch, stretched to 0.1 s", (3, 1600))
    batch, note = worst_batch(tiny_trainer(tmp_path), 5, 2.0)
    assert (note, len(batch["x"])) == ("the first clips, as they are: their input is not known", 5)


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """Loses what is taken from it."""

    def __iter__(self) -> Any:
        raise AssertionError("a sample would be lost")


def test_nothing_is_taken_from_a_stream(tmp_path: Path) -> None:
    trainer = speech_trainer(tmp_path, train_dataset=Stream(), max_steps=1)
    with pytest.raises(InvalidArgumentError, match="Stream is a stream"):
        worst_batch(trainer, 2)
    assert len(worst_batch(trainer, 2, None, waves())[0]["labels"]) == 2


# The pre-flight


class Rehearsing:
    """What a guard does: forward and backward in pieces until they fit; ``limit`` samples do, in training."""

    def __init__(self, trainer: Any, limit: int = 99) -> None:
        self.trainer, self.limit = trainer, limit
        self.seen: list[tuple[str, int, Any]] = []

    def __call__(self, place: str, batch: Any) -> int:
        model, states = self.trainer.model_wrapped, len(self.trainer.optimizer.state)
        self.seen.append((place, len(batch["labels"]), states))
        if place == "evaluation":
            self.trainer.prediction_step(model, batch, prediction_loss_only=False)
            return len(batch["labels"])
        size = min(self.limit, len(batch["labels"]))
        part = {name: value[:size] for name, value in batch.items()}
        type(self.trainer).training_step(self.trainer, model, part)
        return size


class Preflight(TrainerCallback):  # type: ignore[misc]
    """Runs it where a guard does: when the Trainer has made its optimizer."""

    def __init__(self, trainer: Any, **options: Any) -> None:
        self.trainer, self.rehearse, self.options = trainer, Rehearsing(trainer, options.pop("limit", 99)), options
        self.report: PreflightReport | None = None

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.report = preflight(self.trainer, self.rehearse, **self.options)


def trained(output: Path, kind: str, checked: bool, **options: Any) -> tuple[Any, Any, Preflight]:
    trainer = speech_trainer(output, kind, optim="adamw_torch", learning_rate=1e-2, eval_strategy="epoch", **options)
    callback = Preflight(trainer, seconds=None if kind == "whisper" else 0.1, limit=3)
    if checked:
        trainer.add_callback(callback)
    trainer.train()
    keys = ("loss", "grad_norm", "learning_rate", "eval_loss", "epoch")
    logs = [{name: entry[name] for name in keys if name in entry} for entry in trainer.state.log_history]
    return trainer.model.state_dict(), logs, callback


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("kind", ["ctc mean", "whisper", "w2v-bert"])
def test_the_training_behind_it_is_bitwise_the_same(tmp_path: Path, kind: str, accumulation: int) -> None:
    options = {"gradient_accumulation_steps": accumulation}
    weights, logs, callback = trained(tmp_path, kind, True, **options)
    other, other_logs, _ = trained(tmp_path, kind, False, **options)
    assert weights.keys() == other.keys()
    assert all(torch.equal(weights[name], other[name]) for name in weights)
    assert logs == other_logs
    report, count = callback.report, len(list(callback.trainer.model.parameters()))
    assert report is not None
    trainable = sum(p.requires_grad for p in callback.trainer.model.parameters())
    assert callback.rehearse.seen == [("training", 4, trainable), ("evaluation", 8, trainable)], "states were there"
    assert 0 < trainable <= count
    assert [(r.place, r.samples, r.micro_batch) for r in report.rehearsals] == [
        ("training", 4, 3),
        ("evaluation", 8, 8),
    ]
    if kind != "whisper":
        assert [r.seconds for r in report.rehearsals] == [0.1, 0.1]
    assert report.optimizer.bytes > 7 * report.optimizer.parameters > 0
    assert not report.notes
    assert "fits in micro-batches of 3" in repr(report)
    assert "AdamW with" in report._repr_html_()


def test_random_numbers_that_are_drawn_leave_no_trace(tmp_path: Path) -> None:
    def weights(checked: bool) -> Any:
        trainer = tiny_trainer(tmp_path, num_train_epochs=2)
        trainer.model.dropout.p = 0.5
        if checked:
            trainer.add_callback(Preflight(trainer))
        trainer.train()
        return trainer.model.state_dict()

    first, second = weights(True), weights(False)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert int(first["batches"]) == 8, "a rehearsal is no batch of the training"


def test_what_cannot_be_tried_is_said(tmp_path: Path) -> None:
    trainer = speech_trainer(tmp_path, train_dataset=Stream(), max_steps=1, eval_dataset={"a": Clips("ctc mean")})
    trainer.create_optimizer()
    rehearse = Rehearsing(trainer)
    report = preflight(trainer, rehearse)
    assert [place for place, *_ in rehearse.seen] == ["evaluation"]
    assert report.notes[0].startswith("training was not tried: a Stream is a stream")
    assert repr(report).splitlines()[-1].startswith("  ! training was not tried")


class Greedy(torch.optim.SGD):  # type: ignore[misc]
    """Has no memory for its states."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p]["much"] = torch.zeros(3, *p.shape)
                    if len(self.state) > 3:
                        raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)


def test_states_that_do_not_fit_end_it_before_anything_is_lost(tmp_path: Path) -> None:
    torch.manual_seed(0)
    trainer = tiny_trainer(tmp_path)
    trainer.optimizer = Greedy(trainer.model.parameters(), lr=0.1)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    rehearse = Rehearsing(trainer)
    with pytest.raises(InfeasiblePlanError, match=r"Greedy needs about .* of states for 65 trainable"):
        preflight(trainer, rehearse)
    assert rehearse.seen == []
    assert not trainer.optimizer.state
    assert all(torch.equal(before[name], value) for name, value in trainer.model.state_dict().items())


def test_what_a_rehearsal_raises_passes_and_leaves_no_trace(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    trainer.create_optimizer()
    for p in trainer.model.parameters():
        p.grad = torch.ones_like(p)
    grads, state = [p.grad for p in trainer.model.parameters()], torch.get_rng_state()

    def fails(model: Any, size: int) -> None:
        raise RuntimeError("size mismatch")

    trainer.model.fail = fails
    with pytest.raises(RuntimeError, match="size mismatch"):
        preflight(trainer, Rehearsing(trainer))
    assert all(p.grad is grad for p, grad in zip(trainer.model.parameters(), grads, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert int(trainer.model.batches) == 0
    assert not trainer.optimizer.state


@pytest.mark.parametrize("seconds", [True, 0.1])
def test_a_guard_tries_before_the_first_step_and_changes_nothing(tmp_path: Path, seconds: Any) -> None:
    def run(failing: int | None, optimizer: str = "adamw_torch", **options: Any) -> Any:
        return Run(tmp_path, "ctc mean", failing, settings={"optim": optimizer}, **options).train()

    calm = run(None)
    tried = run(None, preflight=seconds)
    assert torch.equal(tried.weights(), calm.weights())
    assert tried.collator.order[-len(calm.collator.order) :] == calm.collator.order
    report = tried.guard.preflight
    assert report.optimizer.bytes > 0
    assert [(r.place, r.samples, r.micro_batch) for r in report.rehearsals] == [("training", 8, 8)]
    assert tried.appetite.shapes[0] == (8, 1600)
    cut = run(5600, "sgd", preflight=seconds)
    assert {e.place for e in cut.guard.events} == {"pre-flight"}, "no step fails any more"
    assert cut.guard.preflight.rehearsals[0].micro_batch == 2
    assert cut.apart(run(None, "sgd")) < 1e-5
