"""Times from traces: beside those of the estimator that plays the config, and of modules that nobody described."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import asrconfig_go as ac
from asrconfig_go.predict import MemoryModel
from conformer import Conformer, features

LARGE = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "num_hidden_layers": 3,
    "layerdrop": 0.0,
}
LAYER_NORM = {"do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True}
DEPTH = {"num_hidden_layers": 2, "layerdrop": 0.0}
MODELS: dict[str, Any] = {
    "wav2vec2": lambda: transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**DEPTH)),
    "xls-r": lambda: transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**LARGE, **LAYER_NORM)),
    "wavlm": lambda: transformers.WavLMForCTC(transformers.WavLMConfig(**DEPTH)),
    "w2v-bert": lambda: transformers.Wav2Vec2BertForCTC(transformers.Wav2Vec2BertConfig(**LARGE, vocab_size=32)),
    "whisper": lambda: transformers.WhisperForConditionalGeneration(transformers.WhisperConfig()),
}  # fmt: skip
CASES = [(name, "T4", "fp16", False) for name in MODELS] + [
    (name, "A100", "bf16", True) for name in ("xls-r", "whisper")
]


@pytest.mark.slow
def test_a_module_of_the_users_own_has_times() -> None:
    clips = [[0.0] * (16000 * (2 + i % 12)) for i in range(96)]
    hours = {}
    for gpu in ("T4", "A100"):
        config, _ = ac.create_optimal_config(
            clips, Conformer(width=64, layers=1), gpu=gpu, batch_fn=features, loader_rate=1e6, verbose=False
        )
        assert config.times is not None
        assert config.times.parts.compute.likely > 0
        hours[gpu] = config.times.epoch_hours.likely
    assert hours["A100"] < hours["T4"]


class Odd(Conformer):
    """With an operation that no rule knows."""

    def forward(self, input_features: Any, labels: Any) -> dict[str, Any]:
        outputs = super().forward(input_features, labels)
        return {"loss": outputs["loss"] + torch.special.bessel_j0(self.head.weight).sum() * 0}


def test_an_operation_without_a_rule_is_named() -> None:
    points = [(2, 32000, 5), (3, 48000, 7), (4, 64000, 6)]
    with MemoryModel.trace(Odd(), features, precision="fp32", gpu="T4", points=points, progress=False) as memory:
        assert memory.work(4, 5.0)["unknown"] == [f"aten.special_bessel_j{i}.default" for i in (0, 1)]
