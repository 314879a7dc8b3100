"""The configs of known models build modules of the catalogue's size, with random weights and without a download."""

from __future__ import annotations

import pytest

from asrconfig_go._lib import call

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("name", call("model.names", {}))
def test_a_known_config_builds_the_module(name: str) -> None:
    known = call("model.config", {"name": name})
    config = transformers.AutoConfig.for_model(**known["config"])
    with torch.device("meta"):
        module = getattr(transformers, known["class_name"])(config)
    parameters = sum(p.numel() for p in module.parameters())
    assert parameters == call("model.profile", {"name": name})["total_parameters"]
