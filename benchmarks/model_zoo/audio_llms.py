"""Audio language models: prompt, placeholders for the audio's embeddings and text in one sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers as t
from material import EOS, HOP, RATE, Collate, Sizes, Subject, filterbank, mask, padded, row, tokenizer, wave, with_lora

_KIND = "audio LLM"
_ATTENTION = r".*\.(q_proj|v_proj)"
_OF_THE_DECODER = r".*language_model.*\.(q_proj|v_proj)"


def text_model(sizes: Sizes, **more: Any) -> dict[str, Any]:
    """The config of a small decoder."""
    heads = {"num_attention_heads": sizes.heads, "num_key_value_heads": sizes.heads // 2}
    shape = {"hidden_size": sizes.width, "intermediate_size": sizes.feed_forward, "num_hidden_layers": sizes.layers}
    about = {"vocab_size": sizes.words, "head_dim": sizes.width // sizes.heads, "max_position_embeddings": 4096}
    return shape | heads | about | {"pad_token_id": 256, "bos_token_id": 257, "eos_token_id": 258} | more


def encoder(sizes: Sizes, **more: Any) -> dict[str, Any]:
    """The config of a small audio encoder with the names of most families."""
    return {
        "hidden_size": sizes.width,
        "intermediate_size": sizes.feed_forward,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        **more,
    }


def whisper_encoder(sizes: Sizes, **more: Any) -> dict[str, Any]:
    """The same with Whisper's names."""
    return {
        "d_model": sizes.width,
        "encoder_ffn_dim": sizes.feed_forward,
        "encoder_layers": sizes.layers,
        "encoder_attention_heads": sizes.heads,
        **more,
    }


def chat(processor: Any, prompt: str, **settings: Any) -> Collate:
    """A processor called on prompts with their answers; loss on the answers alone.

    ``prompt`` holds one audio placeholder. Answers are padded on the right, as in training.
    """

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        texts = [prompt + clip["text"] + "</s>" for clip in clips]
        batch = dict(processor(text=texts, audio=[wave(clip) for clip in clips], return_tensors="pt", **settings))
        return batch | {"labels": _on_answers(batch, [len(clip["text"]) + 1 for clip in clips])}

    return collate


def _on_answers(batch: dict[str, Any], lengths: Sequence[int]) -> torch.Tensor:
    """The tokens of the answers, which end each row; -100 elsewhere."""
    labels = torch.full_like(batch["input_ids"], -100)
    for number, length in enumerate(lengths):
        real = batch["attention_mask"][number].nonzero()[-length:, 0]
        labels[number, real] = batch["input_ids"][number, real]
    return labels


def by_hand(
    audio: Callable[[list[dict[str, Any]]], tuple[dict[str, Any], list[int]]], placeholder: int, prompt: Any = ""
) -> Collate:
    """The same steps where a processor cannot be built here: ``audio`` returns its inputs and placeholders a clip."""
    letters = tokenizer()
    before = letters("USER: ")["input_ids"]
    asked = letters(" transcribe the speech\nASSISTANT: ")["input_ids"]

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        inputs, counts = audio(clips)
        answers = [[*letters(clip["text"])["input_ids"], EOS] for clip in clips]
        prompts = [[*before, *[placeholder] * count, *asked] for count in counts]
        whole = [torch.tensor([*one, *answer]) for one, answer in zip(prompts, answers, strict=True)]
        batch = {"input_ids": padded(whole, 256), "attention_mask": mask(whole), **inputs}
        return batch | {"labels": _on_answers(batch, [len(answer) for answer in answers])}

    return collate


_QWEN = {"audio_token": "<|audio_pad|>", "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>"}
_ASKED = "<|audio_start|><|audio_pad|><|audio_end|>transcribe\n"


def _qwen3_asr(sizes: Sizes) -> Subject:
    letters = tokenizer("<asr_text>", "<timestamp>", **_QWEN)
    ids = letters.convert_tokens_to_ids
    config = t.Qwen3ASRConfig(
        audio_config=whisper_encoder(
            sizes, output_dim=sizes.width, num_mel_bins=128, downsample_hidden_size=sizes.channels
        ),
        text_config=text_model(sizes, tie_word_embeddings=True),
        audio_token_id=ids("<|audio_pad|>"),
        timestamp_token_id=ids("<timestamp>"),
        pad_token_id=256,
        eos_token_id=258,
    )
    processor = t.Qwen3ASRProcessor(t.Qwen3ASRFeatureExtractor(), letters)
    collate = chat(processor, "system\nuser\n" + _ASKED, text_kwargs={"padding_side": "right"})
    return Subject(t.Qwen3ASRForConditionalGeneration(config), collate, processor)


row("Qwen3-ASR", _KIND)(_qwen3_asr)


@row("Qwen3-ASR, LoRA", _KIND)
def _(sizes: Sizes) -> Subject:
    whole = _qwen3_asr(sizes)
    return Subject(with_lora(whole.model, _ATTENTION), whole.collate, whole.processor)


@row("Qwen3-ASR, LoRA, encoder frozen, bf16 weights", _KIND, precision="bf16", gpu="A100-40GB")
def _(sizes: Sizes) -> Subject:
    whole = _qwen3_asr(sizes)
    adapted = with_lora(whole.model.to(torch.bfloat16), _OF_THE_DECODER)
    return Subject(adapted, whole.collate, whole.processor)


def _voxtral(sizes: Sizes) -> Any:
    config = t.VoxtralConfig(
        audio_config=encoder(sizes, num_mel_bins=80, intermediate_size=4 * sizes.width),
        text_config=text_model(sizes),
        audio_token_id=24,
    )
    return t.VoxtralForConditionalGeneration(config)


def _chunks_of_30s(clips: list[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
    """Whole chunks of 30 s, each a row of its own, and 375 embeddings for each."""
    extractor = t.WhisperFeatureExtractor(feature_size=80)
    counts, features = [], []
    for clip in clips:
        made = extractor(
            wave(clip), sampling_rate=RATE, padding=True, truncation=False, pad_to_multiple_of=480_000,
            return_tensors="pt",
        )["input_features"]  # fmt: skip
        rows = made.reshape(80, -1, 3000).transpose(0, 1)
        features.append(rows)
        counts.append(375 * len(rows))
    return {"input_features": torch.cat(features)}, counts


@row("Voxtral", _KIND)
def _(sizes: Sizes) -> Subject:
    return Subject(_voxtral(sizes), by_hand(_chunks_of_30s, 24))


@row("Voxtral, LoRA", _KIND)
def _(sizes: Sizes) -> Subject:
    model = with_lora(_voxtral(sizes), _OF_THE_DECODER)
    return Subject(model, by_hand(_chunks_of_30s, 24))


@row("Voxtral, clips over 30 s", _KIND, seconds=(8.0, 62.0))
def _(sizes: Sizes) -> Subject:
    return Subject(_voxtral(sizes), by_hand(_chunks_of_30s, 24))


@row("Voxtral Realtime", _KIND)
def _(sizes: Sizes) -> Subject:
    audio = encoder(sizes, vocab_size=sizes.words, head_dim=sizes.width // sizes.heads, num_mel_bins=128)
    config = t.VoxtralRealtimeConfig(audio_config=audio, text_config=text_model(sizes))

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        """One text token for every eight frames, which streams beside the audio; padding tokens wait for words."""
        frames = padded([filterbank(clip, 128) for clip in clips], -9.0, multiple=8).transpose(1, 2).contiguous()
        steps = frames.shape[2] // 8
        texts = [[257] + [32] * 6 + tokenizer()(clip["text"])["input_ids"] for clip in clips]
        ids = padded([torch.tensor(text[:steps]) for text in texts], 32, length=steps)
        labels = torch.cat([ids[:, 1:], ids.new_full((len(ids), 1), 258)], 1)
        return {
            "input_ids": ids,
            "input_features": frames,
            "num_delay_tokens": 6,
            "attention_mask": torch.ones_like(ids),
            "labels": labels,
        }

    return Subject(t.VoxtralRealtimeForConditionalGeneration(config), collate)


def _granite_audio(clips: list[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
    """Pairs of frames, and three queries for each window of 15; the mask is of the queries, not of the frames."""
    waves = [torch.from_numpy(wave(clip)) for clip in clips]
    counts = [-(-((len(one) // HOP + 1) // 2) // 15) * 3 for one in waves]
    frames = [filterbank(clip, 80, stacked=2) for clip in clips]
    valid = torch.arange(max(counts))[None] < torch.tensor(counts)[:, None]
    return {"input_features": padded(frames), "input_features_mask": valid}, counts


def _granite(sizes: Sizes, plus: bool = False) -> Any:
    inside = {
        "num_layers": sizes.layers,
        "hidden_dim": sizes.width,
        "num_heads": sizes.heads,
        "dropout": 0.0,
        "context_size": 50,
        "max_pos_emb": 64,
    }
    projector = encoder(
        sizes, model_type="blip_2_qformer", encoder_hidden_size=sizes.width * (2 if plus else 1),
        cross_attention_frequency=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    common = {
        "text_config": text_model(sizes, model_type="granite"),
        "projector_config": projector,
        "audio_token_index": 300,
        "has_lora_adapter": False,
    }
    if plus:
        config = t.GraniteSpeechPlusConfig(encoder_config=inside | {"cat_hidden_layers": [0]}, **common)
        return t.GraniteSpeechPlusForConditionalGeneration(config)
    return t.GraniteSpeechForConditionalGeneration(t.GraniteSpeechConfig(encoder_config=inside, **common))


@row("Granite Speech", _KIND)
def _(sizes: Sizes) -> Subject:
    return Subject(_granite(sizes), by_hand(_granite_audio, 300))


@row("Granite Speech, projector and LoRA", _KIND)
def _(sizes: Sizes) -> Subject:
    model = with_lora(_granite(sizes), _OF_THE_DECODER, modules_to_save=["projector"])
    return Subject(model, by_hand(_granite_audio, 300))


@row("Granite Speech plus", _KIND)
def _(sizes: Sizes) -> Subject:
    return Subject(_granite(sizes, plus=True), by_hand(_granite_audio, 300))


@row("Qwen2-Audio", _KIND)
def _(sizes: Sizes) -> Subject:
    letters = tokenizer(**_QWEN)
    config = t.Qwen2AudioConfig(
        audio_config=whisper_encoder(sizes, num_mel_bins=128),
        text_config=text_model(sizes, model_type="qwen2"),
        audio_token_index=letters.convert_tokens_to_ids("<|audio_pad|>"),
    )
    processor = t.Qwen2AudioProcessor(t.WhisperFeatureExtractor(feature_size=128), letters)
    prompt = "user\n" + _ASKED + "assistant\n"
    return Subject(
        t.Qwen2AudioForConditionalGeneration(config),
        chat(processor, prompt, padding=True, sampling_rate=RATE),
        processor,
    )


@row("GLM-ASR", _KIND)
def _(sizes: Sizes) -> Subject:
    letters = tokenizer("<|pad|>")
    config = t.GlmAsrConfig(
        audio_config=encoder(sizes, intermediate_size=4 * sizes.width),
        text_config=text_model(sizes),
        audio_token_id=letters.convert_tokens_to_ids("<|pad|>"),
    )
    processor = t.GlmAsrProcessor(t.WhisperFeatureExtractor(feature_size=128), letters)
    collate = chat(processor, "user\n<|pad|>transcribe\nassistant\n", text_kwargs={"padding_side": "right"})
    return Subject(t.GlmAsrForConditionalGeneration(config), collate, processor)


def _flamingo(sizes: Sizes) -> Subject:
    letters = tokenizer("<sound>")
    config = t.AudioFlamingo3Config(
        audio_config=encoder(sizes, num_mel_bins=128),
        text_config=text_model(sizes),
        audio_token_id=letters.convert_tokens_to_ids("<sound>"),
    )
    processor = t.AudioFlamingo3Processor(t.WhisperFeatureExtractor(feature_size=128), letters)
    collate = chat(processor, "user\n<sound>transcribe\nassistant\n", text_kwargs={"padding_side": "right"})
    return Subject(t.AudioFlamingo3ForConditionalGeneration(config), collate, processor)


row("Audio Flamingo 3", _KIND)(_flamingo)
row("Audio Flamingo 3, clips over 30 s", _KIND, seconds=(8.0, 62.0))(_flamingo)
