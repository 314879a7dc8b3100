"""What a guard cannot do is said clearly, and leaves nothing half-patched."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer
from transformers.trainer_callback import TrainerCallback

from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard import Guard, attach
from tiny_training import Regression, tiny_trainer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "median"}, "rule = 'median'"),
        ({"max_halvings": -1}, "max_halvings = -1"),
        ({"micro_batch": 2.5}, "micro_batch = 2.5"),
        ({"micro_batch": 0}, "micro_batch = 0"),
        ({"too_long": "drop"}, "too_long = 'drop'"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    trainer = tiny_trainer(tmp_path)
    before = dict(trainer.__dict__)
    with pytest.raises(InvalidArgumentError, match=message):
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


def with_loss(output: Path, change: Any, **settings: Any) -> Any:
    class Own(Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            return change(super().compute_loss(model, inputs))

    return tiny_trainer(output, trainer_class=Own, **settings)


def bare_error(output: Path, change: Any, **settings: Any) -> Exception:
    """What the Trainer itself raises."""
    with pytest.raises(Exception) as caught:
        with_loss(output, change, **settings).train()
    return caught.value


UNFIT = [
    (lambda loss: loss.expand(4), r"compute_loss returns a loss of shape \(4,\)\s.*return one number"),
    (lambda loss: loss.item(), "compute_loss returns float, not a tensor"),
    (lambda loss: loss.detach(), "the loss has no gradient"),
]


@pytest.mark.parametrize(("change", "message"), UNFIT)
def test_losses_that_cannot_be_weighted(tmp_path: Path, change: Any, message: str) -> None:
    for micro_batch, accumulation in ((2, 1), (None, 2)):
        trainer = with_loss(tmp_path, change, gradient_accumulation_steps=accumulation)
        attach(trainer, rule="mean", micro_batch=micro_batch)
        with pytest.raises(InvalidArgumentError, match=message):
            trainer.train()


@pytest.mark.parametrize("change", [change for change, _ in UNFIT])
def test_where_nothing_is_weighted_the_error_is_the_trainer_s(tmp_path: Path, change: Any) -> None:
    wanted = bare_error(tmp_path, change, gradient_accumulation_steps=2)
    trainer = with_loss(tmp_path, change, gradient_accumulation_steps=2)
    attach(trainer)
    with pytest.raises(type(wanted)) as caught:
        trainer.train()
    assert str(caught.value) == str(wanted)


def test_a_loss_of_shape_one_is_a_number_where_it_is_weighted(tmp_path: Path) -> None:
    runs = []
    for shape in ((), (1,)):
        torch.manual_seed(0)
        runs.append(with_loss(tmp_path, lambda loss, s=shape: loss.reshape(s), gradient_accumulation_steps=2))
        attach(runs[-1], rule="mean")
        runs[-1].train()
    for got, wanted in zip(*(run.model.parameters() for run in runs), strict=True):
        assert torch.equal(got, wanted)


def fetch(trainer: Any, batches: list[Any]) -> None:
    """Begin a window of ``batches``; newer versions give the device, too."""
    takes_device = "device" in inspect.signature(Trainer.get_batch_samples).parameters
    trainer.get_batch_samples(iter(batches), len(batches), *(["cpu"] if takes_device else []))


def step_of(trainer: Any, model: Any, inputs: Any) -> Any:
    """What the Trainer's own step does, where several GPUs are only said to be there."""
    loss = trainer.compute_loss(model, inputs)
    trainer.accelerator.backward(loss)
    return loss.detach().mean()


def test_losses_of_several_gpus_in_one_process_are_averaged(tmp_path: Path) -> None:
    trainer = with_loss(tmp_path, lambda loss: torch.stack([loss, 3 * loss]))
    trainer.args._n_gpu = 2
    guard = attach(trainer, rule="mean")
    batch = {"x": torch.zeros(4, 6), "labels": torch.ones(4, 1), "index": torch.arange(4)}
    fetch(trainer, [batch, batch])
    guard._loop.train_step = lambda model, inputs, *_: step_of(trainer, model, inputs)
    returned = trainer.training_step(trainer.model, batch)
    loss = trainer.model(**batch)["loss"]
    assert float(returned) == pytest.approx(2 * float(loss.detach()) / 2), "half of the window's"
    wanted = torch.autograd.grad(loss, trainer.model.last.bias)
    assert torch.allclose(trainer.model.last.bias.grad, *wanted)


def test_batches_are_not_split_from_the_start_by_an_unknown_rule(tmp_path: Path) -> None:
    ends = []
    for guarded in (False, True):
        torch.manual_seed(0)
        trainer = tiny_trainer(tmp_path)
        guard = attach(trainer, overhead_s=1e-3) if guarded else None
        trainer.train()
        assert [len(batch) for batch in trainer.model.seen] == [4] * 4
        ends.append(list(trainer.model.parameters()))
    assert all(map(torch.equal, *ends))
    assert guard is not None and len(guard.notes) == 1
    reason = "the loss of Regression is not in the table of known losses"
    assert guard.notes[0].startswith(
        f'batches are not split before memory runs out: {reason}; call attach(trainer, rule="mean")'
    )
    with pytest.raises(
        InvalidArgumentError, match=f"micro_batch = 2 requires knowing what the loss divides by: {reason}"
    ):
        attach(tiny_trainer(tmp_path), micro_batch=2)


def test_what_becomes_of_accumulated_batches_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class TakesItems(Regression):
        accepts_loss_kwargs = True  # as ``**kwargs`` say of models that do not divide by num_items_in_batch

    trainers = [
        with_loss(tmp_path, lambda loss: loss, model=TakesItems(), gradient_accumulation_steps=2) for _ in range(2)
    ]
    (note,) = attach(trainers[0], rule="mean").notes
    assert note.startswith("losses and gradients are divided by the 2 accumulated batches of a step")
    (note,) = attach(trainers[1]).notes
    assert note.startswith("gradients may be up to 2 times too large")
    assert caplog.messages[1:] == [note], "logged once"
    assert "compute_loss of Own is not the Trainer's" in note
    assert 'attach(trainer, rule="mean")' in note


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
    original, calls = trainer.training_step, []

    def mine(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(len(inputs["x"]))
        return original(model, inputs, *args, **kwargs)

    trainer.training_step = mine
    guard = attach(trainer)
    trainer.train()
    assert calls == [4, 4, 4, 4], "nothing is measured while nothing fails"
    guard.detach()
    assert trainer.training_step is mine


def test_processes_that_share_each_step_keep_the_weights_and_raise(tmp_path: Path) -> None:
    sizes, trainer = [], tiny_trainer(tmp_path, gradient_accumulation_steps=2)
    guard = attach(trainer, micro_batch=1, rule="mean")
    trainer.train()
    assert set(map(len, trainer.model.seen)) == {1}
    guard.detach()
    trainer.is_fsdp_enabled = True
    guard = attach(trainer, micro_batch=1, rule="mean")
    assert "out of memory ends the run" in guard.notes[0]

    def step(model: Any, inputs: Any, *_: Any) -> Any:
        sizes.append(len(inputs["x"]))
        return step_of(trainer, model, inputs)

    guard._loop.train_step = step
    batch = {"x": torch.zeros(4, 6), "labels": torch.zeros(4, 1), "index": torch.arange(4)}
    fetch(trainer, [batch, batch])
    trainer.training_step(trainer.model, batch)
    assert sizes == [4], "whole batches, whatever was asked for: the others compute as many"
