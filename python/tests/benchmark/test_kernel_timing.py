"""The measurement of kernels, on the CPU and on a GPU that is made up."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asrconfig_go._core import native
from asrconfig_go.benchmark import kernel_timing
from asrconfig_go.benchmark.kernel_timing import RECIPES, Run, measure_kernels, training_layer
from asrconfig_go.errors import InvalidArgumentError, UnsupportedError
from asrconfig_go.predict.hardware import kernel_profile

SUITE = native.call("timing.kernels", {"compute_capability": "8.0", "memory_bytes": 40e9})["samples"]
TYPES = {"float32": torch.float32, "tf32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
BESIDE = {"layer_norm", "layer_norm_backward", "attention"}  # results of a row, scratch of the CPU's kernels


def test_every_recipe_writes_what_the_library_counts() -> None:
    assert {sample["recipe"] for sample in SUITE} == set(RECIPES)
    for sample in SUITE:
        operation = sample["operation"]
        if operation["kind"] == "optimizer" or (operation["phase"] == "forward" and operation["dtype"] == "tf32"):
            continue  # in place; as in float32

        def make(*sizes: int, dtype: torch.dtype = TYPES[operation["dtype"]]) -> torch.Tensor:
            return torch.empty(*sizes, device="meta", dtype=dtype)

        results = RECIPES[sample["recipe"]](make, *sample["shape"])()
        tensors: Any = [results] if torch.is_tensor(results) else results
        written = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)
        near = 0.02 if sample["recipe"] in BESIDE else 0
        assert written == pytest.approx(operation["written"], rel=near, abs=0), sample


def test_adamw_steps_over_its_parameters() -> None:
    weights: list[torch.Tensor] = []

    def make(elements: int) -> torch.Tensor:
        weights.append(torch.ones(elements))
        return weights[-1]

    RECIPES["adamw"](make, 16)()
    assert weights[0].max() < 1


def test_the_layer_counts_kernels_of_both_passes() -> None:
    run, kernels = training_layer(lambda *sizes: torch.randn(*sizes))
    run()
    assert kernels == 14


@pytest.mark.slow
def test_kernels_are_measured_within_the_time() -> None:
    state = torch.random.get_rng_state()
    torch.backends.cudnn.benchmark = False
    begin = time.perf_counter()
    table = measure_kernels("cpu", minutes=0.1, most_flops=1e8)
    assert time.perf_counter() - begin < 60  # a bound for a busy machine
    assert table["gpu"] == "CPU" and table["torch"] == torch.__version__
    assert 0 < table["launch_s"] < 1e-2 and 0 < table["dispatch_s"] < 1e-2
    assert len(table["kernels"]) >= 3
    for row in table["kernels"]:
        assert 0 < row["low_s"] <= row["seconds"] <= row["high_s"]
        assert row["dtype"] == "float32" and row["times"] == 1
    assert torch.equal(state, torch.random.get_rng_state())
    assert not torch.backends.cudnn.benchmark
    with pytest.raises(InvalidArgumentError, match="kernels"):  # of too few, or of no card
        kernel_profile({**table, "kernels": table["kernels"][:5]})


def test_no_time_and_no_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="minutes = 0"):
        measure_kernels("cpu", minutes=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnsupportedError, match="no GPU to measure"):
        measure_kernels()


class Event:
    """Of a GPU that takes 2 ms between two of them."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        """Queue nothing."""

    def elapsed_time(self, end: Event) -> float:
        assert end is not self
        return 2.0


def test_a_gpu_is_timed_by_events_behind_a_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[int] = []
    card = SimpleNamespace(name="Tesla T4", major=7, minor=5, total_memory=15_600_000_000)
    for name, value in {
        "is_available": lambda: True, "get_device_properties": lambda device: card, "Event": Event,
        "mem_get_info": lambda device: (15_000_000_000, 0), "synchronize": lambda: None, "_sleep": slept.append,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    clock = kernel_timing._GPUClock("cpu")
    assert clock.card == {"compute_capability": "7.5", "memory_bytes": 15e9}
    assert clock.described["gpu"] == "Tesla T4" and clock.described["memory_bytes"] == 15_600_000_000
    runs: list[int] = []
    assert clock.seconds(lambda: runs.append(1), 8) == pytest.approx(2e-3 / 8)
    assert len(runs) == 9 and len(slept) == 1 and 0 < slept[0] <= 2e8


def test_a_kernel_that_does_not_run_is_left_out() -> None:
    sample = {"recipe": "linear", "shape": [2, 2, -1], "operation": {"dtype": "float32"}}
    assert kernel_timing._readings(sample, kernel_timing._CPUClock(), 0.1) is None


def test_the_gpu_that_is_measured_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    current = ["cuda:0"]
    measured: list[str] = []

    @contextlib.contextmanager
    def device(name: str) -> Iterator[None]:
        current.append(name)
        yield
        current.pop()

    class Clock(kernel_timing._CPUClock):
        """Of a GPU whose kernels run on the CPU, which is thus what has to be current."""

        current = kernel_timing._GPUClock.current

        def __init__(self, device: str) -> None:
            super().__init__()
            assert device == "cuda:1"

        def seconds(self, run: Run, times: int) -> float:
            measured.append(current[-1])
            return super().seconds(run, 1)

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(kernel_timing, "_GPUClock", Clock)
    measure_kernels("cuda:1", minutes=0.01, most_flops=1e7)
    assert set(measured) == {"cpu"} and current == ["cuda:0"]
