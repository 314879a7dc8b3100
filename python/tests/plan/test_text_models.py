"""Comparisons of GPUs for models of text: live modules, folders and configs, by rows or a number of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

import asrconfig_go as ac
from asrconfig_go.__main__ import main
from asrconfig_go.errors import AsrConfigError
from text_models import LONGEST, MODELS, ROWS, bert, speech_words, texts

CARDS = ["K80", "T4", "A100-40GB"]
pytestmark = pytest.mark.filterwarnings("ignore")


def shown(comparison: Any) -> str:
    return "\n".join((repr(comparison), comparison.brief(), comparison._repr_html_()))


@pytest.mark.parametrize("name", [n if n == "BERT" else pytest.param(n, marks=pytest.mark.slow) for n in MODELS])
def test_a_live_module_is_compared_by_its_rows(name: str) -> None:
    build, collator = MODELS[name]
    model = build()
    comparison = ac.compare_gpus(model, texts(), collator=collator, gpus=CARDS, target_batch_size=8)
    assert comparison.row_kind == "texts"
    assert [row.fits for row in comparison.rows] == [True] * len(CARDS)
    assert comparison.model.total_parameters == sum(p.numel() for p in model.parameters())
    assert f"{ROWS} texts" in repr(comparison)
    assert f"longest {LONGEST} tokens" in repr(comparison)
    assert speech_words(shown(comparison)) == []


@pytest.mark.parametrize("name", ["BERT", "GPT-2"])
def test_each_row_is_the_plan_for_that_card(name: str) -> None:
    build, collator = MODELS[name]
    model, rows = build(), texts()
    config, manager = ac.create_optimal_config(
        rows, model, collator=collator, gpu="T4", target_batch_size=8, verbose=False
    )
    for comparison in (
        ac.compare_gpus(model, rows, collator=collator, gpus=["T4"], target_batch_size=8),
        manager.what_if(["T4"]),
    ):
        row = comparison.rows[0]
        assert (row.per_device_train_batch_size, row.gradient_accumulation_steps) == (
            config.per_device_train_batch_size,
            config.gradient_accumulation_steps,
        )
        assert row.peak_bytes == config.predicted_bytes
        assert speech_words(shown(comparison)) == []


def test_texts_are_made_up_by_their_number_and_tokens() -> None:
    padded = ac.compare_gpus(bert(), texts=1000, max_tokens=LONGEST, gpus=["T4"])
    assert padded.clips == 1000
    assert padded.longest_s == pytest.approx(LONGEST / 50)
    assert padded.hours == pytest.approx(1000 * LONGEST / 50 / 3600)
    mixed = ac.compare_gpus(bert(), texts=1000, max_tokens=LONGEST, mean_tokens=10, gpus=["T4"])
    assert mixed.hours == pytest.approx(1000 * 10 / 50 / 3600, rel=0.02)
    assert mixed.rows[0].peak_bytes == padded.rows[0].peak_bytes, "memory is planned for the longest"
    assert speech_words(shown(mixed)) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "neither a dataset nor hours"),
        ({"texts": 0}, "texts = 0 is not above 0"),
        ({"texts": 10, "max_tokens": -3}, "mean_tokens = -3 is not above 0"),
        ({"texts": 10, "max_tokens": 8, "mean_tokens": 9}, "texts of 9 tokens on average and at most 8 tokens"),
        ({"texts": 10, "max_tokens": 65}, "text of 65 tokens is longer than the 64 tokens"),
    ],
)
def test_what_cannot_be_is_refused_in_tokens(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AsrConfigError, match=message):
        ac.compare_gpus(bert(), gpus=["T4"], **options)


@pytest.mark.slow
def test_a_folder_and_a_config_are_compared_without_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bert().save_pretrained(tmp_path)
    live = ac.compare_gpus(bert(), texts=100, max_tokens=LONGEST, gpus=["T4"])
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    for model in (str(tmp_path), config):
        comparison = ac.compare_gpus(model, texts=100, max_tokens=LONGEST, gpus=["T4"])
        assert comparison.rows[0].peak_bytes == live.rows[0].peak_bytes
        assert comparison.model.total_parameters == live.model.total_parameters
    command = ["compare", "--model", str(tmp_path), "--texts", "100", "--max-tokens", str(LONGEST), "--gpus", "K80,T4"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "100 texts" in printed
    assert speech_words(printed) == []
