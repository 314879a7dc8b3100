"""The models of the trainings, with random weights, and batches that a collator of theirs would make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import own_models
import torch
import transformers as t

RATE = 16_000
FRAMES = 100  # of features, a second
# A prediction is for the step that drops no layer, and how many frames SpecAugment masks is drawn where lengths differ.
_ENCODER = {"layerdrop": 0.0, "mask_time_prob": 0.0, "apply_spec_augment": False}


@dataclass(frozen=True)
class Model:
    """``kind`` of its family, and of its input: "wave", "plain wave" (no mask), "mel" or "mel, whole"."""

    kind: str
    input: str
    build: Callable[[], Any]
    labels_per_second: float = 15.0
    width: int = 80
    padded: bool = True


def _ctc(architecture: str, **settings: Any) -> Callable[[], Any]:
    def build() -> Any:
        kind = getattr(t, _config_of(architecture))
        known = {name: value for name, value in _ENCODER.items() if hasattr(kind(), name)}
        return getattr(t, architecture)(kind(**known | settings))

    return build


def _config_of(architecture: str) -> str:
    return architecture.removesuffix("ForCTC").removesuffix("ForConditionalGeneration") + "Config"


def _whisper(width: int, layers: int, heads: int) -> Callable[[], Any]:
    return lambda: t.WhisperForConditionalGeneration(
        t.WhisperConfig(
            vocab_size=51865,
            d_model=width,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=4 * width,
            decoder_ffn_dim=4 * width,
        )
    )


def _large(**settings: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    layout = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
    return sizes | layout | settings


def _speech_encoder_decoder() -> Any:
    encoder = t.Wav2Vec2Config(**_ENCODER, num_hidden_layers=6)
    decoder = t.BartConfig(
        decoder_layers=3, d_model=768, decoder_attention_heads=12, decoder_ffn_dim=3072, vocab_size=1000
    )
    config = t.SpeechEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = t.SpeechEncoderDecoderModel(config)
    model.config.decoder_start_token_id, model.config.pad_token_id = 2, 1
    return model


def _with_lora(build: Callable[[], Any], *targets: str) -> Callable[[], Any]:
    def adapted() -> Any:
        import peft

        return peft.get_peft_model(build(), peft.LoraConfig(r=8, lora_alpha=16, target_modules=list(targets)))

    return adapted


def _in_few_bits(bits: int, build: Callable[[], Any]) -> Callable[[], Any]:
    """LoRA beside weights that bitsandbytes has; without outliers, which are known by values alone."""

    def quantized() -> Any:
        from asrconfig_go.plan import add_lora

        model = build()
        for module in list(model.modules()):
            for name, layer in module.named_children():
                if type(layer) is torch.nn.Linear and name not in ("lm_head", "projection", "proj_out"):
                    setattr(module, name, _layer_in_few_bits(bits, layer))
        model.is_quantized, model.hf_quantizer = True, SimpleNamespace(is_trainable=True)  # as from_pretrained does
        setattr(model, f"is_loaded_in_{bits}bit", True)
        return add_lora(model, 8)

    return quantized


def _layer_in_few_bits(bits: int, layer: torch.nn.Linear) -> Any:
    import bitsandbytes as bnb

    sizes, bias = (layer.in_features, layer.out_features), layer.bias is not None
    if bits == 8:
        made = bnb.nn.Linear8bitLt(*sizes, bias, has_fp16_weights=False)
    else:
        made = bnb.nn.Linear4bit(*sizes, bias, compute_dtype=torch.float16, quant_type="nf4")
    made.weight = made.requires_grad_(False).weight.to("cuda" if torch.cuda.is_available() else "cpu")
    made.quant_state = getattr(made.weight, "quant_state", None)
    return made


def _parakeet() -> Any:
    encoder = {
        "hidden_size": 512,
        "num_hidden_layers": 8,
        "intermediate_size": 2048,
        "num_attention_heads": 8,
        "layerdrop": 0.0,
    }
    return t.ParakeetForCTC(t.ParakeetCTCConfig(vocab_size=1025, pad_token_id=1024, encoder_config=encoder))


def _own(name: str, kind: str) -> Model:
    return Model(kind, "plain mel", own_models.BUILDERS[name])


def _w2v_bert() -> Any:
    return t.Wav2Vec2BertForCTC(t.Wav2Vec2BertConfig(vocab_size=40, num_hidden_layers=8, **_ENCODER))


_WAV2VEC2 = _ctc("Wav2Vec2ForCTC")
_XLSR = _ctc("Wav2Vec2ForCTC", **_large(vocab_size=40))
MODELS: dict[str, Model] = {
    "wav2vec2-base": Model("transformer", "plain wave", _WAV2VEC2),
    "hubert-base": Model("transformer", "plain wave", _ctc("HubertForCTC")),
    "hubert-large, 12 layers": Model("transformer", "wave", _ctc("HubertForCTC", **_large(num_hidden_layers=12))),
    "wavlm-base": Model("transformer", "plain wave", _ctc("WavLMForCTC")),
    "xls-r-300m": Model("transformer", "wave", _XLSR),
    "data2vec-base": Model("transformer", "wave", _ctc("Data2VecAudioForCTC")),
    "sew": Model("transformer", "plain wave", _ctc("SEWForCTC")),
    "sew-d": Model("transformer", "plain wave", _ctc("SEWDForCTC", num_hidden_layers=6)),
    "w2v-bert": Model("transformer", "mel", _w2v_bert, width=160),
    "moonshine": Model(
        "transformer", "wave", lambda: t.MoonshineForConditionalGeneration(t.MoonshineConfig(pad_token_id=2)), 4.0
    ),
    "speech2text": Model("transformer", "mel", _ctc("Speech2TextForConditionalGeneration"), 4.0),
    "parakeet": Model("transformer", "mel", _parakeet),
    "whisper-tiny": Model("transformer", "mel, whole", _whisper(384, 4, 6), 4.0),
    "whisper-base": Model("transformer", "mel, whole", _whisper(512, 6, 8), 4.0),
    "whisper-small": Model("transformer", "mel, whole", _whisper(768, 12, 12), 4.0),
    "encoder-decoder": Model("transformer", "plain wave", _speech_encoder_decoder, 4.0),
    "xls-r-300m, LoRA": Model("transformer", "wave", _with_lora(_XLSR, "q_proj", "v_proj")),
    "whisper-small, LoRA": Model(
        "transformer", "mel, whole", _with_lora(_whisper(768, 12, 12), "q_proj", "v_proj"), 4.0
    ),
    "bilstm-ctc": _own("bilstm-ctc", "recurrent"),
    "bilstm-ctc-1024": _own("bilstm-ctc-1024", "recurrent"),
    "gru-ctc": _own("gru-ctc", "recurrent"),
    "transducer": _own("transducer", "recurrent"),
    "quartznet": _own("quartznet", "convolutional"),
    "jasper": _own("jasper", "convolutional"),
    "xls-r-300m, LoRA, 8 bits": Model("transformer", "wave", _in_few_bits(8, _XLSR)),
    "xls-r-300m, LoRA, 4 bits": Model("transformer", "wave", _in_few_bits(4, _XLSR)),
    "whisper-small, LoRA, 8 bits": Model("transformer", "mel, whole", _in_few_bits(8, _whisper(768, 12, 12)), 4.0),
    "whisper-small, LoRA, 4 bits": Model("transformer", "mel, whole", _in_few_bits(4, _whisper(768, 12, 12)), 4.0),
}


def units(model: Model) -> float:
    """How many units of the model's input a second has."""
    return RATE if "wave" in model.input else 50 if model.width == 160 else FRAMES


def batch(model: Model, count: int, length: int, labels: int) -> dict[str, torch.Tensor]:
    """``count`` clips of ``length`` units; all but the first a sixteenth shorter where the model takes a mask."""
    made: dict[str, torch.Tensor] = {"labels": torch.randint(3, 30, (count, labels))}
    if "wave" in model.input:
        made["input_values"] = torch.randn(count, length)
    elif model.input == "mel, whole":
        made["input_features"] = torch.randn(count, 80, 3000)
        return made
    else:
        made["input_features"] = torch.randn(count, length, model.width)
    if not model.input.startswith("plain"):
        made["attention_mask"] = torch.ones(count, length, dtype=torch.int32)
        made["attention_mask"][1:, length - length // 16 :] = 0
    return made
