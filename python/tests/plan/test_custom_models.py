"""Models and collators of the user's own: planned by their own code, or refused in one clear line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

import asrconfig_go as ac
from asrconfig_go.errors import AsrConfigError
from asrconfig_go.predict import MemoryModel
from text_models import CLASSES, LONGEST, VOCABULARY, bert, for_classes, texts

pytestmark = pytest.mark.filterwarnings("ignore")


class OwnConfig(transformers.PretrainedConfig):  # type: ignore[misc, name-defined]
    """Of a model_type that transformers does not know."""

    model_type = "own-text"

    def __init__(self, width: int = 16, vocab_size: int = VOCABULARY, **more: Any) -> None:
        self.width, self.vocab_size = width, vocab_size
        super().__init__(**more)


class OwnModel(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
    """As a notebook defines one beside its config."""

    config_class = OwnConfig

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        self.words = torch.nn.Embedding(config.vocab_size, config.width)
        self.layer = torch.nn.TransformerEncoderLayer(config.width, 2, 2 * config.width, batch_first=True)
        self.head = torch.nn.Linear(config.width, CLASSES)
        self.post_init()

    def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None) -> dict[str, Any]:
        logits = self.head(self.layer(self.words(input_ids)).mean(1))
        return {"loss": None if labels is None else torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Plain(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Neither a config nor a base class of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = torch.nn.Embedding(VOCABULARY, 16), torch.nn.Linear(16, CLASSES)

    def forward(self, input_ids: Any, labels: Any, attention_mask: Any = None) -> dict[str, Any]:
        logits = self.head(self.words(input_ids).mean(1))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def planned(model: Any, collator: Any = for_classes) -> Any:
    return ac.create_optimal_config(
        texts(), model, collator=collator, gpu="T4", target_batch_size=8, verbose=False
    )[0]  # fmt: skip


@pytest.mark.parametrize("build", [lambda: OwnModel(OwnConfig()), Plain], ids=["own config", "plain"])
def test_classes_of_ones_own_are_counted_planned_and_compared(build: Any) -> None:
    model = build()
    assert ac.profile_model(model).total_parameters == sum(p.numel() for p in model.parameters())
    config = planned(model)
    assert (config.policy, config.row_kind, config.warnings) == ("fastest", "texts", ())
    row = ac.compare_gpus(model, texts(), collator=for_classes, gpus=["T4"], target_batch_size=8).rows[0]
    assert row.peak_bytes == config.predicted_bytes
    with MemoryModel.trace(model, gpu="T4", accumulation=3, progress=False) as memory:
        traced = memory.estimate(8, LONGEST / 50)
    assert config.predicted_bytes == pytest.approx(traced.peak_device, rel=0.05)


def test_a_config_of_an_unknown_kind_says_to_pass_the_module() -> None:
    for model in (OwnConfig(), {"model_type": "nowhere", "hidden_size": 3}):
        for ask in (ac.profile_model, planned, lambda model: ac.compare_gpus(model, texts=9, gpus=["T4"])):
            with pytest.raises(AsrConfigError, match="model_type") as refused:
                ask(model)
            assert "module" in refused.value.hint


def test_a_folder_with_a_modeling_file_is_not_run(tmp_path: Path) -> None:
    OwnModel(OwnConfig()).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModelForSequenceClassification": "own.OwnModel"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text("raise SystemExit('the code of a folder ran')\n")
    with pytest.raises(AsrConfigError, match="own-text") as refused:
        ac.compare_gpus(str(tmp_path), texts(), collator=for_classes, gpus=["T4"])
    assert "trust_remote_code=True, and pass the module" in refused.value.hint


def drawing(rows: list[Any]) -> dict[str, Any]:
    """As DataCollatorForLanguageModeling: other masks each time."""
    batch = for_classes(rows)
    hidden = torch.rand(batch["input_ids"].shape) < 0.3
    return {**batch, "input_ids": batch["input_ids"].masked_fill(hidden, random.randrange(9))}


def test_a_collator_that_draws_neither_changes_the_plan_nor_the_generators() -> None:
    model, plain = bert(), planned(bert())
    before, others = torch.get_rng_state().clone(), random.getstate()
    first, second = planned(model, drawing), planned(model, drawing)
    assert torch.equal(torch.get_rng_state(), before)
    assert random.getstate() == others
    assert first.predicted_bytes == second.predicted_bytes == plain.predicted_bytes


def raising(rows: list[Any]) -> dict[str, Any]:
    raise KeyError("speaker")


class RunsDry:
    """Makes three batches."""

    def __init__(self) -> None:
        self.left = iter(range(3))

    def __call__(self, rows: list[Any]) -> dict[str, Any]:
        next(self.left)
        return for_classes(rows)


@pytest.mark.parametrize(
    ("collator", "message"),
    [
        (raising, "the collator function fails: KeyError: 'speaker'"),
        (RunsDry(), "the collator RunsDry fails: StopIteration"),
        (lambda rows: None, "the collator gave None without tensors"),
    ],
)
def test_a_collator_that_fails_is_named_with_its_error(collator: Any, message: str) -> None:
    with pytest.raises(AsrConfigError, match=message) as refused:
        planned(bert(), collator)
    assert "collator([dataset[0]])" in refused.value.hint


def test_a_collator_that_fails_for_several_rows_is_named_in_the_plan() -> None:
    def alone(rows: list[Any]) -> dict[str, Any]:
        if len(rows) > 1:
            raise ValueError("all rows must have one length")
        return for_classes(rows)

    config = planned(bert(), alone)
    assert config.policy == "published"
    assert "ValueError: all rows must have one length" in config.warnings[0]
