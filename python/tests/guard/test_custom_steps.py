"""Trainers with a training step of their own: what arrives at backward is weighted, or they are left alone by name."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import Trainer

from asrconfig_go._core.training_session import session_of
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard import attach
from tiny_training import Regression, apart, flat, notes_of, running_short, tiny_trainer


class Regularised(Trainer):  # type: ignore[misc]
    """Adds a penalty on the weights, and takes half of it all."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        model.train()
        loss = self.compute_loss(model, self._prepare_inputs(inputs))
        loss = 0.5 * (loss + 0.3 * sum(p.square().sum() for p in model.parameters()))
        loss = loss / self.args.gradient_accumulation_steps
        self.accelerator.backward(loss)
        return loss.detach()


class Consistent(Trainer):  # type: ignore[misc]
    """R-Drop: two forwards, and how far they are apart."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        model.train()
        inputs = self._prepare_inputs(inputs)
        losses, outputs = zip(*(self.compute_loss(model, inputs, return_outputs=True) for _ in range(2)), strict=True)
        apart = (outputs[0]["logits"] - outputs[1]["logits"]).square().mean()
        loss = (sum(losses) / 2 + apart) / self.args.gradient_accumulation_steps
        self.accelerator.backward(loss)
        return loss.detach()


class Direct(Trainer):  # type: ignore[misc]
    """Calls backward itself."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        model.train()
        loss = self.compute_loss(model, self._prepare_inputs(inputs)) / self.args.gradient_accumulation_steps
        loss.backward()
        return loss.detach()


class Adversarial(Trainer):  # type: ignore[misc]
    """FGM: the gradient of a batch and of the same batch at weights that were moved along it."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(model, inputs, *args, **kwargs)
        weight = model.first.weight
        before = weight.data.clone()
        weight.data.add_(0.1 * weight.grad / weight.grad.norm())
        super().training_step(model, inputs, *args, **kwargs)
        weight.data.copy_(before)
        return loss


class Clipping(Trainer):  # type: ignore[misc]
    """Clips the gradients of each micro-batch."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(model, inputs, *args, **kwargs)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        return loss


def run(
    kind: Any,
    output: Path,
    *,
    failures: int = 0,
    guarded: bool = True,
    options: Any = None,
    hook: Any = None,
    **settings: Any,
) -> Any:
    """A training of eight samples a step in whichever shape; memory runs out for more than two samples at first."""
    torch.manual_seed(0)
    model = Regression()
    model.fail = running_short(failures, 2)
    if hook is not None:
        hook(model.first.weight)
    shape = {"per_device_train_batch_size": 8, "optim": "sgd", "max_grad_norm": 0.0, **settings}
    trainer = tiny_trainer(output, trainer_class=kind, model=model, samples=32, **shape)
    trainer.guard = attach(trainer, **(options or {})) if guarded else None
    trainer.start = flat(trainer.model)
    trainer.train()
    return trainer


GIVEN = {"rule": "mean"}
SHAPES: dict[str, dict[str, Any]] = {
    "whole": {},
    "out of memory": {"failures": 3},
    "accumulated": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
    "accumulated by a given rule": {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "options": GIVEN,
    },
    "accumulated, out of memory": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "failures": 2},
    "cut from the start": {"options": {**GIVEN, "micro_batch": 3}},
}


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("kind", [Regularised, Consistent])
def test_what_a_training_step_adds_to_the_loss_is_weighted(tmp_path: Path, kind: Any, shape: str) -> None:
    wanted = run(kind, tmp_path, guarded=False)
    got = run(kind, tmp_path, **SHAPES[shape])
    assert apart(got, wanted) < 1e-5
    losses = [[entry["loss"] for entry in t.state.log_history if "loss" in entry] for t in (got, wanted)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert not got.guard.unfit
    assert bool(got.guard.events) == ("failures" in SHAPES[shape])


UNFIT = [
    (Direct, "the step of Direct with Regression calls backward() of the loss itself"),
    (Adversarial, "the step of Adversarial with Regression changes weights within the step"),
    (Clipping, "the step of Clipping with Regression changes gradients after backward"),
]


@pytest.mark.parametrize("kind", [kind for kind, _ in UNFIT])
def test_what_no_weight_mends_is_the_bare_trainer_s_while_nothing_fails(
    tmp_path: Path, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Also with accumulation, whose gradients are then what the Trainer makes of them."""
    several: tuple[dict[str, Any], ...] = ({}, {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4})
    for settings in several:
        wanted = run(kind, tmp_path, guarded=False, **settings)
        with caplog.at_level(logging.WARNING, "asrconfig_go"):
            got = run(kind, tmp_path, **settings)
        assert torch.equal(flat(got.model), flat(wanted.model))
        assert not caplog.messages


@pytest.mark.parametrize("options", [{}, GIVEN])
@pytest.mark.parametrize(("kind", "reason"), UNFIT)
def test_what_no_weight_mends_is_named_once_memory_runs_out(
    tmp_path: Path, kind: Any, reason: str, options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A rule that was given says what the loss divides by, not what else a step does."""
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        run(kind, tmp_path, failures=9, options=options)
    assert f"the step was not computed again: {reason}" in notes_of(caught.value, caplog.text)


def test_micro_batches_that_were_asked_for_and_cannot_be_weighted_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="micro_batch = 2 requires knowing what the loss divides by"):
        run(Direct, tmp_path, options={"micro_batch": 2})
    message = (
        "micro_batch = 2 would not train as the whole batch does: the step of Direct with Regression leaves a part"
    )
    with pytest.raises(InvalidArgumentError, match=message):
        run(Direct, tmp_path, options={**GIVEN, "micro_batch": 2})


def clamped(weight: Any) -> None:
    weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))


def halved(weight: Any) -> None:
    weight.register_hook(lambda gradient: 0.5 * gradient)


def stepping(weight: Any) -> None:
    def step(p: Any) -> None:
        p.data.sub_(0.01 * p.grad)

    weight.register_post_accumulate_grad_hook(step)


@pytest.mark.parametrize("options", [{}, GIVEN])
@pytest.mark.parametrize(
    ("hook", "reason"), [(clamped, "changes gradients after backward"), (stepping, "changes weights within the step")]
)
def test_hooks_of_weights_are_looked_at_once_memory_runs_out(
    tmp_path: Path, hook: Any, reason: str, options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = run(Trainer, tmp_path, hook=hook, guarded=False)
    assert torch.equal(flat(run(Trainer, tmp_path, hook=hook, options=options).model), flat(wanted.model))
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        run(Trainer, tmp_path, hook=hook, failures=9, options=options)
    message = f"the step of Trainer with Regression, whose weights have hooks that run in backward, {reason}"
    assert message in notes_of(caught.value, caplog.text)


def test_hooks_that_follow_a_weight_do_not_keep_batches_from_being_split(tmp_path: Path) -> None:
    got = run(Trainer, tmp_path, hook=halved, failures=3)
    assert apart(got, run(Trainer, tmp_path, hook=halved, guarded=False)) < 1e-5
    assert [(e.micro_batch_before, e.micro_batch_after) for e in got.guard.events] == [(8, 4), (4, 2)]


def test_unequal_shares_that_cannot_be_weighted_are_an_error(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    trainer.model.first.weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    attach(trainer)
    session_of(trainer).add("batches", SimpleNamespace(even=False))
    with pytest.raises(
        InvalidArgumentError, match="processes with unequal shares of a step would not train as with even"
    ):
        trainer.train()
