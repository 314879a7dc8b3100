"""Kinds of models of transformers, tiny and with random weights, for ``guard_kinds.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from guard_kinds_runs import Kind, Pad
from guard_kinds_settings import clips, speech
from guard_kinds_steps import ROWS

from speech_models import CTC_SIZES, w2v_bert, wav2vec2, whisper

_QUIET = dict.fromkeys(
    ("dropout", "attention_dropout", "activation_dropout", "hidden_dropout", "final_dropout", "feat_proj_dropout",
     "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout_rate", "encoder_layerdrop", "decoder_layerdrop", "layerdrop",
     "positional_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)  # fmt: skip


def built(name: str, config: str, **settings: Any) -> Callable[[], Any]:
    """A model of transformers by the names of its class and of its configuration."""
    return lambda: getattr(transformers, name)(getattr(transformers, config)(**settings))


def audio(name: str, config: str, **settings: Any) -> Callable[[], Any]:
    """A model over raw audio."""
    return built(name, config, **{**CTC_SIZES, **settings})


def features(width: int, count: int = ROWS) -> list[dict[str, Any]]:
    """Frames of spectrograms, unequally many, with one to four labels."""
    source = torch.Generator().manual_seed(8)
    rows = []
    for i in range(count):
        length = int(torch.randint(20, 41, (), generator=source))
        labels = torch.randint(3, 8, (1 + i % 4,), generator=source)
        rows.append({"input_features": torch.randn(length, width, generator=source), "labels": labels})
    return rows


def spectra(count: int = ROWS) -> list[dict[str, Any]]:
    """Whisper's: all of one length."""
    return [{**row, "input_features": row["input_features"][:20].T.repeat(1, 2)[:, :32]} for row in features(4, count)]


def heard(model: Callable[[], Any], width: int = 8, **changes: Any) -> Kind:
    """A model over frames with masks."""
    return Kind(model, **{"rows": features(width), "collate": Pad(mask="input_features"), **changes})


def texts(vocabulary: int = 20, ends_silent: bool = False) -> list[dict[str, Any]]:
    """Tokens that are their own labels; the longest rows' last labels do not count."""
    source = torch.Generator().manual_seed(9)
    rows = []
    for i in range(ROWS):
        length = 12 if i % 4 == 0 else int(torch.randint(5, 10, (), generator=source))
        tokens = torch.randint(3, vocabulary, (length,), generator=source)
        labels = tokens.clone()
        if ends_silent:
            labels[8:] = -100
            labels[:1] = -100
        rows.append({"input_ids": tokens, "labels": labels})
    return rows


def read(model: Callable[[], Any], **changes: Any) -> Kind:
    """A model over tokens with masks."""
    return Kind(model, **{"rows": texts(), "collate": Pad(mask="input_ids"), "rate": 0.1, **changes})


def _one_label() -> list[dict[str, Any]]:
    return [{**row, "labels": row["labels"][0] % 5} for row in clips()]


def _gpt2(**settings: Any) -> Callable[[], Any]:
    return built("GPT2LMHeadModel", "GPT2Config", vocab_size=20, n_positions=16, n_embd=8, n_layer=1, n_head=2,
                 bos_token_id=1, eos_token_id=2, **_QUIET, **settings)  # fmt: skip


def _t5() -> Any:
    return built("T5ForConditionalGeneration", "T5Config", vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=1,
                 num_heads=2, dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0, eos_token_id=2)()  # fmt: skip


def _speech2text() -> Any:
    return built("Speech2TextForConditionalGeneration", "Speech2TextConfig", vocab_size=20, d_model=8, encoder_layers=1,
                 decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=8,
                 decoder_ffn_dim=8, max_source_positions=64, max_target_positions=16, num_conv_layers=1,
                 conv_channels=8, conv_kernel_sizes=(3,), input_feat_per_channel=8, decoder_start_token_id=2,
                 **_QUIET)()  # fmt: skip


def _speecht5(postnet: int) -> Callable[[], Any]:
    names = ("positional_dropout", "feat_proj_dropout", "speech_decoder_prenet_dropout",
             "speech_decoder_postnet_dropout", *_QUIET)  # fmt: skip
    return built(
        "SpeechT5ForTextToSpeech", "SpeechT5Config", vocab_size=20, hidden_size=8, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, num_mel_bins=6,
        speech_decoder_prenet_units=8, speech_decoder_postnet_units=8, speech_decoder_postnet_layers=postnet,
        speaker_embedding_dim=4, reduction_factor=1, use_guided_attention_loss=False, max_text_positions=32,
        max_speech_positions=64, **dict.fromkeys(names, 0.0))  # fmt: skip


def _spoken(length: int = 0) -> list[dict[str, Any]]:
    source = torch.Generator().manual_seed(10)
    rows = []
    for row in texts():
        frames = length or int(torch.randint(10, 21, (), generator=source))
        rows.append({"input_ids": row["input_ids"], "labels": torch.randn(frames, 6, generator=source),
                     "speaker_embeddings": torch.randn(4, generator=source)})  # fmt: skip
    return rows


class Pretraining:
    """Negatives are numbers of frames of the whole batch, as ``_sample_negative_indices`` makes them."""

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        values = torch.stack([row["input_values"] for row in rows])
        masks = torch.stack([row["mask_time_indices"] for row in rows])
        negatives = torch.stack([row["negatives"] + i * masks.shape[1] for i, row in enumerate(rows)])
        return {"input_values": values, "mask_time_indices": masks, "sampled_negative_indices": negatives}


def _masked(count: int = ROWS) -> list[dict[str, Any]]:
    source = torch.Generator().manual_seed(11)
    model = _pretraining()
    frames = int(model._get_feat_extract_output_lengths(torch.tensor(800)))
    rows = []
    for _ in range(count):
        chosen = torch.rand(frames, generator=source) < 0.5
        chosen[:3] = True
        places = chosen.nonzero()[:, 0]
        negatives = places[torch.randint(len(places), (frames, 4), generator=source)]
        rows.append({"input_values": torch.randn(800, generator=source), "mask_time_indices": chosen,
                     "negatives": negatives})  # fmt: skip
    return rows


def _pretraining() -> Any:
    return audio("Wav2Vec2ForPreTraining", "Wav2Vec2Config", codevector_dim=8, proj_codevector_dim=8,
                 num_codevectors_per_group=4, num_codevector_groups=2, num_negatives=4,
                 feat_quantizer_dropout=0.0)()  # fmt: skip


def _seamless() -> Any:
    small = {f"{where}_{option}": value for where in ("encoder", "decoder", "speech_encoder") for option, value in (
        ("layers", 1), ("attention_heads", 2), ("ffn_dim", 8), ("intermediate_size", 8),
        ("layerdrop", 0.0))}  # fmt: skip
    return built("SeamlessM4TForSpeechToText", "SeamlessM4TConfig", vocab_size=20, hidden_size=8,
                  feature_projection_input_dim=8, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
                  adaptor_kernel_size=3, adaptor_stride=2, num_adapter_layers=1, max_position_embeddings=64,
                  max_source_positions=64, add_adapter=True, speech_encoder_dropout=0.0, adaptor_dropout=0.0,
                  decoder_start_token_id=2, t2u_vocab_size=20, conv_depthwise_kernel_size=3,
                  **{**_QUIET, **small})()  # fmt: skip


def _qwen2_audio() -> Any:
    text = {"model_type": "qwen2", "vocab_size": 20, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64}  # fmt: skip
    ears = {"num_mel_bins": 4, "d_model": 8, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 8,
            "max_source_positions": 16, **_QUIET}  # fmt: skip
    return built("Qwen2AudioForConditionalGeneration", "Qwen2AudioConfig", audio_config=ears, text_config=text,
                 audio_token_index=19)()  # fmt: skip


def _asked() -> list[dict[str, Any]]:
    """A clip of 32 frames, eight tokens in its place, and an answer."""
    source = torch.Generator().manual_seed(12)
    rows = []
    for i in range(ROWS):
        answer = torch.randint(3, 18, (2 + i % 4,), generator=source)
        tokens = torch.cat([torch.full((8,), 19), answer])
        rows.append({"input_ids": tokens, "labels": torch.cat([torch.full((8,), -100), answer]),
                     "input_features": torch.randn(4, 32, generator=source)})  # fmt: skip
    return rows


class Asked(Pad):
    """With a mask of the audio's frames beside that of the tokens."""

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {**super().__call__(rows), "feature_attention_mask": torch.ones(len(rows), 32, dtype=torch.long)}


def _shifted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """With the decoder's input, for a smoother that takes the labels away."""
    batch = Pad()(rows)
    inputs = torch.nn.functional.pad(batch["labels"][:, :-1], (1, 0), value=1)
    return {**batch, "decoder_input_ids": inputs.masked_fill(inputs == -100, 0)}


def _left(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Padded on the left, as for generation."""
    turned = Pad(mask="input_ids", to=12, sides=("labels",))(
        [{name: value.flip(0) for name, value in row.items()} for row in rows]
    )
    return {name: value.flip(1) for name, value in turned.items()}


def _divides(trainer: Any) -> None:
    """The plain Trainer accumulates a mean right, where it is told that it is one."""
    trainer.loss_is_scaled_for_ga = False


def _frozen() -> Any:
    model = wav2vec2("mean")
    model.freeze_feature_encoder()
    return model


def _conformer() -> Any:
    return audio("Wav2Vec2ConformerForCTC", "Wav2Vec2ConformerConfig", ctc_loss_reduction="mean",
                 conformer_conv_dropout=0.0, conv_depthwise_kernel_size=3, position_embeddings_type="relative",
                 max_source_positions=256)()  # fmt: skip


def _moonshine() -> Any:
    return built("MoonshineForConditionalGeneration", "MoonshineConfig", vocab_size=20, pad_token_id=0, hidden_size=8,
                 intermediate_size=8, encoder_num_hidden_layers=1, decoder_num_hidden_layers=1,
                 encoder_num_attention_heads=2, decoder_num_attention_heads=2, max_position_embeddings=64,
                 decoder_start_token_id=1, **_QUIET)()  # fmt: skip


_FULL = Pad(mask="input_values", to=800)
_NORMS = {"own_shape": True, "names": ("batch_norm", "normalise over the batch")}
_MEAN = {"ctc_loss_reduction": "mean"}
MODELS: dict[str, Callable[[], Any]] = {
    "wav2vec2, CTC mean": lambda: speech(lambda: wav2vec2("mean")),
    "wav2vec2, CTC sum": lambda: speech(lambda: wav2vec2("sum"), rate=1e-4),
    "wav2vec2, group norm": lambda: speech(
        audio("Wav2Vec2ForCTC", "Wav2Vec2Config", **{**_MEAN, "feat_extract_norm": "group"}),
        collate=_FULL),
    "wav2vec2, group norm, no mask": lambda: speech(
        audio("Wav2Vec2ForCTC", "Wav2Vec2Config", **{**_MEAN, "feat_extract_norm": "group"}), rows=clips(equal=1),
        collate=Pad()),
    "wav2vec2, frozen encoder": lambda: speech(_frozen),
    "wav2vec2, equal labels": lambda: speech(
        lambda: wav2vec2("mean"), rows=[{**row, "labels": row["labels"][:1].repeat(2)} for row in clips()]),
    "wav2vec2, classes": lambda: speech(
        audio("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", num_labels=5, classifier_proj_size=8),
        rows=_one_label()),
    "wav2vec2, frames classified": lambda: speech(
        audio("Wav2Vec2ForAudioFrameClassification", "Wav2Vec2Config", num_labels=2), metrics=False,
        rows=[{"input_values": row["input_values"][:400], "labels": torch.eye(2)[torch.arange(18) % (2 - i % 2)]}
              for i, row in enumerate(clips())], collate=Pad()),
    "wav2vec2, pre-training": lambda: Kind(_pretraining, _masked(), Pretraining(), random=True, own_shape=True,
                                           metrics=False, rate=1e-4, names=("sampled_negative_indices", "the loss")),
    "HuBERT": lambda: speech(audio("HubertForCTC", "HubertConfig", **_MEAN)),
    "WavLM": lambda: speech(audio("WavLMForCTC", "WavLMConfig", **_MEAN)),
    "data2vec": lambda: speech(audio("Data2VecAudioForCTC", "Data2VecAudioConfig", **_MEAN), collate=_FULL),
    "SEW": lambda: speech(audio("SEWForCTC", "SEWConfig", **_MEAN, squeeze_factor=2), collate=_FULL),
    "wav2vec2 conformer": lambda: speech(_conformer, collate=_FULL, prepare=_divides, **_NORMS),
    "w2v-BERT": lambda: heard(w2v_bert),
    "Whisper": lambda: Kind(whisper, spectra(), Pad()),
    "Whisper, label smoothing": lambda: Kind(whisper, spectra(), _shifted,
                                             settings={"label_smoothing_factor": 0.1}),
    "Speech2Text": lambda: heard(_speech2text, rate=1e-2),
    "SpeechT5, spectrograms": lambda: Kind(_speecht5(0), _spoken(), Pad(mask="input_ids"), metrics=False),
    "SpeechT5, batch normalisation": lambda: Kind(
        _speecht5(2), _spoken(12), Pad(mask="input_ids"), metrics=False, prepare=_divides, **_NORMS),
    "Moonshine": lambda: speech(_moonshine, rows=[{**row, "input_values": row["input_values"].repeat(3)}
                                                  for row in clips()], collate=Pad(mask="input_values", to=2400)),
    "SeamlessM4T": lambda: heard(
        _seamless, prepare=_divides, **_NORMS, collate=Pad(mask="input_features", to=40),
        rows=[{**row, "labels": torch.cat([row["labels"], torch.tensor([4, 5, 6])])[:3]} for row in features(8)]),
    "Qwen2-Audio": lambda: Kind(_qwen2_audio, _asked(), Asked(mask="input_ids"), metrics=False),
    "Qwen2-Audio, as many tokens as frames": lambda: Kind(
        _qwen2_audio, _asked(), Asked(mask="input_ids", to=32, sides=("labels",)), metrics=False),
    "GPT-2": lambda: read(_gpt2()),
    "GPT-2, padded on the left": lambda: read(_gpt2(), collate=_left),
    "GPT-2, noise in the embeddings": lambda: read(_gpt2(), settings={"neftune_noise_alpha": 5.0}, random=True,
                                                   own_shape=True),
    "Whisper, generation": lambda: Kind(whisper, spectra(), Pad(), trainer=transformers.Seq2SeqTrainer,
                                        settings={"predict_with_generate": True, "generation_max_length": 6}),
    "GPT-2, ends in -100": lambda: read(_gpt2(), rows=texts(ends_silent=True)),
    "GPT-2, label smoothing": lambda: read(_gpt2(), rows=texts(ends_silent=True),
                                           settings={"label_smoothing_factor": 0.1}),
    "T5": lambda: read(_t5),
}  # fmt: skip
