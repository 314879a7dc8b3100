"""What a guard cannot do is said clearly, and leaves nothing half-patched."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import Trainer  # noqa: E402
from transformers.trainer_callback import TrainerCallback  # noqa: E402

from asrconfig_go.errors import InvalidArgumentError  # noqa: E402
from asrconfig_go.guard import Guard, attach  # noqa: E402
from tiny_training import Regression, tiny_trainer  # noqa: E402


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rule": "median"}, "rule = 'median'"),
        ({"max_halvings": -1}, "max_halvings = -1"),
        ({"micro_batch": 2.5}, "micro_batch = 2.5"),
        ({"micro_batch": 0}, "micro_batch = 0"),
        ({"micro_batch": True}, "micro_batch = True"),
        ({"too_long": "drop"}, "too_long = 'drop'"),
        ({"bad_clips": "drop"}, "bad_clips = 'drop'"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    trainer = tiny_trainer(tmp_path)
    before = dict(trainer.__dict__)
    with pytest.raises(InvalidArgumentError, match=said):
        attach(trainer, **options)
    assert trainer.__dict__ == before


def test_what_is_no_trainer() -> None:
    with pytest.raises(InvalidArgumentError, match=r"object has no training_step\s.*pass a transformers\.Trainer"):
        Guard(object())


def test_a_model_without_anything_to_train(tmp_path: Path) -> None:
    model = Regression()
    for p in model.parameters():
        p.requires_grad_(False)
    with pytest.raises(InvalidArgumentError, match="Regression has no parameter that requires a gradient"):
        attach(tiny_trainer(tmp_path, model=model))


def with_loss(output: Path, change: Any) -> Any:
    class Own(Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            return change(super().compute_loss(model, inputs))

    return tiny_trainer(output, trainer_class=Own)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda loss: loss.expand(4), r"compute_loss gives a loss of shape \(4,\)\s.*return one number"),
        (lambda loss: float(loss), "compute_loss gives float, not a tensor"),
        (lambda loss: loss.detach(), "the loss has no gradient"),
    ],
)
def test_losses_that_cannot_be_weighted(tmp_path: Path, change: Any, said: str) -> None:
    trainer = with_loss(tmp_path, change)
    attach(trainer)
    with pytest.raises(InvalidArgumentError, match=said):
        trainer.train()


def test_a_loss_of_shape_one_is_a_number(tmp_path: Path) -> None:
    trainer = with_loss(tmp_path, lambda loss: loss.reshape(1))
    guard = attach(trainer)
    trainer.train()
    assert guard.rule == "token_mean", "of one token each"


def fetch(trainer: Any, batches: list[Any]) -> None:
    """Begin a window of ``batches``; newer versions give the device, too."""
    takes_device = "device" in inspect.signature(Trainer.get_batch_samples).parameters
    trainer.get_batch_samples(iter(batches), len(batches), *(["cpu"] if takes_device else []))


def step_of(trainer: Any, model: Any, inputs: Any) -> Any:
    """What the Trainer's own step does, where several GPUs are only said to be there."""
    loss = trainer.compute_loss(model, inputs).mean()
    trainer.accelerator.backward(loss)
    return loss.detach()


def test_losses_of_several_gpus_in_one_process_are_averaged(tmp_path: Path) -> None:
    trainer = with_loss(tmp_path, lambda loss: torch.stack([loss, 3 * loss]))
    guard = attach(trainer)
    trainer.args._n_gpu = 2
    batch = {"x": torch.zeros(4, 6), "labels": torch.ones(4, 1), "index": torch.arange(4)}
    fetch(trainer, [batch])
    guard._train_step = lambda model, inputs, *_: step_of(trainer, model, inputs)
    told = trainer.training_step(trainer.model, batch)
    assert float(told.detach()) == pytest.approx(2 * float(trainer.model(**batch)["loss"].detach()))


def test_a_callback_that_raises_leaves_a_guard_that_works(tmp_path: Path) -> None:
    class Break(TrainerCallback):  # type: ignore[misc]
        broken = False

        def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
            if not self.broken:
                self.broken = True
                raise KeyError("mine")

    def run(callbacks: list[Any]) -> Any:
        torch.manual_seed(0)
        trainer = tiny_trainer(tmp_path, callbacks=callbacks, gradient_accumulation_steps=2)
        attach(trainer)
        return trainer

    trainer = run([Break()])
    with pytest.raises(KeyError, match="mine"):
        trainer.train()
    trainer.train()
    calm = run([])
    calm.train()
    for got, wanted in zip(trainer.model.parameters(), calm.model.parameters(), strict=True):
        assert torch.allclose(got, wanted, atol=1e-6)


def test_detach_under_something_else_changes_nothing(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    guard = attach(trainer)
    own = trainer.training_step
    trainer.training_step = lambda *args, **kwargs: own(*args, **kwargs)
    with pytest.raises(InvalidArgumentError, match="something has wrapped training_step after the guard"):
        guard.detach()
    assert "prediction_step" in trainer.__dict__
    trainer.training_step = own
    guard.detach()
    assert not {"training_step", "prediction_step", "get_batch_samples"} & set(trainer.__dict__)
    assert not any("Guard" in type(c).__name__ for c in trainer.callback_handler.callbacks)


def test_a_patch_from_before_comes_back(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    original, seen = trainer.training_step, []

    def mine(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(len(inputs["x"]))
        return original(model, inputs, *args, **kwargs)

    trainer.training_step = mine
    guard = attach(trainer)
    trainer.train()
    assert seen[-4:] == [4, 4, 4, 4]
    # Another step than the Trainer's is tried before: twice the loss, then whole and in parts, in both modes.
    assert seen[:-4] == [1, 1, 4, 1, 3, 4, 1, 3]
    guard.detach()
    assert trainer.training_step is mine


def test_layers_that_look_across_the_batch_are_named(tmp_path: Path) -> None:
    model = Regression()
    model.norm = torch.nn.BatchNorm1d(8)
    guard = attach(tiny_trainer(tmp_path, model=model))
    assert "norm and 0 more normalise over the batch" in guard.notes[0]
    assert "note: norm" in repr(guard)
    assert not attach(tiny_trainer(tmp_path)).notes


def test_processes_that_share_each_step_keep_the_weights_and_raise(tmp_path: Path) -> None:
    sizes, trainer = [], tiny_trainer(tmp_path, gradient_accumulation_steps=2)
    guard = attach(trainer, micro_batch=1)
    trainer.train()
    assert set(map(len, trainer.model.seen)) == {1}
    guard.detach()
    trainer.is_fsdp_enabled = True
    guard = attach(trainer, micro_batch=1)
    assert "out of memory ends the run" in guard.notes[0]
    guard._train_step = lambda model, inputs, *_: sizes.append(len(inputs["x"])) or step_of(trainer, model, inputs)  # type: ignore[func-returns-value]
    batch = {"x": torch.zeros(4, 6), "labels": torch.zeros(4, 1), "index": torch.arange(4)}
    fetch(trainer, [batch, batch])
    trainer.training_step(trainer.model, batch)
    assert sizes == [4], "whole batches, whatever was asked for: the others compute as many"
