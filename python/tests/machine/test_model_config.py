"""The configs of known models build modules of the catalogue's size, with random weights and without a download."""

from __future__ import annotations

import pytest

from asrconfig_go._base.native import call

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("name", call("model.names", {}))
def test_a_known_config_builds_the_module(name: str) -> None:
    known = call("model.config", {"name": name})
    if not hasattr(transformers, known["class_name"]):
        pytest.skip(f"transformers {transformers.__version__} has no {known['class_name']}")
    config = transformers.AutoConfig.for_model(**known["config"])
    with torch.device("meta"):
        module = getattr(transformers, known["class_name"])(config)
    # Older versions of Speech2Text call the fixed sinusoids of positions parameters, newer ones buffers.
    sinusoids = {
        id(p)
        for name, p in module.named_parameters()
        if "embed_positions" in name and known["config"]["model_type"] == "speech_to_text"
    }
    parameters = sum(p.numel() for p in module.parameters() if id(p) not in sinusoids)
    assert parameters == call("model.profile", {"name": name})["total_parameters"]
