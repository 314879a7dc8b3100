"""Reentrant checkpoints with which a model cannot be trained: refused, where the real training fails as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import trace_fixtures as models
from asrconfig_go.trace import MemoryRecorder, TraceError, trace_training
from asrconfig_go.trace._autograd import endless_ones_refused

SHARED = "Trying to backward through the graph a second time"
FROZEN = "element 0 of tensors does not require grad"


def sew_d() -> Any:
    from transformers import SEWDConfig, SEWDForCTC

    return SEWDForCTC(SEWDConfig(**models.WAVEFORM, conv_stride=(5, 2, 2, 2, 2, 2, 2), conv_kernel=(10, *[3] * 6)))


def whisper_with_adapters() -> Any:
    """As LoRA trains it: some weights of each layer, behind ones that do not change."""
    model = models.whisper()
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "q_proj" in name
    return model


def real_step(make: Callable[[], Any], reentrant: bool) -> None:
    """Forward and backward on the CPU; one that would never end is an error."""
    torch.manual_seed(0)
    model = make().train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.config.use_cache = False
    batch: dict[str, Any] = {"input_values": torch.randn(2, 8_000)}
    if hasattr(model.config, "num_mel_bins"):
        batch = {"input_features": torch.randn(2, 80, 200)}
    with endless_ones_refused():
        model(**batch, labels=torch.randint(3, 30, (2, 5))).loss.backward()


@pytest.mark.parametrize(
    ("make", "traced", "real"),
    [
        (models.wavlm, "never ends: that of WavLMEncoderLayer starts itself again", "never ends"),
        (sew_d, rf"fails \({SHARED}\): layers share a tensor", SHARED),
        (whisper_with_adapters, rf"fails \({FROZEN}.*\): no input of a checkpointed layer", FROZEN),
    ],
)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
def test_trainings_that_fail_are_refused(make: Callable[[], Any], traced: str, real: str) -> None:
    with pytest.raises((RuntimeError, TraceError), match=real):
        real_step(make, reentrant=True)
    with pytest.raises(TraceError, match=traced) as refused:
        trace_training(make(), gradient_checkpointing="reentrant")
    assert 'gradient_checkpointing="non_reentrant"' in refused.value.hint


@pytest.mark.parametrize("make", [models.wavlm, sew_d, whisper_with_adapters])
def test_the_other_kind_trains_and_is_traced(make: Callable[[], Any]) -> None:
    real_step(make, reentrant=False)
    points = [(2, 200 if make is whisper_with_adapters else 8_000, 5)]
    made = trace_training(make(), points=points, gradient_checkpointing="non_reentrant", evaluation=False)
    assert made.about["checkpointing"] == "non_reentrant"


def test_a_loop_of_ones_own_ends() -> None:
    with MemoryRecorder(), pytest.raises(TraceError, match="never ends"):
        real_step(models.wavlm, reentrant=True)


def test_a_single_layer_of_wavlm_trains_and_is_traced() -> None:
    """There is no next layer that is given the position bias."""

    def make() -> Any:
        model = models.wavlm()
        del model.wavlm.encoder.layers[1:]
        return model

    real_step(make, reentrant=True)
    points = [(2, 8_000, 5)]
    made = trace_training(make(), points=points, gradient_checkpointing="reentrant", evaluation=False)
    assert made.about["checkpointing"] == "reentrant"
