"""Parameter counts, by name and from any config: those of the module that the installed transformers builds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from record_models import counts_of_built

from asrconfig_go import known_models, profile_model
from asrconfig_go._core.modules import class_for, speech_kind
from asrconfig_go._core.native import call
from asrconfig_go.errors import InvalidArgumentError, UnsupportedError
from asrconfig_go.trace.model import Model
from asrconfig_go.trace.tiny_models import TINY
from locations import REPOSITORY

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


COUNTS: dict[str, dict[str, Any]] = json.loads((REPOSITORY / "core" / "model" / "counts.json").read_text())
SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}


@pytest.mark.parametrize("name", [*TINY, *known_models()])
def test_known_models_are_counted_as_they_are_built(name: str) -> None:
    assert counts_of_built(Model.of(name).build) == COUNTS[name], "run build/record_models.py --counts"


@pytest.mark.parametrize("name", ["wav2vec2-base", "facebook/wav2vec2-xls-r-300m"])
def test_a_frozen_front_end_is_not_trained(name: str) -> None:
    model_type = transformers.AutoConfig.for_model(**call("model.config", {"name": name})["config"])
    with torch.device("meta"):
        module = transformers.Wav2Vec2ForCTC(model_type)
    module.freeze_feature_encoder()
    by_name, live = profile_model(name, freeze_feature_encoder=True), profile_model(module)
    assert by_name.trainable_parameters == live.trainable_parameters
    assert by_name.optimizer_bytes == live.optimizer_bytes


@pytest.mark.parametrize(
    "model_type",
    ["bert", "roberta", "distilbert", "gpt2", "wav2vec2", "whisper", "seamless_m4t", "moonshine", "speecht5"],
)
def test_any_model_type_is_counted_from_its_config(model_type: str) -> None:
    config = transformers.AutoConfig.for_model(model_type)
    values = json.loads(config.to_json_string(use_diff=False))
    source = Model.of(config)
    with torch.device("meta"):
        module = source.build()
    profile = profile_model(values)
    assert profile.total_parameters == sum({id(p): p.numel() for p in module.parameters()}.values())
    assert (profile.class_name, profile.architecture, profile.source) == (type(module).__name__, model_type, "config")
    assert profile_model(config).optimizer_bytes == profile.optimizer_bytes == profile_model(module).optimizer_bytes


def test_a_folder_is_built_from_its_config(tmp_path: Any) -> None:
    config = transformers.Wav2Vec2Config(**SMALL, vocab_size=10, num_conv_pos_embedding_groups=4)
    config.save_pretrained(tmp_path)
    profile = profile_model(tmp_path)
    assert (profile.class_name, profile.source, profile.name) == ("Wav2Vec2ForCTC", "folder", tmp_path.name)


def test_what_transformers_does_not_build_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="no class to fine-tune for model_type 'no_such_kind'"):
        profile_model({"model_type": "no_such_kind"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden_size": -1},
        {"hidden_size": 0},
        {"hidden_size": "wide"},
        {"hidden_act": "odd"},
        {"vocab_size": -1},
        {"conv_dim": [1]},
        {"num_attention_heads": 0},
        {"hidden_size": 100, "num_attention_heads": 3},
    ],
)
def test_whatever_a_wrong_config_raises_is_one_line_of_ours(wrong: dict[str, Any]) -> None:
    expected = r"^Wav2Vec2ForCTC cannot be built from the config: \w+: \S"
    with pytest.raises(InvalidArgumentError, match=expected) as caught:
        profile_model({"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForCTC"], **wrong})
    assert "\n" not in caught.value.message


def test_adafactor_bytes_are_those_of_the_real_optimizer() -> None:
    sizes = {"conv_dim": [6, 5], "conv_kernel": [4, 3], "conv_stride": [2, 2]}
    config = transformers.Wav2Vec2Config(**SMALL, **sizes, num_conv_pos_embedding_groups=4, num_conv_pos_embeddings=9)
    module = transformers.Wav2Vec2ForCTC(config)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    adafactor = transformers.optimization.Adafactor
    optimizer = adafactor(module.parameters(), lr=1e-3, scale_parameter=False, relative_step=False)
    optimizer.step()
    moments = [
        value for state in optimizer.state.values() for name, value in state.items() if name.startswith("exp_avg_sq")
    ]
    size = sum(value.numel() * value.element_size() for value in moments)
    assert profile_model(config).optimizer_bytes["adafactor"] == size


ENTRIES = json.loads((REPOSITORY / "core" / "model" / "catalogue.json").read_text())
UNITS = {"B": 1e9, "M": 1e6}


def built(name: str) -> Any:
    catalogue = call("model.config", {"name": name})
    if not hasattr(transformers, catalogue["class_name"]):
        pytest.skip(f"transformers {transformers.__version__} has no {catalogue['class_name']}")
    config = transformers.AutoConfig.for_model(**catalogue["config"])
    with torch.device("meta"):
        return getattr(transformers, catalogue["class_name"])(config)


@pytest.mark.parametrize("name", call("model.names", {}))
def test_a_known_config_builds_the_module(name: str) -> None:
    module = built(name)
    # Older versions of Speech2Text call the fixed sinusoids of positions parameters, newer ones buffers.
    sinusoids = {
        id(p)
        for name, p in module.named_parameters()
        if "embed_positions" in name and module.config.model_type == "speech_to_text"
    }
    parameters = sum(p.numel() for p in module.parameters() if id(p) not in sinusoids)
    assert parameters == call("model.profile", {"name": name})["total_parameters"]


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.get("published")], ids=lambda entry: entry["id"])
def test_the_count_is_the_published_one(entry: dict[str, Any]) -> None:
    """To one unit of the last digit that a card shows; cards count a table of tokens once, or once for each end."""
    module, published = built(entry["id"]), entry["published"]
    digits = published[:-1]
    unit = UNITS[published[-1]] / 10 ** len(digits.partition(".")[2])
    head = module.get_output_embeddings()
    table = 0 if head is None else head.weight.numel()
    total = sum(p.numel() for p in module.parameters())
    figure = float(digits) * UNITS[published[-1]]
    assert min(abs(count - figure) for count in (total, total - table, total + table)) <= unit


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.get("class_name")], ids=lambda entry: entry["id"])
def test_the_class_is_the_one_that_transformers_has_for_speech(entry: dict[str, Any]) -> None:
    config = built(entry["id"]).config
    if speech_kind(config) is not None:  # AST classifies
        assert class_for(config) == entry["class_name"]
