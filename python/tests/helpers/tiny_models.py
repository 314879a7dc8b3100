"""Random models of transformers that are small enough to measure gradients, each with a batch of unequal clips."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import transformers

_TEXTS = (11, 7, 9, 5, 8)
_LABELS = (6, 2, 4, 3, 5)
_TRANSCRIPTS = (5, 2, 4, 1, 3)
_SAMPLES = (900, 520, 770, 400, 610)
_LONG = (9600, 5200, 7760, 4000, 6160)
_FRAMES = (90, 52, 78, 40, 62)
_WORDS = 64  # of a vocabulary; the first five and the last are special
_AUDIO = _WORDS - 1


class Example(NamedTuple):
    """A model, and a batch of five clips."""

    model: Any
    batch: dict[str, Any]


# Entries of configs, where they have them.
_SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "word_embed_proj_dim", "embedding_size"), 16),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), 2),
    **dict.fromkeys(
        ("encoder_layers", "decoder_layers", "num_decoder_layers", "speech_encoder_layers", "depth", "num_blocks"), 1
    ),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "speech_encoder_attention_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "global_head_dim", "query_pre_attn_scalar", "hidden_size_per_layer_input"), 8),
    **dict.fromkeys(("intermediate_size", "d_ff", "n_inner", "hidden_dim", "ffn_dim", "ffn_hidden_size"), 32),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "speech_encoder_intermediate_size"), 32),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "num_mel_bins", "output_dim"), 16),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 256),
    **dict.fromkeys(("num_experts", "num_local_experts", "rotary_dim", "sliding_window", "laurel_rank"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_global_key_value_heads", "altup_num_inputs", "num_labels"), 2),
    **dict.fromkeys(("vocab_size", "decoder_vocab_size", "vocab_size_per_layer_input"), _WORDS),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "layer_types"), None),
    **dict.fromkeys(("pad_token_id", "num_kv_shared_layers"), 0),
    **dict.fromkeys(("router_jitter_noise", "input_jitter_noise", "mask_time_prob", "mask_feature_prob"), 0.0),
    **dict.fromkeys(("max_source_positions", "max_target_positions", "subsampling_conv_channels", "conv_channels"), 16),
    **dict.fromkeys(("nemo_conv_channels", "ext_pw_out_channel"), 16),
    **dict.fromkeys(("feature_projection_input_dim", "classifier_proj_size", "xvector_output_dim"), 8),
    "bos_token_id": 1,
    "eos_token_id": 2,
    "local_attention": 8,
    "mlp_only_layers": [],
    "partial_rotary_factor": 0.5,
    "attention_types": [[["global"], 2]],
    "apply_spec_augment": False,
    "conv_depthwise_kernel_size": 5,
    "tdnn_dim": (8, 8, 12),
    "tdnn_kernel": (3, 3, 1),
    "tdnn_dilation": (1, 1, 1),
    "downsample_hidden_size": 8,
}
WAVES: dict[str, Any] = {
    "conv_dim": (8, 8, 8),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 2),
    "feat_extract_norm": "layer",
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "do_stable_layer_norm": True,
}
"""Of encoders that take samples: a frame is made of 20."""
_RELATIVES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("Wav2Vec2", "Hubert", "WavLM", "UniSpeechSat"), WAVES),
    "Wav2Vec2Bert": {},
    "UniSpeech": WAVES | {"num_ctc_classes": _WORDS},
    "Data2VecAudio": WAVES | {"num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 3},
    "SEW": WAVES | {"squeeze_factor": 2},
    "SEWD": WAVES | {"squeeze_factor": 2, "position_buckets": 16},
    "Wav2Vec2Conformer": WAVES | {"position_embeddings_type": "relative"},
}
_HEADS = ("ForCTC", "ForSequenceClassification", "ForAudioFrameClassification", "ForXVector")
_KINDS = {
    **dict.fromkeys(("ForCausalLM", "LMHeadModel"), "next"),
    **dict.fromkeys(("ForConditionalGeneration", "MTModel", "ForTextToText"), "target"),
    "ForMaskedLM": "masked",
    "ForTokenClassification": "tags",
    "ForQuestionAnswering": "answers",
    "ForSequenceClassification": "classes",
}
_DISENTANGLED = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 8}
_OWN_CHANGES: dict[str, dict[str, Any]] = {
    "DebertaForMaskedLM": _DISENTANGLED,
    "DebertaV2ForMaskedLM": _DISENTANGLED | {"position_buckets": 4, "norm_rel_ebd": "layer_norm"},
    "CodeGenForCausalLM": {"n_head": 4},
    "Gemma3nForCausalLM": {"layer_types": ["full_attention"] * 2},  # windows make it NaN at this size
}


def example(name: str, **changes: Any) -> Example:
    """The model of a class, by name, with ``changes`` of its config, and a batch for it."""
    torch.manual_seed(0)
    if name in _EXAMPLES:
        return _EXAMPLES[name](**changes)
    if name in _SEQ2SEQ:
        batch, own = _SEQ2SEQ[name]
        return Example(tiny(name, **{"decoder_start_token_id": 1, **own, **changes}), batch())
    for head in _HEADS:
        if name.removesuffix(head) in _RELATIVES:
            return _relative(name.removesuffix(head), head, **changes)
    kind = next(kind for suffix, kind in _KINDS.items() if name.endswith(suffix))
    return Example(
        tiny(name, **{"decoder_start_token_id": 0, "pad_token_id": 0, **_OWN_CHANGES.get(name, {}), **changes}),
        text(kind),
    )


def tiny(name: str, **changes: Any) -> Any:
    """A small model of a class, by name."""
    kind = getattr(transformers, name)
    config = kind.config_class(**sizes(kind.config_class(), **changes))
    _compute_in_float64(config)
    return kind(config)


def sizes(config: Any, **changes: Any) -> dict[str, Any]:
    """Arguments for a small config without dropout; for a config within, ``changes`` has a dict."""
    arguments: dict[str, Any] = {}
    for name, value in vars(config).items():
        if isinstance(value, transformers.PretrainedConfig):
            arguments[name] = {"model_type": value.model_type, **sizes(value, **changes.pop(name, {}))}
        elif "drop" in name and isinstance(value, float):
            arguments[name] = 0.0
        elif name in _SIZES and not isinstance(getattr(type(config), name, None), property):
            arguments[name] = _SIZES[name]
    return arguments | changes


def _compute_in_float64(config: Any) -> None:
    """Choose the implementation of experts that can."""
    if hasattr(config, "_experts_implementation"):
        config._experts_implementation = "eager"
    for part in vars(config).values():
        if isinstance(part, transformers.PretrainedConfig):
            _compute_in_float64(part)


def mask_of(lengths: Sequence[int], dtype: Any = torch.long) -> Any:
    """Ones for what is no padding."""
    return (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).to(dtype)


def tokens(lengths: Sequence[int] = _LABELS, padding: int = -100) -> Any:
    """Random words."""
    words = torch.randint(5, _WORDS - 1, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    return words.masked_fill(mask_of(lengths) == 0, padding)


def noise(*shape: int) -> Any:
    """The same in each call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def text(kind: str) -> dict[str, Any]:
    """Sentences padded behind, with labels: next, masked, target, tags, classes or answers."""
    mask, ids = mask_of(_TEXTS), tokens(_TEXTS, 0)
    for row, length in enumerate(_TEXTS):
        ids[row, length - 1] = 2  # the end, which some classifiers look for
    batch = {"input_ids": ids, "attention_mask": mask}
    if kind == "answers":
        starts, ends = torch.tensor([1, 2, 3, 0, 4]), torch.tensor([5, 4, 6, 3, 7])
        return batch | {"start_positions": starts, "end_positions": ends}
    if kind in ("classes", "target"):
        return batch | {"labels": torch.tensor([1, 0, -100, 1, 0]) if kind == "classes" else tokens()}
    labels = ids.masked_fill(mask == 0, -100)
    if kind == "masked":
        labels[0, 7:] = labels[1, 1:] = labels[2, ::2] = labels[4, :5] = -100
    else:
        labels[0, :4] = labels[1, :2] = labels[2, 3] = -100
    return batch | {"labels": torch.where(labels == -100, -100, labels % 2) if kind == "tags" else labels}


def waves(labels: Any, lengths: Sequence[int] = _SAMPLES) -> dict[str, Any]:
    """Clips as samples."""
    mask = mask_of(lengths)
    return {"input_values": noise(*mask.shape) * mask, "attention_mask": mask, "labels": labels}


def frames(labels: Any, width: int, lengths: Sequence[int] = _FRAMES, dtype: Any = torch.bool) -> dict[str, Any]:
    """Clips as spectra."""
    mask = mask_of(lengths, dtype)
    return {"input_features": noise(*mask.shape, width) * mask[..., None], "attention_mask": mask, "labels": labels}


def prompt(counts: Sequence[int], **entries: Any) -> dict[str, Any]:
    """Placeholders of audio and then words, which are the labels; padding in front."""
    lengths = [count + words for count, words in zip(counts, _LABELS, strict=True)]
    mask, ids = mask_of(lengths).flip(1), tokens(lengths, 0).flip(1)
    labels = ids.masked_fill(mask == 0, -100)
    for row, words in enumerate(_LABELS):
        ids[row, :-words][mask[row, :-words] == 1] = _AUDIO
        labels[row, :-words] = -100
    labels[:, 0] = ids[:, 0].masked_fill(mask[:, 0] == 0, -100)  # which no token predicts
    return {"input_ids": ids, "attention_mask": mask, "labels": labels, **entries}


def _relative(stem: str, head: str, **changes: Any) -> Example:
    """A relative of wav2vec2."""
    model, takes_frames = tiny(stem + head, **{**_RELATIVES[stem], **changes}), stem == "Wav2Vec2Bert"
    labels = tokens(_TRANSCRIPTS) if head == "ForCTC" else torch.tensor([1, 0, 1, 1, 0])
    if head == "ForSequenceClassification":
        labels[2] = -100
    batch = frames(labels, 8, dtype=torch.long) if takes_frames else waves(labels)
    if head == "ForAudioFrameClassification":
        count = batch["attention_mask"].shape[1]
        count = count if takes_frames else int(model._get_feat_extract_output_lengths(count))
        batch["labels"] = torch.nn.functional.one_hot(tokens([count] * 5) % 2, 2).to(torch.get_default_dtype())
    return Example(model, batch)


def _conformer(name: str, width: int = 16, padding: int = 0, **changes: Any) -> Example:
    """A model whose collator pads labels with a token."""
    model = tiny(name, pad_token_id=padding, encoder_config={"conv_kernel_size": 5}, **changes)
    return Example(model, frames(tokens(_TRANSCRIPTS, padding), width))


def _transducer(name: str, padding: int = 2) -> Example:
    blank = _WORDS - 1
    model, batch = _conformer(name, padding=padding, blank_token_id=blank, decoder_hidden_size=16)
    start = torch.full((5, 1), blank)
    return Example(model, batch | {"decoder_input_ids": torch.cat([start, batch["labels"]], 1)})


def _omniasr(**changes: Any) -> Example:
    """Clips as samples of one channel, with a mask of another name."""
    convolutions = {name: value for name, value in WAVES.items() if "conv" in name}
    batch = waves(tokens(_TRANSCRIPTS))
    batch |= {"input_values": batch["input_values"][:, None], "padding_mask": batch.pop("attention_mask")}
    return Example(tiny("OmniASRForCTC", audio_config=convolutions, **changes), batch)


def _pair(name: str, batch: dict[str, Any]) -> Example:
    """An encoder of speech or text, and a BERT that decodes."""
    kind, bert = getattr(transformers, name), transformers.BertConfig
    wav2vec2 = transformers.Wav2Vec2Config
    first = wav2vec2(**sizes(wav2vec2(), **WAVES)) if "input_values" in batch else bert(**sizes(bert()))
    second = bert(**sizes(bert(), is_decoder=True, add_cross_attention=True))
    config = kind.config_class.from_encoder_decoder_configs(first, second)
    config.pad_token_id, config.decoder_start_token_id = 0, 1
    return Example(kind(config), batch)


def _audio_llm(stem: str, length: int, lengths: Sequence[int] = (), **changes: Any) -> Example:
    """Prompts with a placeholder for each frame that the model makes of a clip."""
    model = tiny(stem + "ForConditionalGeneration", audio_token_id=_AUDIO, **changes)
    entries = {"input_features": noise(5, 16, length)}
    if lengths:
        entries["input_features_mask"] = mask_of(lengths)
    clips = ({name: value[row : row + 1] for name, value in entries.items()} for row in range(5))
    return Example(model, prompt([len(model.get_audio_features(**clip).pooler_output) for clip in clips], **entries))


def _qwen2_audio() -> Example:
    name, audio = "Qwen2AudioForConditionalGeneration", {"max_source_positions": 16}
    model, lengths = tiny(name, audio_token_id=_AUDIO, audio_config=audio), (32, 20, 28, 16, 24)
    counts = [(length // 2 - 2) // 2 + 1 for length in lengths]
    entries = {"input_features": noise(5, 16, 32), "feature_attention_mask": mask_of(lengths)}
    return Example(model, prompt(counts, **entries))


def _granite(stem: str) -> Example:
    model = tiny(
        stem + "ForConditionalGeneration",
        audio_token_id=_AUDIO,
        window_size=4,
        downsample_rate=2,
        encoder_config={"input_dim": 8, "context_size": 16, "max_pos_emb": 16},
        projector_config={"encoder_hidden_size": 32, "num_hidden_layers": 1},
    )
    features = noise(5, 24, 8)
    count = model.get_audio_features(features[:1]).pooler_output.shape[1]
    counts = [count, count - 2, count - 1, count - 3, count]
    return Example(model, prompt(counts, input_features=features, input_features_mask=mask_of(counts, torch.bool)))


def _kyutai() -> Example:
    codec = {"num_filters": 2, "codebook_dim": 8, "vector_quantization_hidden_dimension": 8, "upsample_groups": 16}
    audio = {"num_codebooks": 2, "codebook_vocab_size": 8, "audio_pad_token_id": _WORDS + 16, "codec_config": codec}
    batch = text("next")
    ids = torch.stack([batch["input_ids"], batch["input_ids"] % 8, batch["input_ids"] % 7], -1)
    return Example(tiny("KyutaiSpeechToTextForConditionalGeneration", **audio), batch | {"input_ids": ids})


def _with(base: Example, **entries: Any) -> Example:
    return Example(base.model, base.batch | entries)


def _text_alone(stem: str, **changes: Any) -> Example:
    """A model that also takes audio, with none."""
    return Example(tiny(stem + "ForConditionalGeneration", **changes), text("next"))


_SHORT = (80, 50, 60, 40, 70)
_OMNI: dict[str, Any] = {
    "vision_start_token_id": 50,
    "audio_start_token_id": 51,
    "text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}},
}
_NEMOTRON: dict[str, Any] = {
    "text_config": {"layers_block_type": ["full_attention", "moe"], "n_routed_experts": 4},
    "word_timestamp_config": {"blank_token_id": 9},
    "audio_config": {"diarization_config": {"head_config": {"audio_hidden_size": 16}}},
}
_VIBEVOICE = {
    f"{kind}_tokenizer_encoder_config": {"num_filters": 2, "depths": [1, 1], "downsampling_ratios": [2]}
    for kind in ("acoustic", "semantic")
}
_AUDIO_LLMS: dict[str, Callable[[], Example]] = {
    "Qwen3ASR": lambda: _audio_llm("Qwen3ASR", 400, (400, 250, 330, 120, 300)),
    "Voxtral": lambda: _audio_llm("Voxtral", 32),
    "VoxtralRealtime": lambda: _with(_text_alone("VoxtralRealtime"), input_features=noise(5, 16, 88)),
    "GlmAsr": lambda: _audio_llm("GlmAsr", 80, _SHORT, audio_config={"intermediate_size": 64}),
    "AudioFlamingo3": lambda: _audio_llm("AudioFlamingo3", 80, _SHORT, audio_config={"max_source_positions": 40}),
    "Qwen2Audio": _qwen2_audio,
    "KyutaiSpeechToText": _kyutai,
    **{stem: functools.partial(_granite, stem) for stem in ("GraniteSpeech", "GraniteSpeechPlus")},
    **{
        stem: functools.partial(_text_alone, stem, **changes)
        for stem, changes in {
            "MusicFlamingo": {},
            "OmniASR": {},
            "Gemma4": {},
            "Gemma4Unified": {},
            "MossTranscribeDiarize": {},
            "Qwen2_5OmniThinker": _OMNI,
            "Qwen3OmniMoeThinker": _OMNI,
            "FunAsrNano": {"adaptor_config": {"intermediate_size": 4}},
            "Nemotron3_5Transcribe": _NEMOTRON,
            "VibeVoiceAsr": _VIBEVOICE,
        }.items()
    },
}
_HALVES = ("encoder", "decoder")
_MOONSHINE = {
    **{f"{half}_num_hidden_layers": 1 for half in _HALVES},
    **{f"{half}_num_{kind}_heads": 2 for half in _HALVES for kind in ("attention", "key_value")},
}
_CLASSES = (1, 0, -100, 1, 0)
_SPECTRA = (45, 26, 38, 20, 31)
_SEQ2SEQ: dict[str, tuple[Callable[[], dict[str, Any]], dict[str, Any]]] = {
    "WhisperForConditionalGeneration": (lambda: {"input_features": noise(5, 16, 32), "labels": tokens()}, {}),
    "WhisperForAudioClassification": (
        lambda: {"input_features": noise(5, 16, 32), "labels": torch.tensor(_CLASSES)},
        {},
    ),
    "ASTForAudioClassification": (
        lambda: {"input_values": noise(5, 32, 16), "labels": torch.tensor(_CLASSES)},
        {"max_length": 32, "problem_type": "single_label_classification"},
    ),
    "Speech2TextForConditionalGeneration": (
        lambda: frames(tokens(), 8, _SPECTRA, torch.long),
        {"input_feat_per_channel": 8, "conv_kernel_sizes": (3, 3), "max_source_positions": 64},
    ),
    **{
        f"SeamlessM4T{version}ForSpeechToText": (
            lambda: frames(tokens(), 8, _SPECTRA, torch.long),
            {"adaptor_kernel_size": 4, "adaptor_stride": 4},
        )
        for version in ("", "v2")
    },
    "MoonshineForConditionalGeneration": (lambda: waves(tokens(), _LONG), _MOONSHINE),
    "MoonshineStreamingForConditionalGeneration": (
        lambda: waves(tokens(), _LONG),
        {"encoder_hidden_size": 16, "num_key_value_heads": 2},
    ),
    **{
        f"{stem}ForConditionalGeneration": (lambda: frames(tokens(), 16), {"encoder_config": {"conv_kernel_size": 5}})
        for stem in ("Canary", "CohereAsr")
    },
    "SpeechT5ForSpeechToText": (
        lambda: waves(tokens()),
        {**WAVES, "max_speech_positions": 200, "max_text_positions": 40, "encoder_max_relative_position": 8},
    ),
    "Pop2PianoForConditionalGeneration": (
        lambda: {"input_features": noise(5, 9, 16), "attention_mask": mask_of((9, 5, 7, 4, 6)), "labels": tokens()},
        {},
    ),
}
_EXAMPLES: dict[str, Callable[..., Example]] = {
    **{stem + "ForConditionalGeneration": build for stem, build in _AUDIO_LLMS.items()},
    "Phi4MultimodalForCausalLM": lambda: Example(tiny("Phi4MultimodalForCausalLM"), text("next")),
    **{name: functools.partial(_conformer, name) for name in ("ParakeetForCTC", "LasrForCTC")},
    "GraniteSpeech5ForCTC": functools.partial(_conformer, "GraniteSpeech5ForCTC", 64),
    **{name: functools.partial(_transducer, name) for name in ("ParakeetForTDT", "ParakeetForRNNT")},
    "OmniASRForCTC": _omniasr,
    "SpeechEncoderDecoderModel": lambda: _pair("SpeechEncoderDecoderModel", waves(tokens())),
    "EncoderDecoderModel": lambda: _pair("EncoderDecoderModel", text("target")),
}
