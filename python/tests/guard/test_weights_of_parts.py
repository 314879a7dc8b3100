"""What parts of a batch weigh by each rule, and the rule that a loss of one's own is found to follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from asrconfig_go._core.batches import split
from asrconfig_go.guard import attach
from asrconfig_go.guard.loss_rule import LossRule, weighted
from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer


def batch() -> dict[str, Any]:
    return {
        "input_values": torch.arange(10.0).reshape(5, 2),
        "labels": torch.tensor([[1, -100], [1, 2], [3, 4], [5, -100], [6, 7]]),
    }


def shares(rule: Any, batch: Any, parts: list[Any]) -> list[float]:
    loss_rule = LossRule("labels", rule)
    total = loss_rule.count(batch)
    return [float(loss_rule.share(part, total)) for part in parts]


def test_weights() -> None:
    total, parts = batch(), split(batch(), 2)
    assert shares("mean", total, parts) == [0.4, 0.4, 0.2]
    assert shares("token_mean", total, parts) == [0.375, 0.375, 0.25]
    assert shares("shifted_token_mean", total, parts) == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert shares("sum", total, parts) == [1.0, 1.0, 1.0]
    assert shares(lambda part: float(part["input_values"].sum()), total, parts) == [6 / 45, 22 / 45, 17 / 45]


def test_a_part_without_tokens_weighs_nothing() -> None:
    empty = {"input_values": torch.zeros(2, 2), "labels": torch.full((2, 2), -100)}
    assert shares("token_mean", empty, split(empty, 1)) == [0.0, 0.0], "nothing, not a division by zero"
    rule = LossRule("labels", "token_mean")
    share = rule.share(empty, rule.count(batch()))
    assert float(weighted(torch.tensor(float("nan")), share)) == 0.0, "its mean is not a number"


def test_batches_without_labels_count_clips() -> None:
    total = {"x": torch.zeros(4, 2)}
    assert LossRule("labels", "token_mean").count(total) == LossRule("labels", "mean").count(total) == 4
    assert LossRule("labels", "mean").count((torch.zeros(4, 2), torch.zeros(4))) == 4


def test_positions_that_a_batch_has_shifted_itself_are_counted_as_they_are() -> None:
    rule = LossRule("labels", "shifted_token_mean")
    assert int(rule.count({"labels": torch.tensor([[1, 2, 3]])})) == 2
    shifted = {"labels": torch.tensor([[1, 2, 3]]), "shift_labels": torch.tensor([[2, 3, -100]])}
    assert int(rule.count(shifted)) == 2


class Own(Regression):
    """Whose loss ``kind`` says; of batches larger than ``fits`` it raises out of memory, in both modes."""

    def __init__(self, kind: str, fits: int) -> None:
        super().__init__()
        self.kind, self.fits = kind, fits

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        output = super().forward(x, labels, index)
        if len(x) > self.fits:
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)
        return {**output, "loss": self.loss_of((output["logits"] - labels).square().squeeze(-1), index)}

    def loss_of(self, rows: Any, index: Any) -> Any:
        if self.kind == "clips that count":
            weights = 1 + index % 3
            return (rows * weights).sum() / weights.sum()
        return rows.mean() if self.kind == "mean" else torch.logsumexp(rows, 0)


def own(output: Path, kind: str, fits: int) -> Any:
    torch.manual_seed(0)
    return tiny_trainer(output, model=Own(kind, fits), per_device_eval_batch_size=4)


@pytest.mark.parametrize("kind", ["contrastive", "clips that count"])
def test_a_loss_that_no_rule_fits_is_not_split(tmp_path: Path, kind: str) -> None:
    trainer = own(tmp_path, kind, 2)
    guard = attach(trainer)
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        trainer.train()
    assert guard.rule is None and "no rule" in guard.unfit
    if hasattr(caught.value, "__notes__"):
        assert "a loss that fits no rule" in " ".join(caught.value.__notes__)
        assert "call attach(trainer, rule=" in " ".join(caught.value.__notes__) or "pass rule=" in " ".join(
            caught.value.__notes__
        )


def test_a_given_rule_is_taken_in_evaluation_where_none_fits(tmp_path: Path) -> None:
    trainer = own(tmp_path, "contrastive", 2)
    guard = attach(trainer, rule="mean")
    loss = trainer.evaluate()["eval_loss"]
    trainer.model.eval()
    data = trainer.eval_dataset
    parts = split({"x": data.x, "labels": data.y, "index": torch.arange(len(data))}, 2)
    with torch.no_grad():
        wanted = sum(float(trainer.model(**part)["loss"]) for part in parts) / len(parts)
    assert loss == pytest.approx(wanted, rel=1e-5)
    assert {event.place for event in guard.events} == {"evaluation"}


def test_losses_that_are_not_finite_are_those_of_the_whole(tmp_path: Path) -> None:
    trainer = own(tmp_path, "mean", 2)
    with torch.no_grad():
        trainer.model.last.bias.fill_(float("nan"))
    attach(trainer)
    assert trainer.evaluate()["eval_loss"] != trainer.evaluate()["eval_loss"], "not a number"
