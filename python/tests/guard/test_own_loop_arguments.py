"""``guarded_step``: parts of the wrong kind are refused in one clear error; batches may be of many kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard import guarded_step
from asrconfig_go.train import replay_batch
from own_loops import Loss, Setting, batches, by_hand, guarded, prepared, step_of


def made(**parts: Any) -> Any:
    """A guarded step of these parts; of a small model without any."""
    model = torch.nn.Linear(2, 1)
    usual = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loss_fn": _loss}
    return guarded_step(**{**usual, **parts})


def _loss(model: Any, batch: Any) -> Any:
    return model(batch["x"]).mean()


def _optimizer(kind: str) -> Any:
    return getattr(torch.optim, kind)([torch.nn.Parameter(torch.ones(1))], lr=0.1)


WRONG: list[tuple[str, Callable[[], Any], str]] = [
    ("model", lambda: 7, "model is of type int"),
    ("model", torch.nn.ReLU, "which has no parameters"),
    ("model", lambda: torch.nn.DataParallel(torch.nn.Linear(2, 1)), "one process and one GPU"),
    ("optimizer", lambda: _optimizer("LBFGS"), r"step\(\) of optimizer, of type LBFGS, requires closure"),
    ("scheduler", lambda: torch.optim.lr_scheduler.ReduceLROnPlateau(_optimizer("SGD")), "requires metrics"),
    ("accumulation", lambda: 0, "accumulation = 0 is below 1"),
    ("max_grad_norm", lambda: 0, "max_grad_norm = 0 is not a number above 0"),
    ("rule", lambda: "best", "rule = 'best' is not one of"),
    ("labels", lambda: None, "labels = None is not text"),
    ("micro_batch", lambda: 4, "micro_batch = 4 requires knowing what the loss divides by"),
    ("split_batch_statistics", lambda: 1, "split_batch_statistics = 1"),
    ("output_dir", lambda: 5, "output_dir = 5 is not a path"),
]


@pytest.mark.parametrize(("name", "value", "text"), WRONG, ids=[text for *_, text in WRONG])
def test_wrong_parts_are_refused(name: str, value: Callable[[], Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        made(**{name: value()})


@pytest.mark.parametrize(
    "other",
    [{"scaler": torch.amp.GradScaler("cpu")}, {"accumulation": 2}, {}],
    ids=["scaler", "accumulation", "processes"],
)
def test_an_accelerator_has_a_scaler_and_accumulation_of_its_own(other: Any) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    if other:
        with pytest.raises(InvalidArgumentError, match="both an accelerator and"):
            made(accelerator=accelerator, **other)
        return
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InvalidArgumentError, match="one process"):
        patch.setattr(type(accelerator), "num_processes", 2)
        made(accelerator=accelerator)


LOSSES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "number": (lambda loss: float(loss.detach()), "loss_fn returns float"),
    "output": (lambda loss: {"loss": loss}, "loss_fn returns dict"),
    "each clip": (lambda loss: loss.expand(4), r"loss_fn returns a tensor of shape \(4,\)"),
    "detached": (lambda loss: loss.detach(), "the loss has no gradient"),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_is_one_number_with_a_gradient(kind: str) -> None:
    change, text = LOSSES[kind]
    step = made(loss_fn=lambda model, batch: change(_loss(model, batch)))
    with pytest.raises(InvalidArgumentError, match=text):
        step({"x": torch.ones(4, 2)})
    assert float(made(loss_fn=lambda model, batch: _loss(model, batch).reshape(1, 1))({"x": torch.ones(4, 2)})) != 0


def test_an_empty_batch_is_that_of_the_loop_by_hand() -> None:
    """Its mean is not a number, of no clip."""
    step = made()
    assert bool(step({"x": torch.ones(0, 2)}).isnan())
    assert [(bad.what, bad.clips) for bad in step.bad_batches] == [("loss", ())]


@pytest.mark.parametrize("count", [None, torch.ones(3), "8"], ids=["nothing", "a vector", "text"])
def test_a_rule_returns_a_number(count: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="rule returns"):
        guarded(Setting(), batches(1), Loss("forward"), rule=lambda batch: count)


def test_labels_that_a_rule_counts_must_be_there() -> None:
    run = prepared(Setting())
    step = step_of(run, Setting(), Loss(), rule="token_mean", labels="targets")
    with pytest.raises(InvalidArgumentError, match="which has no entry 'targets'"):
        step(batches(1)[0])
    assert torch.equal(run.weights(), run.start)


KINDS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda b: (b["x"], b["word"], b["labels"]),
    "list": lambda b: [b["x"], b["word"], b["labels"]],
    "pairs": lambda b: ((b["x"], b["word"]), b["labels"]),
    "lists of pairs": lambda b: [[b["x"], b["word"]], [b["x"], b["labels"]]],  # as PyTorch collates pairs
    "nested": lambda b: {"inputs": {"x": b["x"], "word": b["word"]}, "labels": b["labels"], "name": "train"},
    "rows": lambda b: [dict(zip(b, row, strict=True)) for row in zip(*b.values(), strict=True)],
    "tensor": lambda b: torch.cat([b["x"], b["word"][:, None], b["labels"][:, None]], dim=1),
}


def _plain(batch: Any) -> Any:
    """A batch of any of these kinds as a mapping."""
    if isinstance(batch, torch.Tensor):
        return {"x": batch[:, :8], "word": batch[:, 8].long(), "labels": batch[:, 9].long()}
    if isinstance(batch, dict):
        return {**batch["inputs"], "labels": batch["labels"]}
    if isinstance(batch[0], tuple | list):
        return {"x": batch[0][0], "word": batch[0][1], "labels": batch[1][-1] if type(batch) is list else batch[1]}
    if isinstance(batch[0], dict):
        return {name: torch.stack([row[name] for row in batch]) for name in batch[0]}
    return dict(zip(("x", "word", "labels"), batch, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_all_kinds_are_split(kind: str) -> None:
    data, inner = batches(6), Loss("backward", 2)

    def loss_fn(model: Any, batch: Any) -> Any:
        inner.batch = loss_fn.batch  # type: ignore[attr-defined]
        return inner(model, _plain(batch))

    reference, run = by_hand(Setting(2), data), guarded(Setting(2), [KINDS[kind](b) for b in data], loss_fn)
    assert [(e.micro_batch_before, e.micro_batch_after) for e in run.step.events] == [(6, 3)]
    assert run.distance(reference) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_bad_batches_of_all_kinds_are_replayed(kind: str, tmp_path: Path) -> None:
    (data,) = batches(1)
    data["x"][3] = torch.nan

    def loss_fn(model: Any, batch: Any) -> Any:
        return Loss()(model, _plain(batch))

    run = guarded(Setting(), [KINDS[kind](data)], loss_fn, bad_clips="skip", output_dir=tmp_path)
    replay = replay_batch(tmp_path / "bad-batch", run.model, loss_fn=loss_fn)
    assert [clip.clip.number for clip in replay.to_blame] == [3] and len(replay.clips) == 8
    assert f"; replay_batch({str(tmp_path / 'bad-batch')!r}, model, loss_fn=loss_fn)" in str(run.step)
    with pytest.raises(InvalidArgumentError, match=r"loss is that of .*loss_fn"):
        replay_batch(tmp_path / "bad-batch", run.model)


def test_a_loss_function_that_takes_entries_out_of_its_batch() -> None:
    """They are missing in the loop's own batch, as without a guard, and are there again in the next attempt."""
    data, inner = batches(6), Loss("backward", 2)

    def loss_fn(model: Any, batch: Any) -> Any:
        inner.batch = loss_fn.batch  # type: ignore[attr-defined]
        return inner(model, {"labels": batch.pop("labels"), **batch})

    reference, run = by_hand(Setting(2), batches(6)), guarded(Setting(2), data, loss_fn)
    assert run.step.events and run.distance(reference) < 1e-12
    assert [i for i, batch in enumerate(data) if "labels" not in batch] == [0, 1, 2]
