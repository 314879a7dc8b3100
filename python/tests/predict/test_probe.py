"""A look that leaves no trace, and an optimizer's states before its first step."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers.optimization import Adafactor, get_linear_schedule_with_warmup

import trace_fixtures
from asrconfig_go.errors import InfeasiblePlanError, UnsupportedError
from asrconfig_go.predict.probe import optimizer_states, untouched
from speech_models import MODELS
from tiny_training import OUT_OF_MEMORY
from traces import Noisy, batches, same, snapshot, used


def test_a_trial_leaves_no_trace_even_when_it_raises() -> None:
    model = used(Noisy())
    before = snapshot(model)
    with pytest.raises(ZeroDivisionError), untouched(model):
        assert all(p.grad is None for p in model.parameters())
        model.train()
        model(**batches(5))["loss"].backward()
        raise ZeroDivisionError
    assert same(before, snapshot(model))


@pytest.mark.parametrize(("family", "name"), [("wav2vec2", "layerdrop"), ("whisper", "encoder_layerdrop")])
def test_no_layer_is_dropped_inside(family: str, name: str) -> None:
    model = getattr(trace_fixtures, family)(**{name: 0.4})
    holders = [owner for m in model.modules() for owner in (m, getattr(m, "config", None)) if owner is not None]

    def drops() -> set[Any]:
        return {vars(owner).get(drop) for owner in holders for drop in ("layerdrop", "encoder_layerdrop")} - {None}

    before = drops()
    assert 0.4 in before
    with untouched(model):
        assert drops() == {0.0}
    assert drops() == before


def test_weights_that_changed_are_told() -> None:
    model = Noisy()
    with pytest.raises(UnsupportedError, match=r"changed 1 weights, inner\.bias first"), untouched(model):
        model.inner.bias.data[1] = torch.nextafter(model.inner.bias[1], torch.tensor(9.0))


def test_an_optimizer_that_steps_within_backward_is_refused() -> None:
    model = Noisy()
    model.inner.weight.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(UnsupportedError, match="within backward"), untouched(model):
        pass


OPTIMIZERS = {
    "adamw foreach": lambda groups: torch.optim.AdamW(groups, lr=0.1, foreach=True),
    "adamw for loop": lambda groups: torch.optim.AdamW(groups, lr=0.1, foreach=False),
    "adamw fused": lambda groups: torch.optim.AdamW(groups, lr=0.1, fused=True),
    "amsgrad": lambda groups: torch.optim.Adam(groups, lr=0.1, amsgrad=True),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.1, momentum=0.9),
    "adafactor": lambda groups: Adafactor(groups, scale_parameter=True, relative_step=True, warmup_init=True),
    "adafactor with a rate": lambda groups: Adafactor(groups, lr=0.1, relative_step=False, scale_parameter=False),
}


def groups_of(model: Any) -> list[dict[str, Any]]:
    trained = [p for p in model.parameters() if p.requires_grad]
    return [{"params": trained[::2], "weight_decay": 0.3}, {"params": trained[1::2]}]


@pytest.mark.parametrize("kind", list(OPTIMIZERS))
def test_states_are_allocated_and_gone_again(kind: str) -> None:
    torch.manual_seed(0)
    model = MODELS["ctc mean"]()
    next(model.parameters()).requires_grad_(False)
    twin = copy.deepcopy(model)
    optimizer, other = (OPTIMIZERS[kind](groups_of(m)) for m in (model, twin))
    rated = optimizer.param_groups[0]["lr"] is not None
    schedules = [get_linear_schedule_with_warmup(o, 2, 10) if rated else None for o in (optimizer, other)]
    settings = [dict(group) for group in optimizer.param_groups]
    for p in model.parameters():
        p.grad = torch.ones_like(p) if p.requires_grad else None
    before = snapshot(model)
    calls: list[Any] = []
    optimizer.register_step_post_hook(lambda *args: calls.append(args))
    with optimizer_states(optimizer) as states:
        tensors = [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
        assert states.bytes == sum(v.numel() * v.element_size() for v in tensors) > 0
        assert {id(p) for p in optimizer.state} == {id(p) for p in model.parameters() if p.requires_grad}
        assert states.parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)
        assert not states.note
        assert all(p.grad is None for p in model.parameters())
    assert same(before, snapshot(model))
    assert not optimizer.state
    assert not calls, "a step that is none is not for the user's hooks"
    assert [dict(group) for group in optimizer.param_groups] == settings
    for m, o, schedule in zip((model, twin), (optimizer, other), schedules, strict=True):  # and it trains as ever
        for _ in range(3):
            for p in m.parameters():
                p.grad = torch.ones_like(p) if p.requires_grad else None
            o.step()
            if schedule:
                schedule.step()
    assert same(model.state_dict(), twin.state_dict())


def test_states_that_are_there_stay() -> None:
    model = Noisy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(**batches(5))["loss"].backward()
    optimizer.step()
    before, state = snapshot(model), copy.deepcopy(optimizer.state_dict())
    with optimizer_states(optimizer) as states:
        assert states.note == "its states were there already"
        assert states.bytes > 0
    assert same(before, snapshot(model))
    assert same(state, optimizer.state_dict())


def test_a_wrapped_optimizer_with_a_gradient_scaler() -> None:
    from accelerate import Accelerator
    from accelerate.optimizer import AcceleratedOptimizer

    Accelerator(cpu=True)
    model, scaler = Noisy(), torch.amp.GradScaler("cpu")
    optimizer = AcceleratedOptimizer(torch.optim.AdamW(model.parameters()), scaler=scaler)
    before, scale = snapshot(model), scaler.state_dict()
    optimizer.optimizer.step = optimizer._optimizer_patched_step_method  # as it is within the wrapper's own step
    with optimizer_states(optimizer) as states:
        assert states.optimizer == "AdamW"
        assert states.bytes == 8 * states.parameters + 4 * len(list(model.parameters()))
    assert same(before, snapshot(model))
    assert scaler.state_dict() == scale
    assert not optimizer._accelerate_step_called
    assert not optimizer.state


class Drifting(torch.optim.SGD):  # type: ignore[misc, name-defined]
    """Moves by its learning rate, without any gradient."""

    def step(self, closure: Any = None) -> None:
        super().step()
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(group["lr"])


def test_the_learning_rate_is_none() -> None:
    model = Noisy()
    before = snapshot(model)
    with optimizer_states(Drifting(model.parameters(), lr=0.1, momentum=0.9)) as states:
        assert (states.bytes, states.note) == (4 * states.parameters, "")
    assert same(before, snapshot(model))


class Restless(torch.optim.SGD):  # type: ignore[misc, name-defined]
    """Changes weights whatever its learning rate is: all, or only those of ``least`` values and more."""

    least = 0

    def step(self, closure: Any = None) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None and p.numel() >= self.least:
                        p.mul_(0.5)


def test_an_optimizer_that_changes_weights_is_found_out_before_it_does_harm() -> None:
    model = Noisy()
    before, optimizer = snapshot(model), Restless(model.parameters(), lr=0.1)
    with optimizer_states(optimizer) as states:
        assert "changes weights" in states.note
        assert states.bytes == 0
    assert same(before, snapshot(model))
    Restless.least = model.inner.weight.numel() * 2
    model.wide = torch.nn.Linear(8, 8, bias=False)
    with (
        pytest.raises(UnsupportedError, match="Restless changed weights"),
        optimizer_states(Restless(model.parameters(), lr=0.1)),
    ):
        pass


class Hungry(torch.optim.AdamW):  # type: ignore[misc, name-defined]
    """Runs out of memory, or fails otherwise, in steps of more than ``limit`` weights."""

    limit, error = 4, torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

    def step(self, closure: Any = None) -> Any:
        super().step()
        if len(self.state) > self.limit:
            raise self.error


def test_states_that_do_not_fit_are_an_infeasible_plan() -> None:
    model = MODELS["ctc mean"]()
    before, optimizer = snapshot(model), Hungry(model.parameters())
    count = sum(p.numel() for p in model.parameters())
    with pytest.raises(InfeasiblePlanError) as caught, optimizer_states(optimizer):
        pass
    message = re.match(
        rf"Hungry needs about ([\d.]+) KiB of states for {count / 1e3:.1f} k trainable", caught.value.message
    )
    assert message is not None
    assert float(message[1]) == pytest.approx(8 * count / 2**10, rel=0.01)  # each state has a step counter, too
    assert "Adafactor" in caught.value.hint
    assert "LoRA" in caught.value.hint
    assert same(before, snapshot(model))
    assert not optimizer.state


def test_other_errors_of_a_step_pass_and_leave_no_trace() -> None:
    model = MODELS["ctc mean"]()
    before, optimizer = snapshot(model), Hungry(model.parameters())
    optimizer.error = RuntimeError("no such kernel")
    with pytest.raises(RuntimeError, match="no such kernel"), optimizer_states(optimizer):
        pass
    assert same(before, snapshot(model))
    assert not optimizer.state
