"""Checkpointing of each n-th layer, and offloaded: by the config, by the trace, and as the Trainer asks for it."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from asrconfig_go.errors import InvalidArgumentError, UnsupportedError
from asrconfig_go.predict import MemoryModel, estimate_memory
from asrconfig_go.predict.trainer_settings import training_settings

enable = getattr(transformers.PreTrainedModel, "activation_checkpointing_enable", None)
has_depth = enable is not None and "every_n_layers" in inspect.signature(enable).parameters
needs_depth = pytest.mark.skipif(not has_depth, reason="this transformers checkpoints all layers or none")

LAYERS = 4


def w2v_bert() -> Any:
    config = transformers.Wav2Vec2BertConfig(
        hidden_size=64, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=128, layerdrop=0.0,
        vocab_size=32,
    )  # fmt: skip
    return transformers.Wav2Vec2BertForCTC(config)


def whisper() -> Any:
    width = {"d_model": 96, "encoder_ffn_dim": 192, "decoder_ffn_dim": 192}  # of WhisperConfig's 6 heads
    config = transformers.WhisperConfig(**width, encoder_layers=LAYERS, decoder_layers=2)
    return transformers.WhisperForConditionalGeneration(config)


@pytest.mark.slow
@needs_depth
@pytest.mark.parametrize("make", [w2v_bert, whisper])
def test_offloaded_checkpoints_lie_on_the_host_at_every_depth(make: Any) -> None:
    model, pinned = make(), math.inf
    for n in (1, 3):
        on_gpu, on_host = (_estimate(model, n, offload) for offload in (False, True))
        assert on_gpu.pinned_bytes == 0
        assert ("pinned" in str(on_gpu), "pinned" in str(on_host)) == (False, True)
        assert 0 < on_host.pinned_bytes < pinned, "the fewer layers are computed again, the less is offloaded"
        assert on_host.peak_allocated < on_gpu.peak_allocated
        pinned = on_host.pinned_bytes


def _estimate(model: Any, n: int, offload: bool) -> Any:
    return estimate_memory(
        model, batch=4, seconds=12, precision="fp16", gradient_checkpointing=True, every_n_layers=n,
        offload_checkpoints=offload, gpu="T4", estimator="trace", progress=False, cache=False,
    )  # fmt: skip


@needs_depth
def test_the_guard_predicts_the_depth_that_runs(tmp_path: Any) -> None:
    model = w2v_bert()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), activation_checkpointing=True, activation_checkpointing_kwargs={"every_n_layers": 3},
        use_cpu=True, report_to=[],
    )  # fmt: skip
    assert training_settings(arguments, model)["every_n_layers"] == 3
    model.activation_checkpointing_enable(every_n_layers=2)
    assert training_settings(arguments, model)["every_n_layers"] == 2, "what the model is prepared for runs"
    model.activation_checkpointing_enable(every_n_layers=99)
    assert training_settings(arguments, model)["every_n_layers"] == LAYERS
    model.activation_checkpointing_enable()
    assert training_settings(arguments, model)["every_n_layers"] == 1


@needs_depth
def test_the_guard_predicts_where_checkpoints_lie(tmp_path: Any) -> None:
    model = w2v_bert()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), activation_checkpointing=True, activation_checkpointing_kwargs={"offload": True},
        use_cpu=True, report_to=[],
    )  # fmt: skip
    assert training_settings(arguments, model)["offload_checkpoints"] is True
    model.activation_checkpointing_enable()
    assert training_settings(arguments, model)["offload_checkpoints"] is False, "what the model is prepared for runs"
    model.activation_checkpointing_enable(every_n_layers=2, offload=True)
    arguments.activation_checkpointing_kwargs = None
    settings = training_settings(arguments, model)
    assert (settings["every_n_layers"], settings["offload_checkpoints"], settings["devices"]) == (2, True, 1)


def test_depths_that_are_none_are_refused() -> None:
    for n in (0, -1, 70000):
        with pytest.raises(InvalidArgumentError, match="every_n_layers"):
            estimate_memory("wav2vec2-base", batch=1, seconds=5, gradient_checkpointing=True, every_n_layers=n)
    with pytest.raises(InvalidArgumentError, match="without checkpointing"):
        estimate_memory("wav2vec2-base", batch=1, seconds=5, every_n_layers=2)
    with pytest.raises(InvalidArgumentError, match="offload_checkpoints without checkpointing"):
        estimate_memory("wav2vec2-base", batch=1, seconds=5, offload_checkpoints=True)


@pytest.mark.skipif(has_depth, reason="this transformers has it")
def test_older_versions_say_so() -> None:
    for options in ({"every_n_layers": 2}, {"offload_checkpoints": True}):
        with pytest.raises(UnsupportedError, match="the installed transformers has no"):
            MemoryModel.trace(w2v_bert(), gradient_checkpointing=True, progress=False, **options)
