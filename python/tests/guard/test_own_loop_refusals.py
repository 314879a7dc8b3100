"""``guarded_step``: what it refuses, bad clips, and the state in which an error leaves a loop of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asrconfig_go.errors import InfeasiblePlanError
from asrconfig_go.guard import BadClipError
from own_loops import WORDS, Loss, Setting, batches, by_hand, guarded, prepared, step_of
from tiny_training import OUT_OF_MEMORY, notes_of

EXACT = 1e-12
OutOfMemory = torch.cuda.OutOfMemoryError


# What a loss divides by.


CLASS_WEIGHTS = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)


@pytest.mark.parametrize("as_tensor", [True, False])
def test_a_rule_of_ones_own(as_tensor: bool) -> None:
    """Cross entropy with class weights divides by those of the batch."""
    data, setting = batches(6), Setting(2)
    loss_fn = Loss("backward", 2, class_weights=CLASS_WEIGHTS)
    with pytest.raises(OutOfMemory, match="Tried to allocate"):
        guarded(setting, data, loss_fn)

    def weight(batch: Any) -> Any:
        total = CLASS_WEIGHTS[batch["labels"]].sum()
        return total if as_tensor else float(total)

    reference = by_hand(setting, data, Loss(class_weights=CLASS_WEIGHTS))
    run = guarded(setting, data, loss_fn, rule=weight)
    assert run.step.rule == "given" and run.step.events
    assert run.distance(reference) < EXACT


def test_a_sum_and_a_mean_over_labels_are_measured() -> None:
    """Labels of -100 are padding; a rule is that of the loss, not of its name."""
    data = batches(6)
    for batch in data:
        batch["labels"][::3] = -100
    for reduction, rule in (("mean", "token_mean"), ("sum", "sum")):
        inner = Loss("forward", 2)

        def loss_fn(model: Any, batch: Any, inner: Any = inner, reduction: str = reduction) -> Any:
            inner.batch = getattr(loss_fn, "batch", -1)
            inner(model, {**batch, "labels": batch["labels"].clamp(min=0)})
            logits = model(batch["x"], batch["word"])
            return torch.nn.functional.cross_entropy(logits, batch["labels"], reduction=reduction)

        setting = Setting()
        reference, run = by_hand(setting, data, loss_fn), guarded(setting, data, loss_fn)
        assert run.step.rule == rule and run.step.events
        assert run.distance(reference) < EXACT


def test_batches_that_a_function_splits() -> None:
    """An entry with another number of rows: pairs of clips. The function knows how, and the loss is measured by it."""
    data, inner = batches(6), Loss("backward", 2)
    for batch in data:
        batch["pairs"] = torch.arange(3)

    def split(batch: Any, size: int) -> list[Any]:
        count = len(batch["x"])
        return [
            {name: value if name == "pairs" else value[i : i + size] for name, value in batch.items()}
            for i in range(0, count, size)
        ]

    reference, run = by_hand(Setting(), data), guarded(Setting(), data, inner, split=split)
    assert [(e.micro_batch_before, e.micro_batch_after) for e in run.step.events] == [(6, 3)]
    assert run.distance(reference) < EXACT
    with pytest.raises(InfeasiblePlanError, match="pairs has 3"):
        guarded(Setting(), data, inner)


# What goes wrong.


def test_a_batch_of_another_type_is_tried_again_whole() -> None:
    data = batches(3)

    class Shortage:  # an attribute of a class, as what a failed attempt changes of objects is put back
        left = 1

    def loss_fn(model: Any, batch: Any) -> Any:
        if loss_fn.batch == 1 and Shortage.left:  # type: ignore[attr-defined]
            Shortage.left = 0
            raise OutOfMemory(OUT_OF_MEMORY)
        return Loss()(model, vars(batch))

    run = guarded(Setting(), [SimpleNamespace(**b) for b in data], loss_fn)
    assert len(run.step.events) == 1
    assert torch.equal(run.weights(), by_hand(Setting(), data).weights())
    data[2]["x"][1, 0] = torch.nan
    with pytest.raises(BadClipError, match="the loss is not finite"):
        guarded(Setting(), [SimpleNamespace(**b) for b in data], loss_fn, bad_clips="raise")


@pytest.mark.parametrize("place", ["forward", "backward"])
def test_gradients_that_were_there_before(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """Those that a batch adds to until it fails cannot be put back; where it fails in forward they stay."""
    (batch,) = batches(1)
    moved = []
    for failing in (9, 0):
        run, loss_fn = prepared(Setting()), Loss(place, failing)
        step = step_of(run, Setting(), loss_fn)
        run.model.last.weight.square().sum().backward()
        loss_fn.batch = 0
        if failing == 0 and place == "backward":
            with pytest.raises(OutOfMemory) as caught:
                step(batch)
            assert "has added to gradients that were there before it began" in notes_of(caught.value, caplog.text)
            return
        step(batch)
        moved.append(run)
    assert moved[1].distance(moved[0]) < EXACT


# Bad clips.


def with_nan(number: int, count: int = 6) -> list[Any]:
    data = batches(count)
    data[number]["x"][1, 0] = torch.nan
    return data


def without_row(batch: Any, row: int) -> Any:
    rows = [i for i in range(len(batch["x"])) if i != row]
    return {name: value[rows] for name, value in batch.items()}


def outside(number: int, count: int = 6) -> list[Any]:
    """A word that is not in the vocabulary, in row 1."""
    data = batches(count)
    data[number]["word"][1] = WORDS
    return data


@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_clip_that_is_not_finite_is_named(accumulation: int, tmp_path: Path) -> None:
    """Training continues as without a guard, which loses the weights."""
    setting = Setting(accumulation, 1.0)
    run = guarded(setting, with_nan(1), output_dir=tmp_path)
    (bad, *_) = run.step.bad_batches
    assert (bad.global_step, bad.what, bad.done) == (1 // accumulation, "loss", "reported")
    assert [(clip.number, clip.why) for clip in bad.clips] == [(1, "its loss is nan")]
    assert "clip 1 of its batch" in repr(run.step) and Path(bad.folder, "batch.pt").exists()
    assert not run.weights().isfinite().all()


@pytest.mark.parametrize("number", [1, 5], ids=["in a whole window", "in the last one, of two"])
@pytest.mark.parametrize("bad", [with_nan, outside])
def test_skipped_clips_have_never_been_in_their_batches(bad: Callable[..., Any], number: int) -> None:
    setting, data = Setting(4, 1.0), batches(6)
    run = guarded(setting, bad(number), bad_clips="skip")
    data[number] = without_row(data[number], 1)
    assert run.step.skipped == 1 and run.step.bad_batches[0].done == "left out"
    assert run.distance(by_hand(setting, data)) < EXACT


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize("bad", [with_nan, outside])
def test_raised_before_weights_change(bad: Callable[..., Any], number: int) -> None:
    """The gradients of the window are cleared: who catches the error may continue with the next batch."""
    setting = Setting(4, 1.0)
    run, data = prepared(setting), bad(number)
    step = step_of(run, setting, Loss(), bad_clips="raise")
    with pytest.raises(BadClipError, match="clip 1 of its batch"):
        for batch in data:
            step(batch)
        step.finish()
    assert len(run.gradients) == number // 4
    assert all(p.grad is None for p in run.model.parameters())


def test_an_error_of_the_loss_function_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """With a note that names the clip; the batch is left out where the loop catches the error."""
    run, data = prepared(Setting()), outside(1, 3)
    step = step_of(run, Setting(), Loss())
    step(data[0])
    with pytest.raises(IndexError, match="index out of range") as caught:
        step(data[1])
    assert "clip 1 of its batch: it raises IndexError" in notes_of(caught.value, caplog.text)
    step(data[2])
    assert run.distance(by_hand(Setting(), [data[0], data[2]])) == 0


def test_a_jump_of_the_gradient_norm_is_named() -> None:
    data = [{**batch, "times": torch.ones(len(batch["x"]))} for batch in batches(24)]
    data[22]["times"][3] = 1e4

    def loss_fn(model: Any, batch: Any) -> Any:
        logits = model(batch["x"], batch["word"])
        losses = torch.nn.functional.cross_entropy(logits, batch["labels"], reduction="none")
        return (losses * batch["times"]).mean()

    run = guarded(Setting(1, 0.1), data, loss_fn)
    (jump,) = run.step.bad_batches
    assert (jump.global_step, jump.what, [clip.number for clip in jump.clips]) == (22, "jump", [3])


# The state behind an error.


def test_memory_that_does_not_even_fit_one_clip(tmp_path: Path) -> None:
    """The clip is named; gradients are cleared, and the next batch begins a window."""
    setting, data = Setting(2), batches(5)
    run, loss_fn = prepared(setting), Loss("backward", 9, most=0)
    step = step_of(run, setting, loss_fn, output_dir=tmp_path, rule="mean")
    for loss_fn.batch, batch in zip((0, 1, 2, 9, 4, 5), [*data[:3], data[0], *data[3:]], strict=True):
        if loss_fn.batch == 9:
            with pytest.raises(InfeasiblePlanError, match="ran out of GPU memory"):
                step(batch)
            assert all(p.grad is None for p in run.model.parameters())
            continue
        step(batch)
    assert [bad.what for bad in step.bad_batches] == ["memory"]
    assert len(run.gradients) == 2
    assert run.distance(by_hand(setting, [*data[:2], *data[3:]])) < EXACT


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_clips_that_are_too_long(policy: str) -> None:
    """Batches with clip 7 do not fit in any size: it is left out, or replaced by what a function makes of it."""
    data = [{**batch, "length": torch.ones(8)} for batch in batches(2)]
    setting = Setting(optimizer=torch.optim.SGD)

    def loss_fn(model: Any, batch: Any) -> Any:
        if bool((batch["x"][:, 0] == 100.0).any()):
            raise OutOfMemory(OUT_OF_MEMORY)
        return Loss()(model, batch)

    def shorter(batch: Any) -> list[Any]:
        return [{**batch, "x": batch["x"] * 0.01}]

    data[1]["x"][0] = 100.0
    run = guarded(setting, data, loss_fn, too_long="skip" if policy == "skip" else shorter, rule="mean")
    data[1] = without_row(data[1], 0) if policy == "skip" else {**data[1], "x": data[1]["x"].clone()}
    if policy == "replace":
        data[1]["x"][0] *= 0.01
    assert run.step.skipped == 1
    assert run.distance(by_hand(setting, data)) < EXACT
