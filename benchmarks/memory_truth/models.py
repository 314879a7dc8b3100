"""The models of the measured runs with random weights, their configs written out by hand: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torchvision
import transformers
from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3


def _gpt_neo() -> Any:
    config = transformers.GPTNeoConfig(
        hidden_size=768,
        num_layers=12,
        num_heads=12,
        attention_types=[[["global", "local"], 6]],
        max_position_embeddings=2048,
        vocab_size=50257,
        window_size=256,
        activation_function="gelu_new",
        resid_dropout=0,
        embed_dropout=0,
        attention_dropout=0,
    )
    return transformers.GPTNeoForCausalLM(config)


def _gpt2(layers: int, positions: int, **settings: Any) -> Any:
    config = transformers.GPT2Config(
        n_embd=768, n_layer=layers, n_head=12, n_positions=positions, vocab_size=50257, **settings
    )
    return transformers.GPT2LMHeadModel(config)


def _cerebras() -> Any:
    return _gpt2(10, 2048, n_inner=3072, activation_function="gelu", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def _t5_small() -> Any:
    config = transformers.T5Config(
        d_model=512,
        d_kv=64,
        d_ff=2048,
        num_layers=6,
        num_decoder_layers=6,
        num_heads=8,
        vocab_size=32128,
        relative_attention_num_buckets=32,
        dropout_rate=0.1,
        feed_forward_proj="relu",
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    return transformers.T5ForConditionalGeneration(config)


def _qwen_1_5b() -> Any:
    config = transformers.Qwen2Config(
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        max_position_embeddings=131072,
        vocab_size=151936,
        rms_norm_eps=1e-6,
        rope_theta=10000,
        tie_word_embeddings=False,
    )
    return transformers.Qwen2ForCausalLM(config)


# Per block: input channels, kernel, expanded channels, output channels, squeeze and excite, activation, stride.
_V3_SMALL: list[tuple[int, int, int, int, bool, str, int]] = [
    (16, 3, 16, 16, True, "RE", 2),
    (16, 3, 72, 24, False, "RE", 2),
    (24, 3, 88, 24, False, "RE", 1),
    (24, 5, 96, 40, True, "HS", 2),
    (40, 5, 240, 40, True, "HS", 1),
    (40, 5, 240, 40, True, "HS", 1),
    (40, 5, 120, 48, True, "HS", 1),
    (48, 5, 144, 48, True, "HS", 1),
    (48, 5, 288, 96, True, "HS", 2),
    (96, 5, 576, 96, True, "HS", 1),
    (96, 5, 576, 96, True, "HS", 1),
]


def _v3_small() -> Any:
    return MobileNetV3([InvertedResidualConfig(*row, 1, 1.0) for row in _V3_SMALL], last_channel=1024, num_classes=10)


TEXT: dict[str, Callable[[], Any]] = {
    "EleutherAI/gpt-neo-125M": _gpt_neo,
    "cerebras/Cerebras-GPT-111M": _cerebras,
    "distilbert/distilgpt2": lambda: _gpt2(6, 1024),
    "T5-small": _t5_small,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": _qwen_1_5b,
}
IMAGES: dict[str, Callable[[], Any]] = {
    "ConvNeXtTiny": torchvision.models.convnext_tiny,
    "MnasNet": lambda: torchvision.models.MNASNet(alpha=1.0, num_classes=10),
    "MobileNetV2": torchvision.models.mobilenet_v2,
    "MobeNetV3Small": _v3_small,  # spelled as in the measurements
    "RegNetX400MF": torchvision.models.regnet_x_400mf,
    "ResNet101": torchvision.models.resnet101,
    "ResNet152": torchvision.models.resnet152,
    "VGG16": torchvision.models.vgg16,
    "VGG19": torchvision.models.vgg19,
}
