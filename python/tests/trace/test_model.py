"""What can be traced, and when two models are the same to a trace."""

from __future__ import annotations

import copy
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.errors import AsrConfigError, CorruptFileError, InvalidArgumentError, NotFoundError, UnsupportedError
from asrconfig_go.predict import ModelProfile
from asrconfig_go.trace.model import Model
from asrconfig_go.trace.model_structure import structure_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "conv_dim": [8, 8],
    "conv_kernel": [4, 4], "conv_stride": [4, 2], "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip


def small_config(**changes: Any) -> Any:
    return transformers.Wav2Vec2Config(**{**SMALL, **changes})


def small_model(**changes: Any) -> Any:
    return transformers.Wav2Vec2ForCTC(small_config(**changes))


def test_a_known_decoder_has_the_token_it_starts_from() -> None:
    """The class has none by default, and the model then makes no input of its decoder from labels."""
    assert Model.of("cohere-transcribe").config_json["decoder_start_token_id"] == 4


def test_names_need_no_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    source = Model.of("xls-r-300m")
    assert source.label == "facebook/wav2vec2-xls-r-300m"
    assert source.identity == Model.of("facebook/wav2vec2-xls-r-300m").identity
    assert source.identity != Model.of("xls-r-300m", freeze_feature_encoder=True).identity
    assert source.identity != Model.of("xls-r-1b").identity


def test_a_config_as_object_dictionary_and_folder(tmp_path: Path) -> None:
    config = small_config()
    config.save_pretrained(tmp_path)
    values = json.loads(config.to_json_string(use_diff=False))
    sources = [Model.of(config), Model.of(values), Model.of(tmp_path)]
    built = [source.build() for source in sources]
    assert {type(module).__name__ for module in built} == {"Wav2Vec2ForCTC"}
    assert {sum(p.numel() for p in module.parameters()) for module in built} == {built[0].num_parameters()}
    assert sources[0].identity == sources[1].identity
    assert config.architectures is None, "building wrote to the user's config"


def test_a_frozen_feature_encoder() -> None:
    module = Model.of(small_config(), freeze_feature_encoder=True).build()
    frozen = {name.split(".")[1] for name, p in module.named_parameters() if not p.requires_grad}
    assert frozen == {"feature_extractor"}
    with pytest.raises(InvalidArgumentError, match="is trainable"):
        _ = Model.of(small_model(), freeze_feature_encoder=True).identity
    assert Model.of(module, freeze_feature_encoder=True).identity == structure_of(module)
    whisper = transformers.WhisperConfig(d_model=96, encoder_layers=2, decoder_layers=2, vocab_size=100, pad_token_id=0)
    with pytest.raises(InvalidArgumentError, match="no feature encoder"):
        Model.of(whisper, freeze_feature_encoder=True).build()


def test_functions_are_built_anew_each_time() -> None:
    source = Model.of(small_model)
    assert (source.passed, source.identity, source.label) == (small_model, None, "small_model")


def test_weights_do_not_matter_and_everything_else_does() -> None:
    first, second = small_model(), small_model()
    same = structure_of(first)
    assert structure_of(second) == same
    second.name_or_path = second.config._name_or_path = "somewhere/else"
    second.eval()
    assert structure_of(second) == same
    second.lm_head.weight.requires_grad = False
    changed = [
        structure_of(second),
        structure_of(small_model(hidden_dropout=0.3)),
        structure_of(small_model(conv_stride=[2, 4])),
        structure_of(small_model(ctc_loss_reduction="mean")),
        structure_of(small_model().half()),
        structure_of(torch.nn.Sequential(small_model())),
    ]
    assert len({same, *changed}) == len(changed) + 1


def test_shared_and_copied_tensors_differ() -> None:
    shared = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    apart = copy.deepcopy(shared)
    shared[1].weight = shared[0].weight
    assert structure_of(shared) != structure_of(apart)


def _user_class(body: str) -> Any:
    """A class as a notebook has it: without a file."""
    space: dict[str, Any] = {"torch": torch, "__name__": "__main__"}
    code = "class Own(torch.nn.Module):\n    def forward(self, x):\n        " + body
    exec(compile(code, "<cell>", "exec"), space)
    return space["Own"]


def test_the_code_of_own_classes_counts() -> None:
    doubled, halved = _user_class("return x * 2")(), _user_class("return x / 2")()
    assert structure_of(doubled) == structure_of(_user_class("return x * 2")())
    assert structure_of(doubled) != structure_of(halved)
    option = _user_class("return x * self.width")()
    option.width = 1
    before = structure_of(option)
    option.width = 2
    assert structure_of(option) != before
    patched = torch.nn.Linear(2, 2)
    plain = structure_of(patched)
    patched.forward = types.MethodType(lambda self, x: x, patched)
    assert structure_of(patched) != plain


def test_the_file_of_own_classes_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    identities = []
    for number in (1, 2):
        code = f"import torch\nWIDTH = {number}\nclass Own(torch.nn.Module):\n    pass\n"
        (tmp_path / "own_module_of_a_user.py").write_text(code)
        sys.modules.pop("own_module_of_a_user", None)
        module = __import__("own_module_of_a_user")
        identities.append(structure_of(module.Own()))
    assert identities[0] != identities[1]


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        (42, InvalidArgumentError, "from an int"),
        ("no-such-model", NotFoundError, "no-such-model"),
        (ModelProfile(total_parameters=5), UnsupportedError, "only its counts"),
        ({"hidden_size": 3}, AsrConfigError, "model_type"),
    ],
)
def test_wrong_models_are_named(model: Any, kind: type[AsrConfigError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        _ = Model.of(model).identity
    assert caught.value.hint


def test_folders_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="cannot read the model's config"):
        _ = Model.of(tmp_path).identity
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CorruptFileError, match="holds no model's config"):
        _ = Model.of(tmp_path).identity
