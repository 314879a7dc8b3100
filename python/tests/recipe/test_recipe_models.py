"""Processors and models of both kinds, made offline: labels are right, vocabularies fit, transcripts can be scored."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from asrconfig_go.errors import AsrConfigError, CorruptFileError, InvalidArgumentError, UnsupportedError
from asrconfig_go.recipe import (
    SpeechData,
    build_processor,
    load_model,
    load_speech,
    make_collator,
    prepare,
    transcribe,
    word_error_rates,
)
from asrconfig_go.recipe.speech_data import column, with_column
from asrconfig_go.recipe.transcription import best_tokens, texts_of
from recipe_data import digits

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("soundfile")
np = pytest.importorskip("numpy")

TEXTS = ["one two", "three"]
MODELS = ["tiny-wav2vec2", "tiny-whisper"]


@pytest.fixture(scope="module")
def speech() -> SpeechData:
    return load_speech(digits(6), progress=False)


@pytest.fixture(params=MODELS, scope="module")
def pair(request: pytest.FixtureRequest, speech: SpeechData) -> tuple[Any, Any]:
    processor = build_processor(column(speech.train, "text"), request.param)
    return processor, load_model(request.param, processor)


def test_the_ctc_vocabulary() -> None:
    tokenizer = build_processor(TEXTS, "wav2vec2").tokenizer
    assert tokenizer.get_vocab() == {
        "[PAD]": 0, "|": 1, **{c: i for i, c in enumerate("ehnortw", 2)}, "[UNK]": 9,
    }  # fmt: skip
    assert tokenizer.pad_token_id == 0
    assert tokenizer("two one").input_ids == [7, 8, 5, 1, 5, 4, 2]
    assert tokenizer("six").input_ids == [9, 9, 9]
    pickle.loads(pickle.dumps(tokenizer))


def test_a_model_that_keeps_its_positions_trains_after_transcribing(speech: SpeechData) -> None:
    processor = build_processor(column(speech.train, "text"), "wav2vec2")
    config = transformers.Wav2Vec2ConformerConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, conv_dim=(16,) * 7,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, max_source_positions=2,
        vocab_size=len(processor.tokenizer),
    )  # fmt: skip
    model = transformers.Wav2Vec2ConformerForCTC(config)
    transcribe(model, processor, speech.train, n=1)
    loss = model(torch.randn(1, 8000), labels=torch.ones(1, 2, dtype=torch.long)).loss
    loss.backward()
    assert model.lm_head.weight.grad is not None


def test_a_vocabulary_goes_round(pair: tuple[Any, Any], speech: SpeechData, tmp_path: Path) -> None:
    processor, _ = pair
    texts = column(speech.train, "text")
    ids = [processor.tokenizer(text).input_ids for text in texts]
    assert texts_of(processor, ids, merged=False) == texts
    processor.save_pretrained(tmp_path)
    again = transformers.AutoProcessor.from_pretrained(tmp_path)
    assert type(again) is type(processor)
    assert [again.tokenizer(text).input_ids for text in texts] == ids


def test_greedy_ctc_texts() -> None:
    processor = build_processor(["ab c"], "wav2vec2")  # | a b c are 1 to 4
    rows = [[0, 2, 2, 0, 2, 3, 3], [1, 2, 1, 0, 1, 4, -100], [0, 0, 0], [2, 5, 99]]
    assert texts_of(processor, rows) == ["aab", "a c", "", "a[UNK]"]
    assert texts_of(processor, [[2, 2, 3]], merged=False) == ["aab"]


def test_word_error_rates_of_ids_and_logits_and_of_batches() -> None:
    """Batches come as a Trainer with ``batch_eval_metrics`` passes them, twice: for two evaluations."""
    processor = build_processor(["ab c"], "wav2vec2")
    labels = np.array([[2, 3, 1, 4], [2, 3, -100, -100]])
    frames = np.array([[2, 0, 3, 1, 1, 4], [2, 2, 4, -100, -100, -100]])
    rates = word_error_rates(processor)
    metrics = rates(SimpleNamespace(predictions=frames, label_ids=labels))
    assert metrics == {"wer": pytest.approx(1 / 3), "cer": pytest.approx(1 / 6)}
    logits = np.eye(6)[np.where(frames < 0, 0, frames)]
    assert rates(SimpleNamespace(predictions=(logits, None), label_ids=labels)) == metrics
    for _ in range(2):
        first = SimpleNamespace(predictions=torch.tensor(frames[:1]), label_ids=torch.tensor(labels[:1]))
        assert rates(first, compute_result=False) == {}
        last = SimpleNamespace(predictions=torch.tensor(frames[1:]), label_ids=torch.tensor(labels[1:]))
        assert rates(last, compute_result=True) == metrics


def _letters_first() -> Any:
    """A CTC processor of which token 0 is a letter, as in vocabularies that end with their marks."""
    tokenizer = build_processor(["ab c"], "wav2vec2").tokenizer
    vocabulary = {"a": 0, "b": 1, "c": 2, "|": 3, "[UNK]": 4, "[PAD]": 5}
    with TemporaryDirectory() as folder:
        Path(folder, "vocab.json").write_text(json.dumps(vocabulary))
        tokenizer = type(tokenizer)(
            f"{folder}/vocab.json", unk_token="[UNK]", pad_token="[PAD]", bos_token=None, eos_token=None
        )
    return SimpleNamespace(tokenizer=tokenizer)


def _padded(rows: list[Any]) -> Any:
    """Batches of one clip as a Trainer concatenates them, or as it gives them with eval_do_concat_batches=False."""
    from transformers.trainer_pt_utils import nested_concat

    joined = rows[0]
    for row in rows[1:]:
        joined = nested_concat(joined, row, padding_index=-100)
    return joined


@pytest.mark.parametrize("kind", ["ids", "logits", "tuple", "half", "tensor"])
@pytest.mark.parametrize("concatenated", [True, False])
def test_padding_of_an_evaluation_is_no_token(kind: str, concatenated: bool) -> None:
    frames = [np.array([[0, 5, 1, 1]]), np.array([[2, 3, 0, 5, 0, 2]]), np.array([[1]])]
    labels = [np.array([[0, 1]]), np.array([[2, 3, 0, 0, 2]]), np.array([[1]])]
    logits = [9 * np.eye(6, dtype=np.float16 if kind == "half" else np.float32)[row] - 4 for row in frames]
    outputs: list[Any] = frames if kind == "ids" else logits
    if kind == "tensor":
        outputs = [torch.as_tensor(row) for row in outputs]
    if kind == "tuple":
        outputs = [(row, np.ones((1, row.shape[1], 2))) for row in outputs]
    predictions, label_ids = (_padded(outputs), _padded(labels)) if concatenated else (outputs, labels)
    rates = word_error_rates(_letters_first())
    assert rates(SimpleNamespace(predictions=predictions, label_ids=label_ids)) == {"wer": 0.0, "cer": 0.0}


def test_what_whisper_says_after_its_end_is_no_text() -> None:
    processor = build_processor(TEXTS, "tiny-whisper")
    tokenizer = processor.tokenizer
    labels = [np.array([tokenizer(text).input_ids]) for text in ("three", "one two one two")]
    predictions = [np.concatenate([row, np.full((1, 3), row[0, -2])], axis=1) for row in labels]
    logits = [np.eye(len(tokenizer), dtype=np.float32)[row] for row in predictions]
    rates = word_error_rates(processor)
    perfect = rates(SimpleNamespace(predictions=(_padded(logits), None), label_ids=_padded(labels)))
    assert perfect == {"wer": 0.0, "cer": 0.0}
    generated = [np.where(row == -100, tokenizer.pad_token_id, row) for row in (_padded(labels),)]
    assert rates(SimpleNamespace(predictions=generated[0], label_ids=generated[0]))["wer"] == 0.0


def test_models_depend_on_their_seed_alone(pair: tuple[Any, Any]) -> None:
    processor, model = pair
    name = MODELS[type(model).__name__.startswith("Whisper")]
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    same, other = load_model(name, processor), load_model(name, processor, seed=1)
    assert torch.equal(torch.rand(1), expected), "torch's random state is left alone"
    weights = [torch.cat([p.flatten() for p in built.parameters()]) for built in (model, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_prepared_data_collates_and_has_a_loss(pair: tuple[Any, Any], speech: SpeechData) -> None:
    processor, model = pair
    data = prepare(speech, processor, model=model)
    assert len(data.train) == 6
    assert data.train["labels"][0] == processor.tokenizer(data.train[0]["text"]).input_ids
    batch = make_collator(processor, model)([data.train[row] for row in range(3)])
    assert (batch["labels"] == -100).any()
    assert model(**batch).loss.isfinite()


def test_transcripts_do_not_depend_on_the_batch(pair: tuple[Any, Any], speech: SpeechData) -> None:
    processor, model = pair
    model.train()
    limit = 8 if type(model).__name__.startswith("Whisper") else None
    alone = transcribe(model, processor, speech.train, n=3, batch_size=1, max_length=limit)
    assert model.training, "the model stays in its mode"
    assert transcribe(model, processor, speech.train, n=3, batch_size=3, max_length=limit) == alone
    assert len(alone) == 3
    assert any(alone), "random weights say something, or the comparison is empty"


def test_frames_of_padding_say_nothing(speech: SpeechData) -> None:
    processor = build_processor(TEXTS, "tiny-wav2vec2")
    model = load_model("tiny-wav2vec2", processor)
    inputs = {"attention_mask": torch.tensor([[1] * 3200, [1] * 1600 + [0] * 1600])}
    frames = model._get_feat_extract_output_lengths(torch.tensor([3200, 1600])).tolist()
    tokens = best_tokens(model, inputs, torch.ones(2, frames[0], 3))
    assert (tokens != -100).sum(1).tolist() == frames


def test_pairs_that_do_not_fit_ctc_are_left_out(speech: SpeechData) -> None:
    frames = [int(length / 320) for length in column(speech.train, "length")]
    texts = ["ab" * (frames[0] // 4), "ab" * frames[1], "a" * int(frames[2] * 0.8), "ab", "", "q"]
    data = SpeechData(with_column(speech.train, "text", texts), with_column(speech.evaluation, "text", ["b"] * 3))
    processor = build_processor(["ab"], "tiny-wav2vec2")
    prepared = prepare(data, processor)
    assert column(prepared.train, "text") == [texts[0], "ab", "q"], "equal labels beside each other need a frame more"
    assert prepared.notes[-3:] == (
        "1 clip without a transcript left out",
        "2 clips left out: transcripts of more labels than frames of their clips",
        "1 transcript with characters that the vocabulary does not have",
    )


def test_clips_and_texts_too_long_for_whisper_are_left_out(speech: SpeechData) -> None:
    processor = build_processor(column(speech.train, "text"), "tiny-whisper")
    model = load_model("tiny-whisper", processor)
    lengths = [5 * 16_000 + 1, 5 * 16_000, *column(speech.train, "length")[2:]]
    texts = [*column(speech.train, "text")[:2], "zero zero " * 99 + "zero", *column(speech.train, "text")[3:]]
    train = with_column(with_column(speech.train, "length", lengths), "text", texts)
    prepared = prepare(SpeechData(train, None), processor, model=model)
    assert len(prepared.train) == 4
    assert prepared.notes == (
        "1 clip over 5 s not cut and left out: no timestamps for its text, and no model to align it with (align=)",
        "1 clip left out: transcripts of more labels than 96 positions of the decoder",
    )


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pre-trained checkpoints as the Hub has them: without a head, and a Whisper with its processor."""
    root: Path = tmp_path_factory.mktemp("checkpoints")
    processor = build_processor(TEXTS, "tiny-wav2vec2")
    small = load_model("tiny-wav2vec2", processor)
    small.wav2vec2.save_pretrained(root / "wav2vec2")
    processor.feature_extractor.save_pretrained(root / "wav2vec2")
    small.save_pretrained(root / "tuned")
    processor.save_pretrained(root / "tuned")
    sizes = {name: getattr(small.config, name) for name in ("conv_dim", "conv_stride", "conv_kernel")}
    sizes |= {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    transformers.HubertModel(transformers.HubertConfig(**sizes)).save_pretrained(root / "hubert")
    processor.feature_extractor.save_pretrained(root / "hubert")
    whisper = build_processor(TEXTS, "tiny-whisper")
    load_model("tiny-whisper", whisper).save_pretrained(root / "whisper")
    whisper.save_pretrained(root / "whisper")
    return root


@pytest.mark.parametrize("name", ["wav2vec2", "hubert"])
def test_a_checkpoint_gets_a_head_for_the_vocabulary(checkpoints: Path, name: str) -> None:
    folder = str(checkpoints / name)
    processor = build_processor(["only these"], folder)
    model = load_model(folder, processor)
    assert model.lm_head.out_features == len(processor.tokenizer) == model.config.vocab_size
    assert (model.config.ctc_loss_reduction, model.config.ctc_zero_infinity) == ("mean", True)
    assert model.config.pad_token_id == processor.tokenizer.pad_token_id
    frozen = [p for n, p in model.named_parameters() if "feature_extractor" in n]
    assert frozen
    assert not any(p.requires_grad for p in frozen)
    assert torch.equal(load_model(folder, processor).lm_head.weight, model.lm_head.weight), "the head has its seed"


def test_a_tuned_checkpoint_keeps_a_vocabulary_that_is_enough(checkpoints: Path) -> None:
    folder = str(checkpoints / "tuned")
    processor = build_processor(["three"], folder)
    assert processor.tokenizer.get_vocab() == build_processor(TEXTS, "wav2vec2").tokenizer.get_vocab()
    weights = load_model("tiny-wav2vec2", processor).lm_head.weight
    assert torch.equal(load_model(folder, processor).lm_head.weight, weights)
    other = build_processor(["xyz"], folder)
    assert "x" in other.tokenizer.get_vocab()
    assert load_model(folder, other).lm_head.out_features == len(other.tokenizer)


def test_whisper_from_a_folder(checkpoints: Path) -> None:
    folder = str(checkpoints / "whisper")
    processor = build_processor(["any"], folder)
    assert load_model(folder, processor).config.vocab_size == len(processor.tokenizer)
    with pytest.raises(InvalidArgumentError, match="supports English only"):
        build_processor(["any"], folder, language="german")


def test_languages_of_a_multilingual_whisper(checkpoints: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(checkpoints / "whisper")
    monkeypatch.setattr("asrconfig_go.recipe.processors._is_multilingual", lambda _: True)
    processor = build_processor(["any"], folder, language="German")
    assert processor.tokenizer.language == "german"
    assert processor.tokenizer.task == "transcribe"
    with pytest.raises(InvalidArgumentError, match="no language 'germn'") as caught:
        build_processor(["any"], folder, language="germn")
    assert "did you mean 'german'?" in caught.value.hint


def test_what_does_not_go_together(checkpoints: Path, tmp_path: Path) -> None:
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text('{"model_type": "wav2vec2"}')
    cases: list[tuple[Any, type[AsrConfigError], str]] = [
        (lambda: build_processor(["", " "], "wav2vec2"), InvalidArgumentError, "no transcript to make"),
        (lambda: build_processor(TEXTS, str(tmp_path / "bert")), UnsupportedError, "is a bert, which no class"),
        (lambda: build_processor(TEXTS, str(tmp_path / "none")), CorruptFileError, "no model_type"),
        (lambda: build_processor(TEXTS, str(tmp_path / "empty")), CorruptFileError, "cannot be loaded"),
        (
            lambda: load_model("tiny-whisper", build_processor(TEXTS, "wav2vec2")),
            InvalidArgumentError,
            "does not belong to",
        ),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            call()
        assert caught.value.hint
