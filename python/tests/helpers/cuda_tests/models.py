"""Speech models with random weights, small enough to train in a second on the stand-in runtime, and clips for them.

They are large enough that a batch of 8 needs some tens of MiB more than one of 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch.nn.utils.rnn import pad_sequence

CLIPS = 24
_QUIET = dict.fromkeys(
    ("dropout", "attention_dropout", "activation_dropout", "hidden_dropout", "final_dropout", "feat_proj_dropout",
     "conformer_conv_dropout", "layerdrop", "encoder_layerdrop", "decoder_layerdrop", "mask_time_prob",
     "mask_feature_prob"), 0.0)  # fmt: skip
_ENCODER: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
    "pad_token_id": 0, "ctc_loss_reduction": "mean", **_QUIET,
}  # fmt: skip
_RAW = {
    **_ENCODER, "conv_dim": (64, 64, 64), "conv_stride": (5, 4, 4), "conv_kernel": (10, 8, 4),
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "feat_extract_norm": "layer",
}  # fmt: skip
_DECODER: dict[str, Any] = {
    "vocab_size": 48, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_target_positions": 16,
    "pad_token_id": 2, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, **_QUIET,
}  # fmt: skip


@dataclass(frozen=True)
class SpeechModel:
    """A model by the names of its class and its configuration, its input, and modules at its begin, middle and end."""

    name: str
    configuration: str
    settings: dict[str, Any]
    modules: tuple[str, str, str]
    input: str = "input_values"
    shape: tuple[int, ...] = (48_000,)
    """Of one example; the first dimension is its length in time where ``masked``."""
    masked: bool = True
    generates: bool = False
    precision: str = "fp16"

    def build(self) -> Any:
        torch.manual_seed(0)
        configuration = getattr(transformers, self.configuration)(**self.settings)
        return getattr(transformers, self.name)(configuration)

    def rows(self) -> list[dict[str, Any]]:
        """Examples whose first value is their number. Raw audio and masked features are of unequal lengths."""
        source = torch.Generator().manual_seed(1)
        rows = []
        for i in range(CLIPS):
            shape = self.shape
            if self.masked:
                shape = (shape[0] - shape[0] // 3 * (i % 4 > 0), *shape[1:])
            values = torch.randn(shape, generator=source)
            values.view(-1)[0] = i
            labels = torch.randint(3, 30, (3 + i % 4,), generator=source)
            rows.append({self.input: values, "labels": labels})
        return rows

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Pads input and labels, with a mask of the input where it has one."""
        values = [row[self.input] for row in rows]
        batch = {
            self.input: pad_sequence(values, batch_first=True) if self.masked else torch.stack(values),
            "labels": pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100),
        }
        if self.masked:
            ones = [torch.ones(len(value), dtype=torch.long) for value in values]
            batch["attention_mask"] = pad_sequence(ones, batch_first=True)
        return batch

    def samples(self, batch: dict[str, Any]) -> list[int]:
        """The numbers of a batch's examples."""
        return [int(value) for value in batch[self.input].flatten(1)[:, 0].tolist()]

    @property
    def rule(self) -> str:
        """What its loss is divided by. It cannot be measured where losses mean nothing."""
        return "token_mean" if self.generates else "mean"


def _raw(prefix: str, base: str, **settings: Any) -> SpeechModel:
    modules = (f"{base}.feature_extractor", f"{base}.encoder.layers.0", "lm_head")
    return SpeechModel(f"{prefix}ForCTC", f"{prefix}Config", {**_RAW, **settings}, modules)


_SEW = {"squeeze_factor": 2, "feat_extract_norm": "layer"}
MODELS: dict[str, Callable[[], SpeechModel]] = {
    "wav2vec2": lambda: _raw("Wav2Vec2", "wav2vec2"),
    "HuBERT": lambda: _raw("Hubert", "hubert"),
    "WavLM": lambda: _raw("WavLM", "wavlm"),
    "data2vec": lambda: _raw("Data2VecAudio", "data2vec_audio"),
    "SEW": lambda: _raw("SEW", "sew", **_SEW),
    "SEW-D": lambda: SpeechModel(
        "SEWDForCTC", "SEWDConfig", {**_RAW, **_SEW},
        ("sew_d.feature_extractor", "sew_d.encoder.encoder.layer.0", "lm_head")),
    "w2v-BERT": lambda: SpeechModel(
        "Wav2Vec2BertForCTC", "Wav2Vec2BertConfig",
        # Positions take as much as the batch, divided by the heads, whatever its size.
        {**_ENCODER, "feature_projection_input_dim": 16, "num_attention_heads": 8},
        ("wav2vec2_bert.feature_projection", "wav2vec2_bert.encoder.layers.0", "lm_head"), "input_features", (600, 16)),
    "Whisper": lambda: SpeechModel(
        "WhisperForConditionalGeneration", "WhisperConfig",
        {**_DECODER, "num_mel_bins": 16, "max_source_positions": 1500, "suppress_tokens": [],
         "begin_suppress_tokens": []},
        ("model.encoder", "model.decoder.layers.0", "proj_out"), "input_features", (16, 3000), False, True),
    "Speech2Text": lambda: SpeechModel(
        "Speech2TextForConditionalGeneration", "Speech2TextConfig",
        {**_DECODER, "num_conv_layers": 1, "conv_channels": 64, "conv_kernel_sizes": (3,), "input_feat_per_channel": 16,
         "max_source_positions": 4000},
        # In fp32: Values has no results of small products of autocast's unlike types.
        ("model.encoder.conv", "model.decoder.layers.0", "lm_head"), "input_features", (2000, 16), True, True, "fp32"),
    "Moonshine": lambda: SpeechModel(
        "MoonshineForConditionalGeneration", "MoonshineConfig",
        {"vocab_size": 48, "pad_token_id": 2, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
         # Wide: else most of a step is its audio and masks, which stay whatever the micro-batch.
         "hidden_size": 256, "intermediate_size": 256, "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2,
         "encoder_num_attention_heads": 2, "decoder_num_attention_heads": 2, "max_position_embeddings": 1024, **_QUIET},
        ("model.encoder.conv1", "model.decoder.layers.0", "proj_out"), "input_values", (320_000,), True, True),
}  # fmt: skip
