"""Plans of models of text speak of texts and tokens; those of models that hear, of clips and seconds."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

import asrconfig_go as ac
from asrconfig_go.config import TrainingConfig
from asrconfig_go.errors import AsrConfigError
from text_models import LONGEST, MODELS, ROWS, bert, speech_words, texts


def planned(name: str, **options: Any) -> tuple[Any, Any, str]:
    """Configuration and manager, and every text that planning gave."""
    build, collator = MODELS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config, manager = ac.create_optimal_config(texts(), build(), collator=collator, gpu="T4", **options)
    return config, manager, "\n".join(str(w.message) for w in caught if w.category.__module__.startswith("asrconfig"))


@pytest.mark.parametrize("name", MODELS)
def test_nothing_that_a_plan_says_is_about_speech(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    config, manager, warned = planned(name, target_batch_size=8)
    printed = capsys.readouterr()
    assert config.row_kind == manager.dataset.row_kind == "texts"
    explained = manager.explain()
    views = (repr(config), repr(manager), repr(explained), explained.brief(), explained._repr_html_())
    for view in (printed.out, warned, *views):
        assert speech_words(view) == []
    assert f"{ROWS} texts" in printed.out
    assert f"4–{LONGEST} tokens" in printed.out
    assert f"8 × {LONGEST} tokens, the longest texts, by a traced step" in repr(explained)
    assert "Texts a step            8 (per_device_train_batch_size=8," in explained.brief()
    saved = json.dumps(explained.to_dict() if hasattr(explained, "to_dict") else config.to_dict())
    assert '"row_kind": "texts"' in saved


def test_a_plan_keeps_what_it_trains_on(tmp_path: Path) -> None:
    config, _, _ = planned("BERT", target_batch_size=8, verbose=False)
    config.save(tmp_path / "plan.json")
    assert TrainingConfig.load(tmp_path / "plan.json").row_kind == "texts"


@pytest.mark.parametrize(
    "options", [{"length_handling": "bucketed"}, {"max_length_s": 0.6}, {"policy": "published"}, {"preset": "speed"}]
)
def test_options_of_lengths_are_told_in_tokens(options: dict[str, Any]) -> None:
    build, collator = MODELS["BERT"]
    config, manager = ac.create_optimal_config(
        texts(400), build(), collator=collator, gpu="T4", target_batch_size=8, verbose=False, **options
    )
    explained = repr(manager.explain())
    assert speech_words(explained) == []
    if "max_length_s" in options:
        assert "Left out over max_length_s = 0.6 s (30 tokens)" in explained
        selected, selection = config.select(texts(400), manager.durations)
        assert "of 400 texts kept" in repr(selection)
        assert "longer than 30 tokens left out" in repr(selection)
        assert max(map(len, selected["input_ids"])) == 30


@pytest.mark.slow
def test_errors_and_warnings_count_tokens() -> None:
    build, collator = MODELS["BERT"]
    with pytest.raises(AsrConfigError, match=r"no text lasts at most 2 tokens; the shortest lasts 4 tokens"):
        ac.create_optimal_config(texts(), build(), collator=collator, gpu="T4", verbose=False, max_length_s=0.04)
    config, _, _ = planned("BERT", target_batch_size=8, verbose=False)
    with pytest.warns(UserWarning, match="a step has 16 texts instead of 8"):
        config.per_device_train_batch_size, config.gradient_accumulation_steps = 16, 1
    large = transformers.BertConfig(vocab_size=1_500_000, hidden_size=768, num_hidden_layers=1, num_labels=3)
    with torch.device("meta"):  # 1.2 billion weights
        model = transformers.BertForSequenceClassification(large)
    with pytest.raises(AsrConfigError) as refused:
        ac.create_optimal_config(texts(), model, collator=collator, gpu="K80", verbose=False)
    assert speech_words(str(refused.value)) == []


def test_a_model_that_hears_and_reads_keeps_clips() -> None:
    from asrconfig_go.trace.model import Model

    both = type("Both", (torch.nn.Module,), {"forward": lambda self, input_ids, input_features=None, labels=None: None})
    assert Model.of(both()).row_kind == "clips"
    assert Model.of(bert()).row_kind == "texts"
    named = transformers.BertConfig(architectures=["BertForMaskedLM"])
    assert Model.of(named).row_kind == Model.of(named.to_dict()).row_kind == "texts"
    assert Model.of("wav2vec2-base").row_kind == "clips"
