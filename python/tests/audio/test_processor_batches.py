"""A processor and a model of any kind make a batch of rows: the model takes it, and its labels are the transcripts."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from asrconfig_go.audio.processor_batches import make_collator
from asrconfig_go.errors import InvalidArgumentError, UnsupportedError
from asrconfig_go.recipe.transcription import generated, generates, texts_of
from recipe_data import clips
from speech_processors import KINDS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("soundfile")

ROWS = [{"audio": str(path), "text": text} for path, text in clips(3)]
ASKED: dict[str, Any] = {"cohere": {"language": "en"}}


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest) -> tuple[str, Any, Any]:
    try:
        return request.param, *KINDS[request.param](transformers, [row["text"] for row in ROWS])
    except AttributeError as error:
        pytest.skip(f"transformers {transformers.__version__}: {error}")


def test_the_model_trains_on_the_batch(made: tuple[str, Any, Any]) -> None:
    name, processor, model = made
    batch = make_collator(processor, model, **ASKED.get(name, {}))(ROWS)
    assert all(len(value) == 3 for value in batch.values())
    loss = model(**batch).loss
    assert loss.isfinite()
    loss.backward()
    assert texts_of(processor, batch["labels"].tolist(), merged=False) == [row["text"] for row in ROWS]


def test_generation_begins_where_the_labels_do(made: tuple[str, Any, Any]) -> None:
    name, processor, model = made
    collate = make_collator(processor, model, **ASKED.get(name, {}))
    prompt = collate([{"audio": row["audio"]} for row in ROWS])
    assert "labels" not in prompt
    if generates(model):
        tokens = generated(model.eval(), prompt, 4)
        assert len(tokens) == 3 and len(texts_of(processor, tokens.tolist())) == 3


def test_collators_go_to_workers(made: tuple[str, Any, Any]) -> None:
    name, processor, model = made
    collate = make_collator(processor, model, **ASKED.get(name, {}))
    ours, theirs = collate(ROWS), pickle.loads(pickle.dumps(collate))(ROWS)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_processor_that_needs_a_language_says_so() -> None:
    if not hasattr(transformers, "CohereAsrProcessor"):
        pytest.skip("transformers has no Cohere")
    processor, model = KINDS["cohere"](transformers, ["one two"])
    with pytest.raises(InvalidArgumentError, match="CohereAsrProcessor needs a language"):
        make_collator(processor, model)(ROWS)
    assert len(make_collator(processor, model, language="en")(ROWS)["labels"]) == len(ROWS)


def test_a_model_that_aligns_text_and_audio_wants_a_collator_of_its_own() -> None:
    if not hasattr(transformers, "KyutaiSpeechToTextConfig"):
        pytest.skip("transformers has no Kyutai STT")
    model = SimpleNamespace(config=transformers.KyutaiSpeechToTextConfig())
    with pytest.raises(UnsupportedError, match="writes no prompt with audio in it"):
        make_collator(SimpleNamespace(tokenizer=None), model)


def test_the_input_is_padded_as_the_processor_pads_it() -> None:
    if not hasattr(transformers, "MoonshineStreamingProcessor"):
        pytest.skip("transformers has no Moonshine Streaming")
    processor, model = KINDS["moonshine_streaming"](transformers, ["one two"])
    batch = make_collator(processor, model)(ROWS)
    assert batch["input_values"].shape[1] % 80 == 0
    assert batch["labels"].shape[1] % 80
