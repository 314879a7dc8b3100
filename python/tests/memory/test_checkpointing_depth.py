"""Checkpointing of each n-th layer: by the config, by the trace, and as the Trainer asks for it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from asrconfig_go._base.errors import InvalidArgumentError, UnsupportedError  # noqa: E402
from asrconfig_go.guard.trial_batch import training_settings  # noqa: E402
from asrconfig_go.memory import MemoryModel, estimate_memory  # noqa: E402

enable = getattr(transformers.PreTrainedModel, "activation_checkpointing_enable", None)
has_depth = enable is not None and "every_n_layers" in inspect.signature(enable).parameters
needs_depth = pytest.mark.skipif(not has_depth, reason="this transformers checkpoints all layers or none")

SIZES = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512, "layerdrop": 0.0}


def w2v_bert() -> Any:
    return transformers.Wav2Vec2BertForCTC(transformers.Wav2Vec2BertConfig(**SIZES, num_hidden_layers=9, vocab_size=32))


def whisper() -> Any:
    return transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(encoder_layers=5, decoder_layers=4))


@needs_depth
@pytest.mark.parametrize("make", [w2v_bert, whisper])
def test_config_and_trace_agree_at_every_depth(make: Any) -> None:
    model, held = make(), 0
    for n in (1, 2, 4):
        found = [
            estimate_memory(
                model, batch=4, seconds=12, precision="fp16", gradient_checkpointing=True, every_n_layers=n, gpu="T4",
                estimator=estimator, progress=False, cache=False,
            )
            for estimator in ("analytic", "trace")
        ]  # fmt: skip
        played, traced = (estimate.peak_allocated for estimate in found)
        assert played == pytest.approx(traced, rel=0.04)
        assert traced > held, "the fewer layers are computed again, the more is held"
        held = traced


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
    assert training_settings(arguments, model)["every_n_layers"] == 9
    model.activation_checkpointing_enable()
    assert training_settings(arguments, model)["every_n_layers"] == 1


def test_depths_that_are_none_are_refused() -> None:
    for n in (0, -1, 70000):
        with pytest.raises(InvalidArgumentError, match="every_n_layers"):
            estimate_memory("wav2vec2-base", batch=1, seconds=5, gradient_checkpointing=True, every_n_layers=n)
    with pytest.raises(InvalidArgumentError, match="without checkpointing"):
        estimate_memory("wav2vec2-base", batch=1, seconds=5, every_n_layers=2)


@pytest.mark.skipif(has_depth, reason="this transformers has it")
def test_older_versions_say_so() -> None:
    with pytest.raises(UnsupportedError, match="all layers or none"):
        MemoryModel.trace(w2v_bert(), gradient_checkpointing=True, every_n_layers=2, progress=False)
