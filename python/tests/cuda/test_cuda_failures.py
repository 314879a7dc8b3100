"""What the report of a run says of memory that ran out: the real snapshot by module, beside the prediction."""

from __future__ import annotations

from typing import Any

import pytest

from cuda_tests.forked import run_on_cuda
from cuda_tests.process import stand_in, torch_version  # noqa: F401

# Of the GPU: memory runs out in the forward pass of the first step, in its backward pass, in the second step.
NEW = torch_version() >= (2, 15)
# Before torch 2.15 workspaces are kept.
SIZES = (260_000_000, 330_000_000, 360_000_000) if NEW else (280_000_000, 338_000_000, 386_000_000)
PLACES = dict(zip(SIZES, ((0, "forward"), (0, "backward"), (1, "backward")), strict=True))


@pytest.fixture(scope="module", params=[SIZES[1], *(pytest.param(size, marks=pytest.mark.slow) for size in SIZES[::2])])
def runs(request: pytest.FixtureRequest) -> Any:
    found = run_on_cuda("reported_failures", module="cuda_tests.failures", timeout=120, memory_bytes=request.param)
    return {"place": PLACES[request.param], **found}


def held(failure: Any, component: str) -> tuple[int, int]:
    rows = [row for row in failure["rows"] if row["component"] == component]
    return sum(row["held"] for row in rows), sum(row["predicted"] for row in rows)


@pytest.mark.parametrize("mode", ["blocks", "history"])
def test_rows_are_those_of_the_snapshot_and_of_the_prediction(runs: Any, mode: str) -> None:
    (failure,) = runs[mode]["failures"]
    assert (failure["step"], failure["phase"]) == runs["place"]
    assert (failure["samples"], failure["seconds"]) == (8, 3.0)
    assert [failure["held"]] == runs[mode]["held"], "of the .pickle"
    assert sum(row["held"] for row in failure["rows"]) == failure["held"] <= failure["reserved"]
    assert sum(row["predicted"] for row in failure["rows"]) == failure["predicted"]
    for component in ("parameters", "gradients"):
        real, predicted = held(failure, component)
        assert real == predicted, component
    real, predicted = held(failure, "optimizer")
    assert real == pytest.approx(predicted, rel=0.02)  # blocks keep what is not worth splitting off
    assert (real > 0) == (failure["step"] > 0)
    # Where workspaces are kept the predicted moment comes up to 3.8 % of the memory later.
    assert failure["predicted"] == pytest.approx(failure["held"], rel=0.02 if NEW else 0.04)
    assert failure["moment"]["phase"] == failure["phase"]
    assert failure["moment"]["step"] == failure["step"] + 1
    assert failure["module"] == (failure["moment"]["module"] if failure["phase"] == "forward" else "")


def test_activations_have_modules_where_their_history_is_recorded(runs: Any) -> None:
    (whole,), (parts,) = runs["blocks"]["failures"], runs["history"]["failures"]
    assert [row["module"] for row in whole["rows"] if row["component"] == "others"] == ["*"]
    modules = {row["module"]: row for row in parts["rows"] if row["component"] == "others"}
    extractor = [row for name, row in modules.items() if name.startswith("wav2vec2.feature_extractor.conv_layers")]
    assert sum(row["held"] for row in extractor) > 0.5 * whole["held"]
    assert sum(abs(row["held"] - row["predicted"]) for row in extractor) < 0.01 * whole["held"]
    differences = [abs(row["held"] - row["predicted"]) for row in parts["rows"]]
    assert differences == sorted(differences, reverse=True)


@pytest.mark.parametrize("mode", ["blocks", "history"])
def test_the_report_shows_them(runs: Any, mode: str) -> None:
    told = runs[mode]
    assert told["notes"] == []
    assert told["json"] == told["failures"]
    for shown in (" ".join(told["text"].split()), told["html"]):
        assert "When memory ran out" in shown
        assert f"training, step {runs['place'][0]}, {runs['place'][1]}" in shown
        assert "predicted of 8 × 3 s at that moment" in shown
        assert ("activations by module: attach(oom_snapshot=" in shown) == (mode == "blocks")
