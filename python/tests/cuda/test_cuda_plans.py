"""A plan from the machine's own figures to the report of its training, on the stand-in CUDA runtime."""

from __future__ import annotations

from typing import Any

import pytest

from cuda_process import run_on_cuda, stand_in  # noqa: F401

MIB = 2**20
T4 = 15360 * MIB
CONTEXT = 300 * MIB


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("planned")
    found: dict[str, Any] = run_on_cuda("planned", str(folder), module="cuda_plans", gpu="T4", context_bytes=CONTEXT)
    return found


def test_plan_for_the_gpu_that_is_here_trains_on_it(planned: dict[str, Any]) -> None:
    assert planned["planned"] == ["Tesla T4", T4, "fp16", 8]
    assert planned["device"] == "cuda:0"
    assert planned["guard"] == ["", []]
    assert planned["trained"][0] == 4
    assert planned["trained"][1].endswith("effective batch 8: 8 × 1\nmemory never ran out")
    assert planned["unsupported"] == []


def test_planning_does_not_start_cuda(planned: dict[str, Any]) -> None:
    """Else the plan's own allocator settings come too late."""
    assert planned["started"] is False
    assert planned["environment"] == ["done", "expandable_segments:True", ""]
    assert planned["expandable"] == [True]


def test_allocator_settings_after_cuda_has_started_have_no_effect(planned: dict[str, Any]) -> None:
    state, value, why, warning, variable = planned["late"]
    assert (state, value, variable) == ("not done", "expandable_segments:True", "expandable_segments:True")
    assert why.startswith("expandable_segments:True,max_split_size_mb:64 has no effect: CUDA has started")
    assert warning == "TooLateWarning"


def test_report_has_the_peaks_of_torch(planned: dict[str, Any]) -> None:
    allocated, reserved, _ = planned["torch"]
    assert planned["reported"] == planned["torch"]
    assert 0 < allocated <= reserved
    assert planned["used"] == reserved + CONTEXT
    assert reserved <= planned["predicted"], "of all but the context"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("watched")
    found: dict[str, Any] = run_on_cuda("watched", str(folder), module="cuda_plans", gpu="T4", context_bytes=CONTEXT)
    return found


def test_monitor_has_the_figures_of_driver_and_torch(watched: dict[str, Any]) -> None:
    sizes = [(300, 0, 300), (800, 0, 800), (1800, 0, 1800), (0, 1800, 1800), (0, 0, 1800)]
    for (ours, theirs, peak, headroom), each in zip(watched["figures"], sizes, strict=True):
        allocated, unused, highest = (size * MIB for size in each)
        used = CONTEXT + allocated + unused
        assert ours == theirs == [T4, used, T4 - used, allocated, allocated + unused]
        assert (peak, headroom) == (CONTEXT + highest, T4 - used + unused)


def test_thresholds_while_memory_fills(watched: dict[str, Any]) -> None:
    """Held shares of 0.5, 0.92, 0.93, 0.5, 0.91, 0.6 and 0.95, each with CUDA's context."""
    over = "GPU 0 {} of 15.0 GiB ({}) is over "
    assert watched["said"] == [
        [2, "memory: " + over.format("14.1", "94%") + "90%"],
        [5, "memory: " + over.format("13.9", "93%") + "90%"],
        [7, "memory: " + over.format("14.5", "97%") + "90%"],
        [7, "memory: " + over.format("14.5", "97%") + "95%: unused cached memory is freed"],
    ]
    assert watched["counted"] == [3, 1]


def test_clean_up_gives_the_cache_back(watched: dict[str, Any]) -> None:
    cached = int(0.01 * T4)
    assert watched["peak"] >= CONTEXT + watched["held"] + cached
    assert watched["held"] <= watched["reserved"] < watched["held"] + cached / 2
