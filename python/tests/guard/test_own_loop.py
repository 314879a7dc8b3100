"""``guarded_step``: a loop of one's own moves weights as the same loop by hand that never runs out of memory."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch

from asrconfig_go.guard import guarded_step
from own_loops import Classifier, Loss, Setting, batches, by_hand, guarded, prepared, step_of

EXACT = 1e-12  # of the movement: rounding of float64
PLACES = ("forward", "loss", "backward")
FULL = Setting(4, 0.5, scaled=True, scheduled=True)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "setting",
    [Setting(), Setting(4), Setting(1, 0.5), FULL, Setting(2, scaled=True, optimizer=torch.optim.SGD)],
    ids=["plain", "accumulated", "clipped", "all", "scaled"],
)
def test_weights_move_as_by_hand(setting: Setting, place: str) -> None:
    """10 batches, so that the last window of 4 is incomplete; memory runs out in the 6th and 2 windows later."""
    data = batches(10)
    reference, run = by_hand(setting, data), guarded(setting, data, Loss(place, number=5, most=3))
    assert run.step.events and run.step.rule == "mean"
    assert run.distance(reference) < EXACT
    assert run.losses == pytest.approx(reference.losses, rel=EXACT)
    assert run.rates == reference.rates
    assert len(run.gradients) == len(reference.gradients)


@pytest.mark.parametrize("place", PLACES)
def test_every_batch_of_a_window_is_computed_again(place: str) -> None:
    """What fails is the last batch of the first window, whose first ones had fitted."""
    data, setting = batches(4), Setting(4)
    reference, run = by_hand(setting, data), guarded(setting, data, Loss(place, number=3, most=2))
    assert [(e.micro_batch_before, e.micro_batch_after) for e in run.step.events] == [(8, 4), (4, 2)]
    assert run.distance(reference) < EXACT


@pytest.mark.parametrize("failing", [99, 2, 3], ids=["nothing fails", "with the skipped step", "behind it"])
def test_a_scaler_skips_the_same_step(failing: int) -> None:
    """Gradients overflow in batch 2: neither optimizer nor scheduler steps, and the scale is halved."""
    data, setting = batches(8), Setting(1, 0.5, scaled=True, scheduled=True)
    data[2]["limit"] = 1.0
    reference, run = by_hand(setting, data), guarded(setting, data, Loss("backward", failing))
    assert len(reference.gradients) == 7
    assert reference.rates[2] == reference.rates[1] > reference.rates[3]
    assert (run.rates, run.scaler.get_scale()) == (reference.rates, reference.scaler.get_scale())
    assert run.distance(reference) < EXACT
    assert len(run.gradients) == 7 and run.step.bad_batches == []


def in_32_bits(count: int) -> list[Any]:
    """Autocast does nothing in float64."""
    return [{**batch, "x": batch["x"].float()} for batch in batches(count)]


MIXED = Setting(2, 1.0, model=lambda: Classifier().float(), optimizer=torch.optim.SGD)


@pytest.mark.parametrize("place", PLACES)
def test_autocast(place: str) -> None:
    """In bfloat16 sums in another order round differently, by 2⁻⁸ of each value."""
    data = in_32_bits(8)
    reference, run = by_hand(MIXED, data, Loss(autocast=True)), guarded(MIXED, data, Loss(place, 3, autocast=True))
    assert run.step.rule == "mean"
    assert 0 < run.distance(reference) < 5e-3


@pytest.mark.parametrize(
    "error", [RuntimeError("only 16 bits"), torch.cuda.OutOfMemoryError("CUDA out of memory")], ids=str
)
def test_a_loss_that_cannot_be_measured_without_autocast(error: Exception) -> None:
    """Rounding may hide what a loss divides by, so that it is measured without; not where 32 bits fail, as here."""

    def refuse(module: Any, inputs: Any, output: Any) -> None:
        if output.dtype != torch.bfloat16:
            raise error

    def model() -> Any:
        made = Classifier().float()
        made.last.register_forward_hook(refuse)
        return made

    data, setting = in_32_bits(8), replace(MIXED, model=model)
    reference = by_hand(setting, data, Loss(autocast=True))
    run = guarded(setting, data, Loss("backward", 3, autocast=True))
    assert run.step.rule == "mean" and run.distance(reference) < 5e-3


def test_gradients_that_cancel_in_autocast() -> None:
    """Two classes of clips that are nearly alike: rounding to 16 bits is 5 % of what is left of their gradients."""

    def model() -> Any:
        made = Classifier().float()
        with torch.no_grad():
            made.last.weight.mul_(0.1)
            made.last.bias.copy_(torch.tensor([0.0, 0.0, -30.0]))
        return made

    data = in_32_bits(6)
    for batch in data:
        batch["x"], batch["word"] = 1 + batch["x"] / 10, torch.zeros_like(batch["word"])
        batch["labels"] = torch.arange(len(batch["x"])) % 2
    run = guarded(replace(MIXED, model=model), data, Loss("forward", 2, most=2, autocast=True))
    assert run.step.rule == "mean" and not torch.is_autocast_enabled("cpu")


def test_dropout_of_a_batch_that_is_computed_again_whole() -> None:
    """Batch normalisation forbids splitting: the batch is tried again, with the same masks and statistics."""
    setting, failed = Setting(2, model=lambda: Classifier(dropout=0.5, norm=True)), []

    def loss_fn(model: Any, batch: Any) -> Any:
        loss = Loss()(model, batch)
        if loss_fn.batch in (1, 4) and loss_fn.batch not in failed:  # type: ignore[attr-defined]
            failed.append(loss_fn.batch)  # type: ignore[attr-defined]
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return loss

    data = batches(6)
    reference, run = by_hand(setting, data), guarded(setting, data, loss_fn)
    assert [(e.micro_batch_before, e.micro_batch_after) for e in run.step.events] == [(8, 8), (8, 8)]
    assert torch.equal(run.weights(), reference.weights())
    assert all(map(torch.equal, run.model.buffers(), reference.model.buffers()))
    assert_same_random(run, reference)


def test_dropout_of_micro_batches() -> None:
    """They draw other masks than the whole batch, and leave the generator as the first of them does."""
    setting, (batch,) = Setting(model=lambda: Classifier(dropout=0.5)), batches(1)
    run = guarded(setting, [batch], Loss("backward"))
    alone = prepared(setting)
    alone.model(batch["x"][:4], batch["word"][:4])
    assert torch.equal(run.random[0][0], torch.get_rng_state())


def assert_same_random(run: Any, reference: Any) -> None:
    for mine, other in zip(run.random, reference.random, strict=True):
        assert torch.equal(mine[0], other[0]) and mine[1:] == other[1:]


def noting(setting: Setting, sizes: list[int]) -> Setting:
    """The same with a model that notes the clips of each of its calls."""

    def model() -> Any:
        made = setting.model()
        made.before = sizes.append
        return made

    return replace(setting, model=model)


@pytest.mark.parametrize(
    "setting", [Setting(model=lambda: Classifier(dropout=0.5)), FULL, Setting(1, 0.5, scheduled=True)]
)
def test_idle_is_the_loop_by_hand(setting: Setting) -> None:
    """Bit by bit, with as many calls of the loss function and the model, and nothing left on the optimizer."""
    data, loss_fn, sizes = batches(10), Loss(), list[int]()
    reference, run = by_hand(setting, data), guarded(noting(setting, sizes), data, loss_fn)
    assert loss_fn.calls == len(sizes) == len(data)
    assert (run.losses, run.rates) == (reference.losses, reference.rates)
    assert all(map(torch.equal, run.gradients, reference.gradients))
    assert torch.equal(run.weights(), reference.weights())
    assert_same_random(run, reference)
    assert set(vars(run.optimizer)) == set(vars(reference.optimizer))
    assert all(p.grad is None for p in run.model.parameters())
    assert (run.step.events, run.step.notes, run.step.bad_batches) == ([], (), [])


def test_what_the_optimizer_has_besides_the_model() -> None:
    """A head outside of the model, and gradients of the whole clipped together."""
    data, moved = batches(6), []
    for place in ("", "backward"):
        run, head = prepared(Setting()), torch.nn.Linear(8, 1).double()
        torch.nn.init.constant_(head.weight, 0.1)
        torch.nn.init.zeros_(head.bias)
        run.optimizer.add_param_group({"params": head.parameters(), "lr": 0.05})
        inner = Loss(place, 2)

        def loss_fn(model: Any, batch: Any, inner: Any = inner, head: Any = head) -> Any:
            return inner(model, batch) + head(batch["x"]).square().mean()

        step = step_of(run, Setting(max_grad_norm=0.1), loss_fn)
        for inner.batch, batch in enumerate(data):
            step(batch)
        moved.append(torch.cat([run.weights(), *(p.detach().flatten() for p in head.parameters())]))
    assert step.events
    assert float((moved[0] - moved[1]).norm()) < EXACT


def test_the_mode_of_the_model_stays() -> None:
    """A part in evaluation mode, as a frozen encoder's normalisation: also while the loss is measured."""

    def model() -> Any:
        made = Classifier(norm=True)
        made.norm.eval()
        return made

    data, setting = batches(6), Setting(model=model)
    reference, run = by_hand(setting, data), guarded(setting, data, Loss("forward", 2))
    assert run.step.events and run.distance(reference) < EXACT
    assert not run.model.norm.training and run.model.training
    assert all(map(torch.equal, run.model.buffers(), reference.model.buffers()))


def test_micro_batches_from_the_first_step_on() -> None:
    data, sizes = batches(6), list[int]()
    reference, run = by_hand(FULL, data), guarded(noting(FULL, sizes), data, micro_batch=3, rule="mean")
    assert sizes == [3, 3, 2, 3, 3, 2, 3, 3] * 2
    assert run.distance(reference) < EXACT and run.step.events == []


def test_the_optimizers_step_is_repeated() -> None:
    """Where nothing was written; the optimizer is then as it was made."""

    class Short(torch.optim.SGD):  # type: ignore[misc]
        failures = 1

        def step(self, closure: Any = None) -> Any:
            if Short.failures:
                Short.failures = 0
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return super().step(closure)

    data, run = batches(6), prepared(Setting(1, 0.5, optimizer=Short))
    step = step_of(run, Setting(1, 0.5), Loss())
    for batch in data:
        step(batch)
    assert [(e.place, e.global_step) for e in step.events] == [("optimizer", 0)]
    assert torch.equal(run.weights(), by_hand(Setting(1, 0.5, optimizer=torch.optim.SGD), data).weights())
    assert "step" not in vars(run.optimizer)


def test_a_monitor_is_told_of_each_step() -> None:
    class Monitor:
        steps = 0

        def event(self, kind: str, text: str) -> None:
            assert (kind, self.steps) == ("training", 0)

        def step(self) -> None:
            self.steps += 1

    monitor = Monitor()
    guarded(Setting(4), batches(10), Loss("forward", 5), monitor=monitor)
    assert monitor.steps == 3


def test_finish_lets_batches_go() -> None:
    run, loss_fn, data = prepared(Setting(4)), Loss(), batches(5)
    step, reference_to_x = step_of(run, Setting(4), loss_fn), weakref.ref(data[4]["x"])
    for batch in data:
        step(batch)
    step.finish()
    step.finish()  # a second time there is nothing to do
    assert len(run.gradients) == 2
    del batch, data[4]
    gc.collect()
    assert reference_to_x() is None


def accelerated(place: str, precision: str, guard: bool) -> Any:
    """A loop inside ``accelerator.accumulate``, with a last window of one batch."""
    accelerate = pytest.importorskip("accelerate")
    for state in (accelerate.state.AcceleratorState, accelerate.state.GradientState):
        state._reset_state()
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2, mixed_precision=precision)
    run, loss_fn = prepared(Setting(scheduled=True)), Loss(place, 2)
    data, dtype = batches(5), torch.float64 if precision == "no" else torch.float32
    run.model.to(dtype)
    for batch in data:
        batch["x"] = batch["x"].to(dtype)
    loader = torch.utils.data.DataLoader(data, batch_size=1, collate_fn=lambda rows: rows[0])
    model, optimizer, loader, scheduler = accelerator.prepare(run.model, run.optimizer, loader, run.scheduler)
    options = {"scheduler": scheduler, "max_grad_norm": 0.5}
    step = run.step = guarded_step(model, optimizer, loss_fn, accelerator=accelerator, **options) if guard else None
    for loss_fn.batch, batch in enumerate(loader):
        with accelerator.accumulate(model):
            if step is not None:
                loss = step(batch)
            else:
                loss = loss_fn(model, batch)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        run.note(loss)
    return run


@pytest.mark.parametrize("place", ("", *PLACES))
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_inside_accumulate_of_accelerate(precision: str, place: str) -> None:
    reference, run = accelerated("", precision, guard=False), accelerated(place, precision, guard=True)
    assert (run.rates, len(run.gradients)) == (reference.rates, 3)
    assert run.distance(reference) < (5e-3 if precision == "bf16" else EXACT)
    assert len(run.step.events) == bool(place)
    if not place:
        assert torch.equal(run.weights(), reference.weights())
