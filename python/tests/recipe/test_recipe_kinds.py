"""Transducers, encoders with a decoder, and audio LLMs by the recipe: prompts, labels, transcripts, adapters."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.audio import load_audio
from asrconfig_go.audio.processor_batches import with_transcripts, without_transcripts
from asrconfig_go.errors import InvalidArgumentError, UnsupportedError
from asrconfig_go.recipe import (
    FineTuneResult,
    SpeechData,
    build_processor,
    fine_tune,
    load_model,
    load_speech,
    make_collator,
    prepare,
    transcribe,
)
from asrconfig_go.recipe.processors import by_characters, family
from asrconfig_go.recipe.speech_data import column
from recipe_data import digits, further_models, weights

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("soundfile")
pytest.importorskip("safetensors")

MODELS = further_models()
LLM = pytest.mark.skipif("tiny-qwen3-asr" not in MODELS, reason="transformers has no Qwen3-ASR")
TDT = pytest.mark.skipif("tiny-parakeet-tdt" not in MODELS, reason="transformers has no Parakeet TDT")


@pytest.fixture(scope="module")
def speech() -> SpeechData:
    return load_speech(digits(8), check_audio=False, progress=False)


def made(model: str, speech: SpeechData) -> tuple[Any, Any]:
    processor = build_processor(column(speech.train, "text"), model)
    return processor, load_model(model, processor)


def rows_of(speech: SpeechData, count: int = 3, texts: bool = True) -> list[dict[str, Any]]:
    rows = [speech.train[row] for row in range(count)]
    return [{"audio": row["audio"], **({"text": row["text"]} if texts else {})} for row in rows]


def trained(speech: SpeechData, output: Path, model: str, **options: Any) -> FineTuneResult:
    arguments: dict[str, Any] = {"max_steps": 4, "target_batch_size": 4, "verbose": False, **options}
    settings = {"save_steps": 1, "eval_strategy": "no", "report_to": [], **arguments.pop("settings", {})}
    return fine_tune(speech, model, output, settings=settings, **arguments)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("wav2vec2", "ctc"), ("nvidia/parakeet-ctc-0.6b", "ctc"), ("omniasr-ctc-300m", "ctc"),
        ("parakeet-tdt", "transducer"), ("parakeet-rnnt", "transducer"),
        ("whisper-small", "seq2seq"), ("moonshine-base", "seq2seq"), ("canary-1b-v2", "seq2seq"),
        ("speecht5", "seq2seq"), ("seamless-m4t-v2", "seq2seq"), ("cohere-transcribe", "seq2seq"),
        ("qwen3-asr-0.6b", "audio-llm"), ("voxtral-mini", "audio-llm"), ("granite-speech-2b", "audio-llm"),
        ("qwen2-audio", "audio-llm"), ("omniasr-llm-300m", "audio-llm"), ("glm-asr-nano", "audio-llm"),
    ],
)  # fmt: skip
def test_kinds_come_from_the_tables_of_transformers(name: str, kind: str) -> None:
    try:
        assert family(name) == kind
    except UnsupportedError as error:
        pytest.skip(error.message)  # an older transformers


def test_vocabularies_that_belong_to_their_checkpoints() -> None:
    assert by_characters("facebook/wav2vec2-xls-r-300m") and by_characters("hubert-large-ll60k")
    assert not by_characters("nvidia/parakeet-ctc-0.6b") and not by_characters("whisper-small")


def test_a_classifier_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="audio-spectrogram-transformer, which no class"):
        family("ast")
    assert family("whisper-tiny") == "seq2seq"


@pytest.mark.parametrize("model", MODELS)
def test_a_processor_and_its_model_come_back_from_a_folder(model: str, speech: SpeechData, tmp_path: Path) -> None:
    processor, loaded = made(model, speech)
    processor.save_pretrained(tmp_path)
    loaded.save_pretrained(tmp_path)
    again = build_processor(["any"], str(tmp_path))
    assert type(again) is type(processor)
    other = load_model(str(tmp_path), again)
    assert type(other) is type(loaded)
    ours, theirs = (make_collator(p, m)(rows_of(speech)) for p, m in ((processor, loaded), (again, other)))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert torch.equal(loaded.eval()(**ours).loss, other.eval()(**theirs).loss)


@LLM
def test_labels_of_an_audio_llm_are_the_transcripts_alone(speech: SpeechData) -> None:
    processor, model = made("tiny-qwen3-asr", speech)
    collate, rows = make_collator(processor, model), rows_of(speech)
    batch, prompt = collate(rows), collate(rows_of(speech, texts=False))
    end = processor.tokenizer.eos_token_id
    for row, labels, ids, mask in zip(rows, batch["labels"], batch["input_ids"], batch["attention_mask"], strict=True):
        counted = labels != -100
        assert processor.tokenizer.decode(labels[counted], skip_special_tokens=True).strip() == row["text"]
        assert labels[counted][-1] == end
        assert torch.equal(ids[counted], labels[counted])
        assert not (counted & (ids == model.config.audio_token_id)).any() and not (counted & (mask == 0)).any()
    own = processor.apply_transcription_request([load_audio(row["audio"]) for row in rows])
    assert torch.equal(own["input_ids"], prompt["input_ids"]), "generation begins from the processor's own prompt"
    for one, mask, sequence in zip(own["input_ids"], own["attention_mask"], batch["input_ids"], strict=True):
        length = int(mask.sum())
        assert torch.equal(one[mask.bool()], sequence[:length])
    assert "labels" not in prompt
    assert model(**batch).loss.isfinite()


@LLM
def test_a_language_is_written_into_the_prompt(speech: SpeechData) -> None:
    processor, model = made("tiny-qwen3-asr", speech)
    plain, english = (make_collator(processor, model, language=spoken)(rows_of(speech, 1)) for spoken in (None, "en"))
    text = processor.tokenizer.decode(english["input_ids"][0])
    assert "language English<asr_text>" in text.replace("<asr_text> ", "<asr_text>")
    assert torch.equal(english["labels"][english["labels"] != -100], plain["labels"][plain["labels"] != -100])


@LLM
def test_prompts_are_found_again_in_a_batch_to_train_on(speech: SpeechData) -> None:
    processor, model = made("tiny-qwen3-asr", speech)
    collate = make_collator(processor, model)
    batch, prompt = collate(rows_of(speech)), collate(rows_of(speech, texts=False))
    prompts = without_transcripts(batch, processor.tokenizer.pad_token_id)
    assert prompts.keys() == prompt.keys()
    for name, value in prompt.items():
        assert torch.equal(prompts[name], value), name


def test_a_decoder_with_a_prompt_learns_what_follows_it() -> None:
    """As Canary's and Cohere's: both inputs of the decoder are one place apart, and the prompt is found again."""
    prompt = {"input_features": torch.zeros(2, 3), "decoder_input_ids": torch.tensor([[7, 8, 9], [7, 8, 9]])}
    batch = with_transcripts(prompt, [[4, 5, 3], [6, 3]], pad=2)
    assert batch["decoder_input_ids"].tolist() == [[7, 8, 9, 4, 5], [7, 8, 9, 6, 2]]
    assert batch["labels"].tolist() == [[-100, -100, 4, 5, 3], [-100, -100, 6, 3, -100]]
    assert torch.equal(without_transcripts(batch, 2)["decoder_input_ids"], prompt["decoder_input_ids"])


@TDT
def test_a_transducer_has_the_batch_of_its_processor(speech: SpeechData) -> None:
    processor, model = made("tiny-parakeet-tdt", speech)
    rows = rows_of(speech)
    clips, texts = [load_audio(row["audio"]) for row in rows], [row["text"] for row in rows]
    own = processor(clips, text=texts, sampling_rate=16_000)
    batch = make_collator(processor, model)(rows)
    assert batch.keys() == own.keys()
    assert all(torch.equal(batch[name], own[name]) for name in own)


def test_labels_of_a_decoder_end_where_its_tokenizer_ends_none(speech: SpeechData) -> None:
    if "tiny-moonshine" not in MODELS:
        pytest.skip("transformers has no Moonshine")
    processor, model = made("tiny-moonshine", speech)
    end = processor.tokenizer.eos_token_id
    data = prepare(speech, processor, model=model)
    assert all(row[-1] == end for row in column(data.train, "labels"))
    batch = make_collator(processor, model)(rows_of(speech))
    assert [int(row[row != -100][-1]) for row in batch["labels"]] == [end] * 3


@pytest.mark.parametrize("model", MODELS)
def test_transcripts_do_not_depend_on_the_batch(model: str, speech: SpeechData) -> None:
    processor, loaded = made(model, speech)
    alone = transcribe(loaded, processor, speech.train, n=3, batch_size=1, max_length=6)
    assert transcribe(loaded, processor, speech.train, n=3, batch_size=3, max_length=6) == alone
    assert len(alone) == 3


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_metric_of_an_evaluation_is_that_of_its_transcripts(model: str, speech: SpeechData, tmp_path: Path) -> None:
    from asrconfig_go.recipe.transcription import word_error_rate

    result = trained(speech, tmp_path, model, max_steps=1, settings={"eval_strategy": "steps", "eval_steps": 1})
    processor = build_processor(["any"], str(tmp_path))
    longest = 2 * max(len(ids) for ids in column(prepare(speech, processor).train, "labels")) + 8
    heard = transcribe(load_model(str(tmp_path), processor), processor, speech.evaluation, max_length=longest)
    assert result.wer == word_error_rate(column(speech.evaluation, "text"), heard)


@pytest.mark.slow
@TDT
def test_a_saved_transducer_transcribes_in_a_pipeline(speech: SpeechData, tmp_path: Path) -> None:
    trained(speech, tmp_path, "tiny-parakeet-tdt", max_steps=1)
    warnings.filterwarnings("ignore", message="Using the model-agnostic default")  # the pipeline's own
    pipe = transformers.pipeline("automatic-speech-recognition", str(tmp_path), device="cpu")
    assert isinstance(pipe(load_audio(speech.train[0]["audio"]))["text"], str)


@pytest.mark.slow
@LLM
def test_a_published_audio_llm_trains_adapters_and_its_projector(speech: SpeechData, tmp_path: Path) -> None:
    """By default: a folder is a checkpoint like one of the Hub."""
    peft = pytest.importorskip("peft")
    base = tmp_path / "base"
    processor, model = made("tiny-qwen3-asr", speech)
    processor.save_pretrained(base)
    model.save_pretrained(base)
    result = trained(speech, tmp_path / "out", str(base))
    assert result.config.lora_rank == 16
    saved = weights(tmp_path / "out")
    assert any("language_model" in name and "lora_A" in name for name in saved)
    assert any("multi_modal_projector" in name and "lora" not in name for name in saved)
    processor = build_processor(["any"], str(base))
    tuned = peft.PeftModel.from_pretrained(load_model(str(base), processor), str(tmp_path / "out"))
    heard = transcribe(tuned, processor, speech.evaluation, n=3, max_length=20)
    assert len(heard) == len(result.samples) == 3
    merged = transcribe(tuned.merge_and_unload(), processor, speech.evaluation, n=3, max_length=20)
    assert merged == heard


@LLM
def test_what_a_collator_refuses(speech: SpeechData) -> None:
    processor, model = made("tiny-qwen3-asr", speech)
    collate = make_collator(processor, model)
    with pytest.raises(InvalidArgumentError, match="a batch of no rows"):
        collate([])
    with pytest.raises(InvalidArgumentError, match="have no audio"):
        collate([{"text": "one"}])
    end, processor.tokenizer.eos_token = processor.tokenizer.eos_token, None
    model.generation_config.eos_token_id = None
    with pytest.raises(UnsupportedError, match="no token that ends a transcript"):
        make_collator(processor, model)
    processor.tokenizer.eos_token = end
    assert len(make_collator(processor, model)(speech.train.select(range(2)))["labels"]) == 2
