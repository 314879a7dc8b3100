"""The configs of known models build modules of the catalogue's size, with random weights and without a download."""

from __future__ import annotations

import json
from typing import Any

import pytest

from asrconfig_go._core.modules import class_for, speech_kind
from asrconfig_go._core.native import call
from locations import REPOSITORY

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

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
