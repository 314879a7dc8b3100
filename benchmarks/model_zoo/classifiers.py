"""Classifiers of clips and of frames, and embeddings of speakers."""

from __future__ import annotations

from typing import Any

import torch
import transformers as t
from ctc import wave_collator, wave_config
from encoder_decoders import whisper_config
from material import RATE, Sizes, Subject, classes, filterbank, mask, padded, row, wave

_KIND = "classifier"
_EMBEDDING = {"tdnn_dim": (32, 32, 64), "tdnn_kernel": (5, 3, 1), "tdnn_dilation": (1, 2, 1), "xvector_output_dim": 32}


def _of_clips(name: str, prefix: str, task: str = "SequenceClassification", **more: Any) -> None:
    def build(sizes: Sizes) -> Subject:
        config = wave_config(f"{prefix}Config", sizes, num_labels=4, classifier_proj_size=32, **more)
        return Subject(getattr(t, f"{prefix}For{task}")(config), wave_collator(classes))

    row(name, _KIND)(build)


_of_clips("wav2vec2 classifier", "Wav2Vec2")
_of_clips("HuBERT classifier", "Hubert")
_of_clips("WavLM classifier, weighted layers", "WavLM", use_weighted_layer_sum=True)
_of_clips("wav2vec2 x-vector", "Wav2Vec2", "XVector", **_EMBEDDING)
_of_clips("WavLM x-vector", "WavLM", "XVector", **_EMBEDDING)


def _of_frames(name: str, prefix: str) -> None:
    def build(sizes: Sizes) -> Subject:
        model = getattr(t, f"{prefix}ForAudioFrameClassification")(wave_config(f"{prefix}Config", sizes, num_labels=3))
        waves = wave_collator(classes)

        def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
            """One speaker at a time, in turns: as one-hot vectors a frame."""
            batch = waves(clips)
            frames = int(model._get_feat_extract_output_lengths(batch["input_values"].shape[1]))
            turns = torch.arange(frames) // 7 % 3
            return batch | {"labels": torch.nn.functional.one_hot(turns, 3).float().repeat(len(clips), 1, 1)}

        return Subject(model, collate)

    row(name, _KIND)(build)


_of_frames("WavLM frame classifier", "WavLM")
_of_frames("wav2vec2 frame classifier", "Wav2Vec2")


@row("w2v-BERT classifier", _KIND)
def _(sizes: Sizes) -> Subject:
    config = t.Wav2Vec2BertConfig(
        hidden_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.feed_forward,
        layerdrop=0.0,
        apply_spec_augment=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        conformer_conv_dropout=0.0,
        num_labels=4,
        classifier_proj_size=32,
    )
    extractor = t.SeamlessM4TFeatureExtractor(padding_value=1.0)

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        batch = extractor([wave(clip) for clip in clips], sampling_rate=RATE, return_tensors="pt")
        return dict(batch) | {"labels": classes(clips)}

    return Subject(t.Wav2Vec2BertForSequenceClassification(config), collate)


@row("AST", _KIND)
def _(sizes: Sizes) -> Subject:
    """Clips of up to 5 s: longer ones are cut by the collator as by the extractor, shorter ones padded."""
    config = t.ASTConfig(
        hidden_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.feed_forward,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_length=512,
        num_labels=4,
    )

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        frames = [filterbank(clip, 128)[:512] for clip in clips]
        return {"input_values": padded(frames, length=512), "labels": classes(clips)}

    return Subject(t.ASTForAudioClassification(config), collate)


@row("Whisper classifier", _KIND)
def _(sizes: Sizes) -> Subject:
    model = t.WhisperForAudioClassification(whisper_config(sizes, num_labels=4, classifier_proj_size=32))
    extractor = t.WhisperFeatureExtractor(feature_size=80)

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        batch = extractor([wave(clip) for clip in clips], sampling_rate=RATE, return_tensors="pt")
        return dict(batch) | {"labels": classes(clips)}

    return Subject(model, collate)


@row("Nemotron 3 diarization, loss in a module around it", _KIND)
def _(sizes: Sizes) -> Subject:
    from transformers.models.nemotron3_diarization import modeling_nemotron3_diarization as modeling

    inside = {
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.feed_forward,
    }
    config = t.Nemotron3DiarizationConfig(
        audio_config=inside,
        head_config={"hidden_size": 32, "num_speakers": 4, "audio_hidden_size": sizes.width},
        streaming_config={"num_speakers": 4},
    )

    def collate(clips: list[dict[str, Any]]) -> dict[str, Any]:
        frames = [filterbank(clip, 128) for clip in clips]
        features = padded(frames)
        turns = torch.arange(features.shape[1]) // 40 % 4
        speaking = torch.nn.functional.one_hot(turns, 4).float().repeat(len(clips), 1, 1)
        return {"input_features": features, "attention_mask": mask(frames, torch.bool), "labels": speaking}

    return Subject(_WithLoss(modeling.Nemotron3DiarizationForAudioFrameClassification(config)), collate)


class _WithLoss(torch.nn.Module):
    """A model without a loss, in a module of its user's."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_features: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> Any:
        logits = self.model(input_features, attention_mask).logits
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[:, : logits.shape[1]])
        return {"loss": loss, "logits": logits}
