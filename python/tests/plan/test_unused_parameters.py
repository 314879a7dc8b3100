"""Which models leave parameters without a gradient, by what a training step does, and that DDP then trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asrconfig_go._core.modules import leaves_parameters_unused
from training_fixtures import make_plan

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import (
    HubertConfig,
    HubertForCTC,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
    Wav2Vec2Model,
    WavLMConfig,
    WavLMForCTC,
)

from speech_models import CTC_SIZES, Clips, w2v_bert, whisper
from tiny_training import Regression

MASKED: dict[str, Any] = {"apply_spec_augment": True, "mask_time_prob": 0.5, "mask_time_length": 2}
SIZES = {**CTC_SIZES, **MASKED, "num_hidden_layers": 2}


def wav2vec2(**changes: Any) -> Any:
    return Wav2Vec2ForCTC(Wav2Vec2Config(**{**SIZES, **changes}))


def frozen_mask(**changes: Any) -> Any:
    model = wav2vec2(**changes)
    model.wav2vec2.masked_spec_embed.requires_grad = False
    return model


def bert() -> Any:
    model = w2v_bert()
    model.config.update(MASKED)
    return model


CASES: dict[str, tuple[Any, str, bool]] = {
    "wav2vec2": (wav2vec2, "ctc mean", False),
    "stable layer norm": (lambda: wav2vec2(do_stable_layer_norm=True), "ctc mean", False),
    "adapter": (lambda: wav2vec2(add_adapter=True, adapter_kernel_size=2, adapter_stride=1), "ctc mean", False),
    "layers are dropped": (lambda: wav2vec2(layerdrop=0.999), "ctc mean", True),
    "no masks": (lambda: wav2vec2(apply_spec_augment=False), "ctc mean", True),
    "masks over features alone": (lambda: wav2vec2(mask_time_prob=0.0, mask_feature_prob=0.5), "ctc mean", True),
    "no mask at all": (lambda: wav2vec2(mask_time_prob=0.0), "ctc mean", False),
    "frozen mask": (lambda: frozen_mask(apply_spec_augment=False), "ctc mean", False),
    "hubert": (lambda: HubertForCTC(HubertConfig(**SIZES)), "ctc mean", False),
    "wavlm": (lambda: WavLMForCTC(WavLMConfig(**SIZES)), "ctc mean", False),
    "w2v-bert": (bert, "w2v-bert", False),
    "w2v-bert without masks": (w2v_bert, "w2v-bert", True),
    "whisper": (whisper, "whisper", False),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_step_leaves_without_a_gradient(case: str) -> None:
    make, kind, expected = CASES[case]
    torch.manual_seed(0)
    model = make().train()
    items = [Clips(kind)[i] for i in range(4)]
    model(**{name: torch.stack([item[name] for item in items]) for name in items[0]}).loss.backward()
    unused = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert bool(unused) is expected, unused
    assert leaves_parameters_unused(model) is expected


class Own(Wav2Vec2ForCTC):  # type: ignore[misc]
    """A class of the user's, which may have anything in it."""


def test_what_is_not_known_is_looked_for(tmp_path: Path) -> None:
    for model in (Own(Wav2Vec2Config(**SIZES)), Wav2Vec2Model(Wav2Vec2Config(**SIZES)), Regression(), None):
        assert model is None or leaves_parameters_unused(model) is None
        arguments = make_plan(distributed="ddp").to_training_arguments(tmp_path, model=model)
        assert arguments.ddp_find_unused_parameters is True
    assert leaves_parameters_unused(Own(Wav2Vec2Config(**{**SIZES, "layerdrop": 0.1}))) is True


def test_an_override_and_other_plans(tmp_path: Path) -> None:
    def found(plan: Any, **overrides: Any) -> Any:
        return plan.to_training_arguments(tmp_path, model=wav2vec2(), **overrides).ddp_find_unused_parameters

    assert found(make_plan(distributed="ddp")) is False
    assert found(make_plan(distributed="ddp"), ddp_find_unused_parameters=True) is True
    assert found(make_plan(distributed="fsdp")) is None
    assert found(make_plan()) is None
