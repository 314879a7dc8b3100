"""Models as planned: by what their layers do, in place, twice the same, and inside wrappers."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from asrconfig_go import prepare_model
from asrconfig_go._core.modules import can_offload_checkpoints, has_any_depth, offloads_checkpoints
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.plan import Applied
from training_fixtures import make_plan

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import HubertConfig, HubertForCTC, WavLMConfig, WavLMForCTC
from transformers.modeling_utils import PreTrainedModel

from asrconfig_go.plan.training_arguments import UnsupportedSettingWarning
from speech_models import CTC_SIZES, Clips, w2v_bert, wav2vec2, whisper
from tiny_training import Regression

can_change_attention = pytest.mark.skipif(
    not hasattr(PreTrainedModel, "set_attn_implementation"), reason="this transformers cannot change attention"
)
MODELS: dict[str, Callable[[], Any]] = {
    "wav2vec2": lambda: wav2vec2("mean"),
    "hubert": lambda: HubertForCTC(HubertConfig(**CTC_SIZES)),
    "wavlm": lambda: WavLMForCTC(WavLMConfig(**CTC_SIZES)),
    "w2v-bert": w2v_bert,
    "whisper": whisper,
}
KINDS = {
    "wav2vec2": "ctc mean",
    "hubert": "ctc mean",
    "wavlm": "ctc mean",
    "w2v-bert": "w2v-bert",
    "whisper": "whisper",
}


def peft(model: Any) -> Any:
    library = pytest.importorskip("peft")
    return library.get_peft_model(model, library.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))


def prepared(model: Any, **changes: Any) -> Applied:
    """What was done, where no warning is allowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnsupportedSettingWarning)
        return prepare_model(model, make_plan(**changes))


def states(applied: Applied) -> dict[str, str]:
    return {setting.name: setting.state for setting in applied.settings}


def loss(model: Any, kind: str) -> Any:
    items = [Clips(KINDS[kind])[i] for i in range(2)]
    batch = {name: torch.stack([item[name] for item in items]) for name in items[0]}
    return model(**batch).loss


def recomputed(model: Any, kind: str) -> int:
    """How often parts of the encoder's layers are computed again in backward."""
    counts = {"forward": 0, "backward": 0}
    phase = ["forward"]

    def count(*_: Any) -> None:
        counts[phase[0]] += 1

    parts = [m for name, m in model.named_modules() if ".layers." in name and isinstance(m, torch.nn.LayerNorm)]
    assert parts
    hooks = [part.register_forward_pre_hook(count) for part in parts]
    result = loss(model.train(), kind)
    phase[0] = "backward"
    result.backward()
    for hook in hooks:
        hook.remove()
    return counts["backward"]


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_checkpointing_computes_layers_again(kind: str) -> None:
    model = MODELS[kind]()
    assert recomputed(model, kind) == 0
    assert states(prepared(model, gradient_checkpointing=True))["gradient_checkpointing"] == "done"
    assert recomputed(model, kind) > 0
    again = prepared(model, gradient_checkpointing=True)
    assert set(states(again).values()) == {"kept"}
    assert recomputed(model, kind) > 0
    assert states(prepared(model, gradient_checkpointing=False)) == {"gradient_checkpointing": "done"}
    assert recomputed(model, kind) == 0
    assert prepared(model, gradient_checkpointing=False).settings == ()


@pytest.mark.skipif(not has_any_depth(), reason="this transformers checkpoints all layers or none")
def test_checkpointing_of_each_nth_layer() -> None:
    model = HubertForCTC(HubertConfig(**{**CTC_SIZES, "num_hidden_layers": 4, "layerdrop": 0.0}))
    prepared(model, gradient_checkpointing=True)
    every = recomputed(model, "wav2vec2")
    done = prepared(model, gradient_checkpointing=True, every_n_layers=2)
    assert (done["gradient_checkpointing"].value, done["gradient_checkpointing"].why) == (
        "one of 2 layers, not reentrant", "was on, not reentrant",
    )  # fmt: skip
    assert 0 < recomputed(model, "wav2vec2") < every
    assert set(states(prepared(model, gradient_checkpointing=True, every_n_layers=2)).values()) == {"kept"}
    assert states(prepared(model, gradient_checkpointing=True)) == {"gradient_checkpointing": "done"}
    assert recomputed(model, "wav2vec2") == every


@pytest.mark.skipif(not can_offload_checkpoints(), reason="this transformers keeps checkpoints on the GPU")
def test_checkpoints_are_offloaded_and_taken_back() -> None:
    model = MODELS["wav2vec2"]()
    done = prepared(model, gradient_checkpointing=True, offload_checkpoints=True)
    assert done["gradient_checkpointing"].value == "on, offloaded, not reentrant"
    assert offloads_checkpoints(model)
    again = prepared(model, gradient_checkpointing=True, offload_checkpoints=True)
    assert set(states(again).values()) == {"kept"}
    assert states(prepared(model, gradient_checkpointing=True)) == {"gradient_checkpointing": "done"}
    assert not offloads_checkpoints(model)


def test_a_depth_that_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["wav2vec2"]()

    def enable(gradient_checkpointing_kwargs: Any = None) -> None:
        model.wav2vec2.encoder.gradient_checkpointing = True

    for name in ("activation_checkpointing_enable", "gradient_checkpointing_enable"):
        monkeypatch.setattr(model, name, enable, raising=False)
    with pytest.warns(UnsupportedSettingWarning, match="every layer"):
        prepare_model(model, make_plan(gradient_checkpointing=True, every_n_layers=3))
    with pytest.warns(UnsupportedSettingWarning, match="keeps checkpoints on the GPU"):
        prepare_model(model, make_plan(gradient_checkpointing=True, offload_checkpoints=True))


def test_the_reentrant_kind_is_replaced() -> None:
    model = wav2vec2("mean")
    model.gradient_checkpointing_enable({"use_reentrant": True})
    done = prepared(model, gradient_checkpointing=True, freeze_feature_encoder=True)
    assert done["gradient_checkpointing"].why == "was reentrant"
    loss(model.train(), "wav2vec2").backward()  # the reentrant kind finds no input that requires gradients here
    assert all(p.grad is not None for p in model.wav2vec2.encoder.layers.parameters())


def test_no_cache_beside_checkpointing() -> None:
    model = whisper()
    assert model.config.use_cache
    assert states(prepared(model, gradient_checkpointing=True))["config.use_cache"] == "done"
    assert model.config.use_cache is False
    unchanged = whisper()
    prepared(unchanged)
    assert unchanged.config.use_cache is True


@can_change_attention
@pytest.mark.parametrize("kind", ["wav2vec2", "hubert", "w2v-bert", "whisper"])
@pytest.mark.parametrize("wanted", ["eager", "sdpa"])
def test_attention_is_computed_as_planned(kind: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[kind]()
    if not getattr(model, "_supports_sdpa", True):
        pytest.skip(f"this transformers has no sdpa attention for {kind}")
    model.set_attn_implementation("eager" if wanted == "sdpa" else "sdpa")
    calls: list[bool] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def count(*args: Any, **kwargs: Any) -> Any:
        calls.append(True)
        return real(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", count)
    assert states(prepared(model, attn_implementation=wanted)) == {"attn_implementation": "done"}
    loss(model, kind)
    assert bool(calls) is (wanted == "sdpa")
    assert states(prepared(model, attn_implementation=wanted)) == {"attn_implementation": "kept"}


@pytest.mark.parametrize(("kind", "wanted"), [("wavlm", "sdpa"), ("whisper", "flash_attention_2")])
def test_attention_that_the_class_or_the_machine_lacks_is_refused(kind: str, wanted: str) -> None:
    model = MODELS[kind]()
    before = model.config._attn_implementation
    with pytest.warns(UnsupportedSettingWarning, match="attn_implementation") as caught:
        done = prepare_model(model, make_plan(attn_implementation=wanted))
    assert caught[0].filename == __file__
    assert (done.not_done[0].name, done.not_done[0].value) == ("attn_implementation", before)
    assert {m.config._attn_implementation for m in model.modules() if hasattr(m, "config")} == {before}
    loss(model, kind)  # still works


def test_attention_that_is_chosen_when_layers_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(PreTrainedModel, "set_attn_implementation", raising=False)
    model = wav2vec2("mean")
    other = "eager" if model.config._attn_implementation == "sdpa" else "sdpa"
    with pytest.warns(UnsupportedSettingWarning, match="from_pretrained"):
        prepare_model(model, make_plan(attn_implementation=other))
    assert model.config._attn_implementation != other


@pytest.mark.parametrize("kind", ["wav2vec2", "hubert", "wavlm"])
def test_the_feature_encoder_is_frozen(kind: str) -> None:
    model = MODELS[kind]()
    assert states(prepared(model, freeze_feature_encoder=True)) == {"freeze_feature_encoder": "done"}
    loss(model.train(), kind).backward()
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad is ("feature_extractor." not in name), name
        assert "feature_extractor." not in name or parameter.grad is None
    assert states(prepared(model, freeze_feature_encoder=True)) == {"freeze_feature_encoder": "kept"}


@pytest.mark.parametrize("kind", ["whisper", "w2v-bert"])
def test_no_feature_encoder_to_freeze(kind: str) -> None:
    model = MODELS[kind]()
    before = [p.requires_grad for p in model.parameters()]
    with pytest.warns(UnsupportedSettingWarning, match="no convolutional feature encoder"):
        done = prepare_model(model, make_plan(freeze_feature_encoder=True))
    assert done.not_done
    assert [p.requires_grad for p in model.parameters()] == before


@pytest.mark.parametrize("wraps", [[peft], [torch.compile], [peft, torch.compile], [torch.compile, peft]])
def test_wrapped_models(wraps: list[Callable[[Any], Any]]) -> None:
    model = inside = wav2vec2("mean")
    for wrap in wraps:
        model = wrap(model)
    done = prepared(model, gradient_checkpointing=True, freeze_feature_encoder=True)
    assert done["gradient_checkpointing"].state == "done"
    assert done["freeze_feature_encoder"].state in ("done", "kept")  # LoRA has frozen it already
    assert not any(p.requires_grad for p in inside.wav2vec2.feature_extractor.parameters())
    assert recomputed(inside, "wav2vec2") > 0
    assert set(states(prepared(model, gradient_checkpointing=True, freeze_feature_encoder=True)).values()) == {"kept"}


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_weights_and_random_numbers_stay(kind: str) -> None:
    model = MODELS[kind]().train()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    random.seed(1)
    torch.manual_seed(1)
    states_before = random.getstate(), torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = make_plan(gradient_checkpointing=True, freeze_feature_encoder=True, attn_implementation="sdpa")
        prepare_model(model, plan)
    assert random.getstate() == states_before[0]
    assert torch.equal(torch.get_rng_state(), states_before[1])
    assert model.training
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(model.state_dict()[name], value) for name, value in weights.items())


def test_a_module_without_any_of_it() -> None:
    with pytest.warns(UnsupportedSettingWarning) as caught:
        done = prepare_model(Regression(), make_plan(gradient_checkpointing=True, freeze_feature_encoder=True))
    assert len(caught) == len(done.not_done) == 2
    assert prepared(Regression()).settings == ()


@pytest.mark.parametrize("model", [None, "facebook/wav2vec2-base", {"model_type": "wav2vec2"}, object()])
def test_what_is_no_module_is_refused(model: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot prepare "):
        prepare_model(model, make_plan())
