"""Cutting collated batches, and what micro-batches weigh."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from asrconfig_go.guard.loss_weights import NotFiniteError, Totals, fitting_rules, totals  # noqa: E402
from asrconfig_go.guard.prediction_step import EvaluationRule  # noqa: E402

from asrconfig_go.batching.batch_lengths import Extent, extent  # noqa: E402
from asrconfig_go.batching.collated_batch import batch_size, split  # noqa: E402
from asrconfig_go.errors import InvalidArgumentError  # noqa: E402
from asrconfig_go.guard.micro_batch_budget import Budget  # noqa: E402


def batch() -> dict[str, Any]:
    return {
        "input_values": torch.arange(10.0).reshape(5, 2),
        "labels": torch.tensor([[1, -100], [1, 2], [3, 4], [5, -100], [6, 7]]),
        "names": ["a", "b", "c", "d", "e"],
        "return_dict": True,
        "mask": None,
        "scale": torch.tensor(2.0),
        "language": "sv",
    }


def test_pieces_have_every_sample_once_and_what_is_shared() -> None:
    whole = batch()
    parts = split(whole, 2)
    assert [batch_size(part) for part in parts] == [2, 2, 1]
    assert torch.equal(torch.cat([part["input_values"] for part in parts]), whole["input_values"])
    assert [name for part in parts for name in part["names"]] == whole["names"]
    for part in parts:
        assert (part["return_dict"], part["mask"], float(part["scale"]), part["language"]) == (True, None, 2.0, "sv")
    assert parts[0]["input_values"].data_ptr() == whole["input_values"].data_ptr(), "a view"


def test_the_kind_of_mapping_stays() -> None:
    features = transformers.BatchFeature(batch())
    parts = split(features, 3)
    assert [type(part) for part in parts] == [transformers.BatchFeature] * 2
    assert len(parts[1]["names"]) == 2
    assert len(features["names"]) == 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weights": torch.zeros(3)}, "a batch of 5 samples cannot be split: weights has 3"),
        ({"a": torch.zeros(2), "b": [1]}, "cannot be split: a has 2, b has 1"),
    ],
)
def test_entries_that_disagree_are_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as caught:
        split({**batch(), **change}, 2)
    assert "split=" in str(caught.value)


def test_a_batch_of_settings_cannot_be_cut() -> None:
    with pytest.raises(InvalidArgumentError, match="no entry with one value for each sample"):
        batch_size({"scale": torch.tensor(1.0), "name": "x"})


def test_short_clips_ride_in_larger_micro_batches() -> None:
    budget = Budget(None)
    assert budget.size(Extent(1000), 16) == 16
    budget.shrink(Extent(1000), 8)
    assert [budget.size(Extent(n), 16) for n in (100, 500, 800, 1000, 3000, 9000)] == [16, 16, 10, 8, 2, 1]
    assert budget.size(Extent(100, width=80), 16) == 1
    budget.shrink(Extent(9000), 1)
    assert budget.values == 8000, "a limit does not grow"
    budget = Budget(4)
    budget.shrink(extent({"labels": torch.zeros(4)}), 2)
    assert budget.size(extent({"labels": torch.zeros(9)}), 9) == 2, "an input of another name: samples count"


def test_weights() -> None:
    whole = totals(batch())
    assert (whole.samples, int(whole.tokens)) == (5, 8)
    parts = [totals(part) for part in split(batch(), 2)]
    assert [part.share("mean", whole) for part in parts] == [0.4, 0.4, 0.2]
    assert [float(part.share("token_mean", whole)) for part in parts] == [0.375, 0.375, 0.25]
    assert [part.share("sum", whole) for part in parts] == [1.0, 1.0, 1.0]
    assert Totals(1, 0).share("token_mean", Totals(2, 0)) == 0, "no tokens: nothing, not a division by zero"
    assert totals({"x": [1, 2]}).tokens == 0


class FakeTrainer:
    """What ``fitting_rules`` asks of one whose loss kind cannot be told."""

    compute_loss_func = object()

    class args:
        fp16 = bf16 = False


LOSSES = {
    "mean": lambda rows: rows.mean(),
    "sum": lambda rows: rows.sum(),
    "token_mean": None,
}


@pytest.mark.parametrize("rule", list(LOSSES))
def test_the_rule_is_found_from_losses(rule: str) -> None:
    def loss(part: Any) -> Any:
        rows = part["input_values"].sum(-1).double()
        if rule == "token_mean":
            tokens = (part["labels"] != -100).sum(-1)
            return (rows * tokens).sum() / tokens.sum()
        return LOSSES[rule](rows)  # type: ignore[misc]

    assert fitting_rules(FakeTrainer(), batch(), loss) == (rule,)


def test_a_loss_that_looks_across_samples_is_refused() -> None:
    def contrastive(part: Any) -> Any:
        return torch.logsumexp(part["input_values"].sum(-1), 0)

    with pytest.raises(InvalidArgumentError, match="by no known rule") as caught:
        fitting_rules(FakeTrainer(), batch(), contrastive)
    assert "attach(rule=" in str(caught.value)


def test_a_part_whose_loss_is_not_finite_tells_nothing() -> None:
    """As in 16 bits: that of the whole is finite."""

    def overflowing(part: Any) -> Any:
        return torch.tensor(float("nan") if len(part["labels"]) == 1 else 1.0)

    with pytest.raises(NotFiniteError):
        fitting_rules(FakeTrainer(), batch(), overflowing)


@pytest.mark.parametrize("given", ["mean", None])
def test_a_given_rule_goes_in_evaluation_where_none_fits(given: str | None) -> None:
    def contrastive(part: Any) -> Any:
        return torch.logsumexp(part["input_values"].sum(-1), 0), None, None

    rule = EvaluationRule(FakeTrainer(), given)
    if given is None:
        with pytest.raises(InvalidArgumentError, match="by no known rule"):
            rule.of(batch(), contrastive, None, 4)
    else:
        assert rule.of(batch(), contrastive, None, 4) == given
