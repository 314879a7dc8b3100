"""What a search for the largest micro-batch feeds a model that comes without batches."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

import asrconfig_go as ac
from asrconfig_go.errors import InvalidArgumentError
from data_kinds import WaveNetwork, ast, bert, head


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    words = tokenizers.models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]")


def shapes(model: Any) -> list[tuple[int, ...]]:
    """The shapes of the first input of every call, as they come."""
    inputs: list[tuple[int, ...]] = []

    def note(module: Any, args: Any, named: dict[str, Any]) -> None:
        if next(module.parameters()).data_ptr() == first:
            inputs.append(tuple(next(iter(named.values())).shape))

    first = next(model.parameters()).data_ptr()
    model.register_forward_pre_hook(note, with_kwargs=True)
    return inputs


def test_texts_by_a_tokenizer(tokenizer: Any) -> None:
    model = bert()
    inputs = shapes(model)
    search = ac.find_max_batch_size(model, tokenizer, max_length=48, high=2)
    assert search.micro_batch == 2
    assert inputs == [(1, 48), (2, 48)]
    assert "texts of 48 tokens" in repr(search)


def test_texts_without_one() -> None:
    model = bert()
    inputs = shapes(model)
    assert ac.find_max_batch_size(model, max_length=64, high=2).micro_batch == 2
    assert inputs == [(1, 64), (2, 64)]


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (lambda: head("Wav2Vec2ForSequenceClassification"), (8000,)),
        (ast, (64, 16)),
        (WaveNetwork, (8000,)),
    ],
)
def test_classifiers_of_audio(model: Any, shape: tuple[int, ...]) -> None:
    made = model()
    inputs = shapes(made)
    assert ac.find_max_batch_size(made, seconds=0.5, high=2).micro_batch == 2
    assert inputs == [(1, *shape), (2, *shape)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass max_length=128"),
        ({"max_length": 65}, "max_length = 65 is more than the 64 tokens"),
        ({"max_length": 0}, "max_length = 0"),
        ({"max_length": 8, "seconds": 1.0}, r"find_max_batch_size\(model, tokenizer, max_length=128\)"),
    ],
)
def test_texts_of_no_possible_length_are_refused(tokenizer: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ac.find_max_batch_size(bert(), tokenizer, **options)


def test_a_processor_makes_no_batches() -> None:
    processor = type("Processor", (), {"feature_extractor": None, "__call__": lambda self, n: {}})()
    with pytest.raises(InvalidArgumentError, match="seconds= alone"):
        ac.find_max_batch_size(head("Wav2Vec2ForCTC"), processor)
