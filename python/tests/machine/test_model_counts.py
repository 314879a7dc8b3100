"""The library's parameter counts against the modules that the installed transformers builds on the meta device."""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType
from typing import Any

import pytest

from asrconfig_go import profile_model
from asrconfig_go._base.errors import InvalidArgumentError
from asrconfig_go._base.native import call
from locations import REPOSITORY

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TESTDATA = REPOSITORY / "core" / "model" / "testdata"


def _maker() -> ModuleType:
    """make_golden.py, which lies beside the Go tests: what it builds and counts is the truth for both languages."""
    spec = importlib.util.spec_from_file_location("make_golden", TESTDATA / "make_golden.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


maker = _maker()
Case = dict[str, Any]


def _request(case: Case, config: Any) -> Case:
    options: Case = {name: case[name] for name in ("head", "freeze_feature_encoder") if name in case}
    return {"config": config, **options}


def _check(case: Case) -> None:
    module = maker.build(case)
    want = maker.measure(module)
    full = json.loads(module.config.to_json_string(use_diff=False))
    del full["architectures"]  # the module just wrote its own class there, and the head is part of the question
    for config in (case["config"], full):
        profile = call("model.profile", _request(case, config))
        assert profile["class_name"] == want["class_name"]
        assert profile["total_parameters"] == want["total"]
        assert profile["trainable_parameters"] == want["trainable"]
        assert profile["optimizer_bytes"]["adafactor"] == want["adafactor_bytes"]
        assert (profile["hidden_size"], profile["layers"]) == (want["hidden_size"], want["layers"])


@pytest.mark.parametrize("case", list(maker.catalogue_cases()), ids=lambda case: case["name"])
def test_known_models(case: Case) -> None:
    _check(case)
    by_name = call("model.profile", {"name": case["name"]})
    assert by_name["total_parameters"] == maker.measure(maker.build(case))["total"]


@pytest.mark.parametrize(
    "case", list(maker.random_cases(2, per_family=6)), ids=lambda case: case["config"]["model_type"]
)
def test_random_sizes(case: Case) -> None:
    _check(case)


@pytest.mark.parametrize("kind", ["wav2vec2", "whisper", "parakeet_ctc"])
def test_a_live_module_and_its_config_agree(kind: str) -> None:
    case = next(c for c in maker.random_cases(seed=3, per_family=1) if c["config"]["model_type"] == kind)
    del case["head"]
    module = maker.build(case)
    live, read = profile_model(module), profile_model(module.config)
    assert (live.total_parameters, live.optimizer_bytes) == (read.total_parameters, read.optimizer_bytes)
    assert (live.class_name, live.source, read.source) == (read.class_name, "module", "config")


def test_adafactor_bytes_are_those_of_the_real_optimizer() -> None:
    config = {"model_type": "wav2vec2", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    config |= {"intermediate_size": 20, "conv_dim": [6, 5], "conv_kernel": [4, 3], "conv_stride": [2, 2]}
    config |= {"num_conv_pos_embedding_groups": 4, "num_conv_pos_embeddings": 9}
    values = {name: value for name, value in config.items() if name != "model_type"}
    module = transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**values))
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    adafactor = transformers.optimization.Adafactor
    optimizer = adafactor(module.parameters(), lr=1e-3, scale_parameter=False, relative_step=False)
    optimizer.step()
    moments = [
        value for state in optimizer.state.values() for name, value in state.items() if name.startswith("exp_avg_sq")
    ]
    held = sum(value.numel() * value.element_size() for value in moments)
    assert call("model.profile", {"config": config})["optimizer_bytes"]["adafactor"] == held


def test_a_wrong_value_names_its_field() -> None:
    with pytest.raises(InvalidArgumentError, match="hidden_size is -1; it must be a whole number"):
        call("model.profile", {"config": {"model_type": "wav2vec2", "hidden_size": -1}})
