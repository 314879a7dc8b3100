"""Savings that a plan names: each with the memory of a trace with the change, and the user's model as it was."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from torch import nn

from asrconfig_go import MemoryModel, create_optimal_config
from asrconfig_go.config import TrainingConfig
from asrconfig_go.errors import InfeasiblePlanError
from asrconfig_go.plan import freeze, planner, text_logits_only
from asrconfig_go.plan.memory_savings import frozen_normalised

VOCABULARY = 60_000  # so wide that logits take most of the memory
PROMPT, LOGITS = 200, "logits of the text alone"


def tokens(folder: Path) -> Any:
    draw = np.random.default_rng(0)
    rows = [{"input_ids": draw.integers(1, VOCABULARY, PROMPT + 5 + n % 4).tolist()} for n in range(16)]
    return datasets.Dataset.from_list(rows)


def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Prompts before short answers, the loss on the answers."""
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    padded = nn.utils.rnn.pad_sequence(ids, batch_first=True)
    labels = padded.masked_fill(padded == 0, -100)
    labels[:, :PROMPT] = -100
    return {"input_ids": padded, "attention_mask": (padded != 0).long(), "labels": labels}


def decoder() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    return transformers.LlamaForCausalLM(config)


def planned(rows: Any, model: Any, collator: Any) -> TrainingConfig:
    config, _ = create_optimal_config(rows, model, gpu="T4", collator=collator, target_batch_size=8, verbose=False)
    return config


def savings(config: TrainingConfig) -> dict[str, Any]:
    names = (LOGITS, "evaluation mode")
    return {a.name: a for a in config.alternatives if a.name.endswith(names)}


@pytest.mark.slow
def test_logits_of_the_text_alone_are_an_alternative(tmp_path: Path) -> None:
    model, rows = decoder(), tokens(tmp_path)
    config = planned(rows, model, collate)
    saving = savings(config)[LOGITS]
    assert saving.what.startswith("collator = text_logits_only(collator, model): ")
    assert saving.peak_bytes is not None and saving.peak_bytes < config.predicted_bytes
    wrapped = planned(rows, model, text_logits_only(collate, model))
    assert LOGITS not in savings(wrapped)  # it is made already
    batch, longest = config.per_device_train_batch_size, max(rows["input_ids"], key=len)
    cut = text_logits_only(collate, model)([{"input_ids": longest}] * batch)
    with MemoryModel.trace(
        model, lambda *_: cut, precision=config.precision, gpu="T4", optimizer=config.optimizer, progress=False,
        gradient_checkpointing=config.gradient_checkpointing, accumulation=3, points=[(batch, len(longest), 9)],
        length_per_second=50,
    ) as memory:  # fmt: skip
        expected = memory.estimate(batch, len(longest) / 50, 9).peak_device
    if config.micro_batching == "fixed":
        assert saving.peak_bytes == expected


class Frozen(nn.Module):  # type: ignore[misc]
    """An encoder with batch normalisation that does not train, and a head that does."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8)).requires_grad_(False)
        self.head = nn.Linear(8, 2)

    def forward(self, input_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        frames = self.encoder[0](input_values.unfold(1, 6, 6)).transpose(1, 2)
        logits = self.head(self.encoder[1](frames).mean(2))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.slow
def test_remedies_of_a_training_that_does_not_fit_name_them_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_plan = planner.plan

    def refused(*arguments: Any) -> dict[str, Any]:
        make_plan(*arguments)
        raise InfeasiblePlanError("it does not fit", "take a larger GPU")

    monkeypatch.setattr(planner, "plan", refused)
    with pytest.raises(InfeasiblePlanError) as error:
        planned(tokens(tmp_path), decoder(), collate)
    remedy = r"take a larger GPU\n  · collator = text_logits_only\(collator, model\): .* instead of .* for 1 × "
    assert re.match(remedy, error.value.hint)


def test_frozen_parts_in_training_mode_are_found() -> None:
    model = Frozen()
    assert [name for name, _ in frozen_normalised(model)] == ["encoder"]
    model.encoder[0].requires_grad_(True)
    assert [name for name, _ in frozen_normalised(model)] == ["encoder.1"]
    freeze(model.encoder)
    assert list(frozen_normalised(model)) == []
    assert list(frozen_normalised(Frozen().head)) == []


@pytest.mark.slow
def test_a_frozen_encoder_in_training_mode_is_named_and_left_as_it_is() -> None:
    draw = np.random.default_rng(0)
    rows = datasets.Dataset.from_list(
        [{"input_values": draw.standard_normal(600 + 60 * n).tolist(), "label": n % 2} for n in range(12)]
    )

    def pad(batch: list[dict[str, Any]]) -> dict[str, Any]:
        waves = [torch.tensor(row["input_values"], dtype=torch.float32) for row in batch]
        labels = torch.tensor([row["label"] for row in batch])
        return {"input_values": nn.utils.rnn.pad_sequence(waves, batch_first=True), "labels": labels}

    model = Frozen()
    (saving,) = savings(planned(rows, model, pad)).values()
    assert saving.name == "encoder in evaluation mode"
    assert saving.what.startswith("freeze(model.encoder), so that the guard can split")
    assert all(part.training for part in model.modules()) and "train" not in vars(model.encoder)
    freeze(model.encoder)
    assert savings(planned(rows, model, pad)) == {}
