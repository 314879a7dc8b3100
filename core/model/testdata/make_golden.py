"""Write golden.json: what torch counts in the modules that transformers builds on the meta device.

    python core/model/testdata/make_golden.py        (recorded with transformers 5.23, torch 2.15)

One line per case: the request, and the class, total and trainable parameters, Adafactor bytes, hidden size, layers and
a digest over every parameter's name, shape and requires_grad. python/tests/machine/test_model_counts.py
uses the same functions with other random sizes.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

Case = dict[str, Any]
HERE = Path(__file__).parent

COMMON = ("ForCTC", "ForSequenceClassification", "Model")
SPEAKER = ("ForAudioFrameClassification", "ForXVector")
CLASSES = {
    "wav2vec2": ("Wav2Vec2", *COMMON, *SPEAKER, "ForPreTraining"),
    "wav2vec2-conformer": ("Wav2Vec2Conformer", *COMMON, *SPEAKER, "ForPreTraining"),
    "wav2vec2-bert": ("Wav2Vec2Bert", *COMMON, *SPEAKER),
    "hubert": ("Hubert", *COMMON),
    "wavlm": ("WavLM", *COMMON, *SPEAKER),
    "data2vec-audio": ("Data2VecAudio", *COMMON, *SPEAKER),
    "unispeech": ("UniSpeech", *COMMON, "ForPreTraining"),
    "unispeech-sat": ("UniSpeechSat", *COMMON, *SPEAKER, "ForPreTraining"),
    "whisper": ("Whisper", "ForConditionalGeneration", "ForAudioClassification", "Model"),
    "speech_to_text": ("Speech2Text", "ForConditionalGeneration", "Model"),
    "parakeet_ctc": ("Parakeet", "ForCTC"),
}
NO_FRONT_END = ("whisper", "speech_to_text", "parakeet_ctc", "wav2vec2-bert")


def build(case: Case) -> Any:
    """Build the module of a case on the meta device: shapes without storage."""
    import torch
    import transformers

    values = dict(case["config"])
    kind = values.pop("model_type")
    stem, default = CLASSES[kind][:2]
    module_class = getattr(transformers, stem + (case.get("head") or default))
    with torch.device("meta"):
        module = module_class(transformers.AutoConfig.for_model(kind, **values))
    if case.get("freeze_feature_encoder"):
        module.freeze_feature_encoder()
    return module


def adafactor_bytes(shape: tuple[int, ...]) -> int:
    """Second moment in float32: a mean per row and per column; a vector is kept whole."""
    return 4 * (prod(shape[:-1]) + prod(shape[:-2]) * shape[-1] if len(shape) > 1 else prod(shape))


def measure(module: Any) -> Case:
    """Count a module; a parameter that two places share counts once."""
    named = [(name, tuple(p.shape), p.requires_grad) for name, p in module.named_parameters()]
    lines = sorted(f"{name} {list(shape)} {str(grad).lower()}" for name, shape, grad in named)
    config = module.config
    core = getattr(config, "encoder_config", config)
    layers = config.encoder_layers if hasattr(config, "encoder_layers") else core.num_hidden_layers
    if hasattr(config, "decoder_layers") and not type(module).__name__.endswith("ForAudioClassification"):
        layers += config.decoder_layers
    return {
        "class_name": type(module).__name__,
        "total": sum(prod(shape) for _, shape, _ in named),
        "trainable": sum(prod(shape) for _, shape, grad in named if grad),
        "adafactor_bytes": sum(adafactor_bytes(shape) for _, shape, grad in named if grad),
        "hidden_size": core.hidden_size,
        "layers": layers,
        "digest": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
    }


def default_cases() -> Iterator[Case]:
    """Every class of every family at its class defaults, for the values that a config leaves out."""
    for kind, (_, *heads) in CLASSES.items():
        needed = {"vocab_size": 32} if kind in ("wav2vec2-bert", "wav2vec2-conformer") else {}
        for head in heads:
            yield {"config": {"model_type": kind, **needed}, "head": head}
        if kind not in NO_FRONT_END:
            yield {"config": {"model_type": kind, **needed}, "freeze_feature_encoder": True}


def catalogue_cases() -> Iterator[Case]:
    for entry in json.loads((HERE.parent / "catalogue.json").read_text()):
        if entry["config"]["model_type"] in CLASSES:
            yield {"name": entry["id"], "config": entry["config"]}


def random_cases(seed: int, per_family: int) -> Iterator[Case]:
    """Small configs with odd sizes, adapters, norms, heads and frozen front ends."""
    rng = random.Random(seed)
    for kind, (_, *heads) in CLASSES.items():
        for _ in range(per_family):
            sizes = SIZES.get(kind, encoder)(rng, kind)
            case: Case = {"config": {"model_type": kind, **sizes}, "head": rng.choice(heads)}
            if case["head"] not in ("ForCTC", "ForPreTraining", "Model"):
                config = case["config"]
                config.pop("add_adapter", None)
                config.pop("use_intermediate_ffn_before_adapter", None)
                config.update(use_weighted_layer_sum=rng.random() < 0.5, classifier_proj_size=rng.randint(1, 20))
                config["id2label"] = {str(i): f"L{i}" for i in range(rng.randint(2, 9))}
            if case["head"] == "ForCTC" and kind not in NO_FRONT_END:
                case["freeze_feature_encoder"] = rng.random() < 0.5
            yield case


def encoder(rng: random.Random, kind: str) -> Case:
    heads, groups, convolutions = rng.choice([1, 2, 3]), rng.choice([1, 2, 4]), rng.randint(1, 4)
    out: Case = {
        "hidden_size": 2 * heads * groups * rng.randint(1, 5),
        "num_hidden_layers": rng.randint(0, 4),
        "num_attention_heads": heads,
        "intermediate_size": rng.randint(1, 40),
        "vocab_size": rng.randint(3, 200),
        "mask_time_prob": rng.choice([0.0, 0.05]),
        "mask_feature_prob": rng.choice([0.0, 0.1]),
        "add_adapter": rng.random() < 0.5 and kind not in ("hubert", "unispeech", "unispeech-sat"),
        "output_hidden_size": None,
        "num_adapter_layers": rng.randint(1, 3),
        "adapter_kernel_size": rng.randint(2, 5),
        "xvector_output_dim": rng.randint(2, 9),
        "tdnn_dim": [6, 4, 5],
        "tdnn_kernel": [3, 2, 1],
        "tdnn_dilation": [1, 2, 1],
        "num_codevectors_per_group": rng.randint(2, 9),
        "codevector_dim": 2 * rng.randint(1, 6),
        "proj_codevector_dim": rng.randint(1, 9),
    }
    if out["add_adapter"] and rng.random() < 0.6:
        out["output_hidden_size"] = 2 * heads * rng.randint(1, 9)
    if "conformer" in kind or "bert" in kind:
        out["position_embeddings_type"] = rng.choice(["relative", "rotary"] + ["relative_key"] * ("bert" in kind))
        out["conv_depthwise_kernel_size"] = rng.choice([1, 3, 31])
    if kind == "wav2vec2-bert":
        out |= {"left_max_position_embeddings": rng.randint(0, 9), "right_max_position_embeddings": rng.randint(0, 9)}
        out["feature_projection_input_dim"] = rng.randint(1, 40)
        out["use_intermediate_ffn_before_adapter"] = out["add_adapter"]
        return out
    out |= {
        "conv_dim": [rng.randint(1, 12) for _ in range(convolutions)],
        "conv_kernel": [rng.randint(1, 10) for _ in range(convolutions)],
        "conv_stride": [2] * convolutions,
        "conv_bias": rng.random() < 0.5,
        "feat_extract_norm": rng.choice(["group", "layer"]),
        "do_stable_layer_norm": rng.random() < 0.5,
        "num_conv_pos_embeddings": rng.randint(1, 20),
        "num_conv_pos_embedding_groups": groups,
    }
    if kind == "hubert":
        out |= {"feat_proj_layer_norm": rng.random() < 0.5, "conv_pos_batch_norm": rng.random() < 0.5}
    if kind == "wavlm":
        out["num_buckets"] = rng.randint(4, 50)
    if kind == "data2vec-audio":
        out["conv_pos_kernel_size"] = rng.randint(1, 9)
    if rng.random() < 0.5 and kind in ("wav2vec2", "hubert", "unispeech", "unispeech-sat"):
        out["adapter_attn_dim"] = rng.randint(1, 9)
    return out


def seq2seq(rng: random.Random, kind: str) -> Case:
    heads = rng.choice([1, 2, 3])
    out: Case = {
        "d_model": 4 * heads * rng.randint(1, 9),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_layers": rng.randint(0, 4),
        "decoder_layers": rng.randint(0, 4),
        "encoder_ffn_dim": rng.randint(1, 40),
        "decoder_ffn_dim": rng.randint(1, 40),
        "vocab_size": rng.randint(60, 200),
        "pad_token_id": 1,
        "tie_word_embeddings": rng.random() < 0.7,
        "max_source_positions": rng.randint(2, 99),
        "max_target_positions": rng.randint(2, 99),
    }
    if kind == "whisper":
        return out | {"num_mel_bins": rng.choice([80, 128])}
    kernels = [rng.choice([3, 5]) for _ in range(rng.randint(1, 3))]
    channels = 2 * rng.randint(1, 20)
    return out | {"num_conv_layers": len(kernels), "conv_kernel_sizes": kernels, "conv_channels": channels}


def parakeet(rng: random.Random, _kind: str) -> Case:
    heads = rng.choice([1, 2, 4])
    inner = {
        "hidden_size": 2 * heads * rng.randint(1, 9),
        "num_attention_heads": heads,
        "num_hidden_layers": rng.randint(0, 3),
        "intermediate_size": rng.randint(1, 40),
        "attention_bias": rng.random() < 0.5,
        "convolution_bias": rng.random() < 0.5,
        "conv_kernel_size": rng.choice([1, 9]),
        "subsampling_factor": rng.choice([2, 4, 8]),
        "subsampling_conv_channels": rng.randint(1, 9),
        "num_mel_bins": rng.choice([80, 128]),
    }
    return {"vocab_size": rng.randint(3, 200), "encoder_config": inner}


SIZES = {"whisper": seq2seq, "speech_to_text": seq2seq, "parakeet_ctc": parakeet}


def main() -> None:
    cases = [*default_cases(), *catalogue_cases(), *random_cases(seed=1, per_family=8)]
    lines = [json.dumps(case | {"want": measure(build(case))}) for case in cases]
    (HERE / "golden.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} cases")


if __name__ == "__main__":
    main()
