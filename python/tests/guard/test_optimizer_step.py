"""Out of memory in the optimizer's step, which is made again where nothing was written yet."""

from __future__ import annotations

import sys
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.trainer_callback import TrainerCallback

from asrconfig_go.errors import InfeasiblePlanError
from asrconfig_go.guard import attach
from asrconfig_go.guard.micro_batches import Attempts
from asrconfig_go.guard.optimizer_step import OptimizerSteps
from tiny_training import OUT_OF_MEMORY, Regression, running_short, tiny_trainer

OutOfMemory = torch.cuda.OutOfMemoryError


class HalfWay(torch.optim.AdamW):  # type: ignore[misc]
    """Runs out of memory in the steps ``fail_at``: before anything, with state half made, or weights half moved."""

    def __init__(self, parameters: Any, failure: str, fail_at: list[int]) -> None:
        super().__init__(parameters, lr=0.05)
        self.how, self.fail_at, self.asked = failure, fail_at, list[int]()

    def step(self, closure: Any = None) -> Any:
        self.asked.append(len(self.asked) + 1)  # no number: those are put back
        if self.asked[-1] not in self.fail_at:
            return super().step(closure)
        first = self.param_groups[0]["params"][0]
        if self.how == "state":
            self.state[first]["step"] = torch.tensor(0.0)
        if self.how == "weights":
            with torch.no_grad():
                first.mul_(0.5)
        raise OutOfMemory(OUT_OF_MEMORY)


def stepped(output: Path, failure: str = "nothing", fail_at: list[int] | None = None) -> Any:
    torch.manual_seed(0)
    model = Regression()
    optimizer = HalfWay(model.parameters(), failure, fail_at or [])
    trainer = tiny_trainer(output, model=model, optimizers=(optimizer, None))
    guard = attach(trainer)
    trainer.train()
    return torch.cat([p.detach().flatten() for p in model.parameters()]), guard, optimizer


@pytest.mark.parametrize(
    ("failure", "fail_at"), [("nothing", [1]), ("state", [1]), ("state", [1, 2]), ("nothing", [3, 4])]
)
def test_an_optimizer_step_that_ran_out_of_memory_is_done_again(
    tmp_path: Path, failure: str, fail_at: list[int]
) -> None:
    calm, _, _ = stepped(tmp_path)
    got, guard, optimizer = stepped(tmp_path, failure, fail_at)
    assert torch.equal(got, calm)
    assert [e.place for e in guard.events] == ["optimizer"] * len(fail_at)
    assert optimizer.param_groups[0]["foreach"] is (False if len(fail_at) == 2 else None), "the second remedy"


@pytest.mark.parametrize(("failure", "at"), [("weights", 1), ("weights", 2), ("weights", 4), ("state", 4)])
def test_a_half_done_step_is_not_repeated(tmp_path: Path, failure: str, at: int) -> None:
    with pytest.raises(OutOfMemory) as caught:
        stepped(tmp_path, failure, [at])
    if sys.version_info >= (3, 11):
        assert "half done: continue from the last checkpoint" in caught.value.__notes__[0]


def half_done(optimizer: Any, written_more: bool) -> Any:
    """The optimizer's ``step``, of which the first runs out of memory behind the weights of its first group."""
    original, remaining = optimizer.step, [True]

    def step(_: Any, *args: Any, **kwargs: Any) -> Any:
        if not remaining:
            return original(*args, **kwargs)
        remaining.clear()
        parameters, optimizer.param_groups[1]["params"] = optimizer.param_groups[1]["params"], []
        original()
        optimizer.param_groups[1]["params"] = parameters
        if written_more:
            parameters[0].detach().mul_(0.5)
        raise OutOfMemory(OUT_OF_MEMORY)

    return types.MethodType(step, optimizer)


@pytest.mark.parametrize("written_more", [False, True])
@pytest.mark.parametrize("kind", ["AdamW", "NAdam", "RMSprop", "SGD"])
def test_a_first_step_is_completed(kind: str, written_more: bool) -> None:
    """Where each weight was updated as a whole or not at all; by how often it and its state were written to."""

    def run(fails: bool) -> tuple[Any, list[str]]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
        groups = [
            {"params": [p for p in model.parameters() if (p.dim() > 1) == is_matrix]} for is_matrix in (True, False)
        ]
        more = {"momentum": 0.9} if kind in ("SGD", "RMSprop") else {}
        optimizer = getattr(torch.optim, kind)(groups, lr=0.05, weight_decay=0.1, **more)
        if fails:
            optimizer.step = half_done(optimizer, written_more)
        attempts = Attempts(1, lambda: 0)
        OptimizerSteps(attempts).follow(optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).square().mean().backward()
            optimizer.step()
            assert all(p.grad is not None for p in model.parameters())
        return torch.cat([p.detach().flatten() for p in model.parameters()]), [event.place for event in attempts.events]

    calm, _ = run(False)
    if written_more:
        with pytest.raises(OutOfMemory):
            run(True)
        return
    got, places = run(True)
    assert torch.equal(got, calm) and places == ["optimizer"]


@pytest.mark.parametrize(("function", "half"), [("_foreach_add_", False), ("_foreach_lerp_", True)])
@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_how_far_adam_has_come_is_seen_by_its_count_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, function: str, half: bool
) -> None:
    """Without decay weights come last: of a step that failed after its first write they are what they were."""
    real = getattr(torch, function)

    def run(fails_at: int | None) -> Any:
        torch.manual_seed(0)
        model = Regression()
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.05, weight_decay=0.0, foreach=True)
        trainer = tiny_trainer(tmp_path, model=model, optimizers=(optimizer, None))
        guard = attach(trainer)
        remaining = [fails_at]

        def failing(*args: Any, **kwargs: Any) -> Any:
            if trainer.state.global_step == remaining[0]:
                remaining[0] = None
                raise OutOfMemory(OUT_OF_MEMORY)
            return real(*args, **kwargs)

        monkeypatch.setattr(torch, function, failing)
        trainer.train()
        return [p.detach().clone() for p in model.parameters()], guard

    calm, _ = run(None)
    if half:
        with pytest.raises(OutOfMemory):
            run(3)
    else:
        got, guard = run(3)
        assert [event.place for event in guard.events] == ["optimizer"]
        assert all(map(torch.equal, got, calm))


def test_an_optimizer_that_never_fits_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InfeasiblePlanError, match="optimizer's step ran out of GPU memory") as caught:
        stepped(tmp_path, "state", [1, 2, 3])
    assert "8-bit optimizer" in caught.value.hint


def test_other_errors_of_the_optimizer_pass(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    attach(trainer)

    class Break(TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
            optimizer.param_groups[0]["lr"] = None

    trainer.add_callback(Break())
    with pytest.raises(TypeError):
        trainer.train()


@pytest.mark.parametrize("place", ["forward", "optimizer"])
def test_a_gradient_scaler_goes_on_as_if_nothing_had_happened(tmp_path: Path, place: str) -> None:
    """The scale grows after two good steps, and falls after one whose gradients are infinite."""

    def run(failing: str | None) -> Any:
        torch.manual_seed(0)
        model = Regression()
        optimizer = HalfWay(model.parameters(), "state", [1] if failing == "optimizer" else [])
        trainer = tiny_trainer(
            tmp_path, model=model, optimizers=(optimizer, None), max_grad_norm=0.0, gradient_accumulation_steps=2,
            num_train_epochs=3,
        )  # fmt: skip
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        trainer.accelerator.scaler = scaler
        # Where the gradient arrives: the guard would look at hooks of weights.
        model.node = model.first.weight.expand_as(model.first.weight).grad_fn.next_functions[0][0]
        model.node.register_prehook(lambda g: (g[0] * float("inf"),) if trainer.state.global_step in (0, 3) else None)
        scales: list[float] = []

        class Note(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                scales.append(scaler.get_scale())

        model.fail = running_short(2 if failing == "forward" else 0, 2, 2)  # in the second step, and when measured
        trainer.add_callback(Note())
        guard = attach(trainer)
        trainer.train()
        return torch.cat([p.detach().flatten() for p in model.parameters()]), scales, scaler.state_dict(), guard

    calm, wanted, state, _ = run(None)
    got, scales, losses, guard = run(place)
    assert len(guard.events) == 1
    assert torch.allclose(got, calm, atol=1e-6)
    assert (scales, losses) == (wanted, state)
    assert any(later < before for before, later in pairwise(wanted)), "it has fallen on the way"
    assert any(later > before for before, later in pairwise(wanted)), "and grown"
