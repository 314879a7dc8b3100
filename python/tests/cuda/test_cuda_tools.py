"""Calibration, the largest batch and the pre-flight by real steps on the stand-in CUDA runtime, up to its limit."""

from __future__ import annotations

from typing import Any

import pytest

from cuda_process import run_on_cuda, stand_in  # noqa: F401

LIMIT, CONTEXT = 1_500_000_000, 100_000_000


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = str(tmp_path_factory.mktemp("tools"))
    found: dict[str, Any] = run_on_cuda(
        "tools", folder, module="cuda_tools", gpu="T4", memory_bytes=LIMIT, context_bytes=CONTEXT
    )
    assert found["unsupported"] == []
    return found


def test_calibration_measures_what_was_predicted(tools: dict[str, Any]) -> None:
    """Measured: 0.35 % apart in allocated memory, and 768 bytes in reserved memory, by which tensors are rounded up."""
    found = tools["calibration"]
    assert (found["gpu"], found["context"]) == ("Tesla T4", CONTEXT)
    assert found["measured"][0] == pytest.approx(found["predicted"][0], rel=0.005)
    assert found["measured"][1] == pytest.approx(found["predicted"][1], abs=1024)
    assert found["factor"] == pytest.approx(found["measured"][1] / found["predicted"][1])
    assert found["corrected"] == pytest.approx(found["measured"][1], abs=1)


def test_calibration_leaves_nothing_on_the_gpu(tools: dict[str, Any]) -> None:
    """Not the optimizer of its steps, nor the scaler's tensors."""
    found = tools["calibration"]
    assert found["left"] == found["before"]
    before, after = found["trained"]
    assert after == before


def test_calibration_leaves_the_scale_of_gradients(tools: dict[str, Any]) -> None:
    """Before a training, and after one; each step doubles it here."""
    assert tools["calibration"]["scales"] == [65536.0, 65536.0, 131072.0, 131072.0]


def test_largest_batch_is_the_last_that_fits(tools: dict[str, Any]) -> None:
    found = tools["largest"]
    assert found["fits"] == [True, False], "plain steps of the size that was found, and of the next one"
    assert found["probes"][-2:] == [[found["found"], True], [found["found"] + 1, False]]
    assert found["ooms"] == sum(not fits for _, fits in found["probes"])
    assert found["start"] == [found["probes"][0][0], "which its trace predicts"]
    assert found["after"] == found["before"]


def test_largest_batch_of_a_trainer(tools: dict[str, Any]) -> None:
    found, largest = tools["of a trainer"], tools["largest"]["found"]
    assert found["found"] == largest
    assert found["probes"] == [[largest, True], [largest + 1, False]]
    before, after = found["kept"]
    assert after == before


def test_preflight_finds_micro_batches_that_fit(tools: dict[str, Any]) -> None:
    found, largest = tools["preflight"], tools["largest"]["found"]
    assert largest < 48
    assert found["rehearsed"] == [["training", 48, 5.0, 24]]
    assert found["events"] == [["pre-flight", 48, 24]], "the training itself met nothing"
    assert found["optimizer"] == tools["largest"]["states"]
    assert found["steps"] == 1
