"""CUDA's numbers of GPUs that differ: by what it lists once it runs, and by UUID or name in a plan."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

from asrconfig_go.plan import PlannedDevice
from asrconfig_go.predict.hardware import cuda_order, driver_arguments
from asrconfig_go.train.planned_batches import planned_device
from cuda_fakes import cuda_has

T4, V100, P40 = ("Tesla T4", "t", 16_000), ("V100", "v", 16_000), ("Tesla P40", "p", 24_000)


def device(name: str, uuid: str, budget: int) -> PlannedDevice:
    return PlannedDevice(0, uuid, name, 4, 1, 1, budget)


def test_cuda_lists_its_devices_once_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    arguments = {"visible_devices": None, "device_order": "PCI_BUS_ID"}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert driver_arguments() == {**arguments, "cuda_order": None}
    cuda_has(monkeypatch, V100, T4)
    assert driver_arguments() == {**arguments, "cuda_order": ["GPU-v", "GPU-t"]}
    cuda_has(monkeypatch, V100, ("Tesla T4", None, 16_000))  # PyTorch 2.4 has no UUIDs
    assert cuda_order() is None

    def fails(number: int) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "get_device_properties", fails)
    assert cuda_order() is None
    monkeypatch.delitem(sys.modules, "torch")
    assert cuda_order() is None


@pytest.mark.parametrize(
    ("cards", "devices", "expected"),
    [
        # By UUID, whatever the order; the same name twice, with less memory to use on one of them.
        ([V100, T4], [("Tesla T4", "GPU-t", 13), ("V100", "GPU-v", 14)], [14, 13]),
        (
            [V100, T4, ("Tesla T4", "u", 16_000)],
            [("Tesla T4", "GPU-t", 9), ("Tesla T4", "GPU-u", 13), ("V100", "GPU-v", 14)],
            [14, 9, 13],
        ),
        # By name where PyTorch reports no UUIDs, or the plan is for others: the least of its kind.
        (
            [("V100", None, 16_000), ("Tesla T4", None, 16_000)],
            [("Tesla T4", "GPU-t", 13), ("V100", "GPU-v", 14)],
            [14, 13],
        ),
        ([T4, V100], [("V100", "", 14), ("Tesla T4", "", 13)], [13, 14]),
        ([T4, T4], [("Tesla T4", "GPU-1", 13), ("Tesla T4", "GPU-2", 9)], [9, 9]),
        # Two sizes of one name.
        (
            [("RTX 3060", "a", 8_000), ("RTX 3060", "b", 12_000)],
            [("RTX 3060", "", 10_200), ("RTX 3060", "", 6_800)],
            [6_800, 6_800],
        ),
        ([("RTX 3060", "a", 8_000)], [("RTX 3060", "", 10_200)], [None]),
        # Not planned for, and not there.
        ([P40], [("Tesla T4", "GPU-t", 13)], [None]),
        ([], [("Tesla T4", "GPU-t", 13)], [None]),
    ],
)
def test_a_process_finds_its_own_device(
    monkeypatch: pytest.MonkeyPatch,
    cards: list[tuple[str, str | None, int]],
    devices: list[tuple[str, str, int]],
    expected: list[int | None],
) -> None:
    cuda_has(monkeypatch, *cards)
    plan = [device(*fields) for fields in devices]
    chosen = [planned_device(plan, i) for i in range(len(expected))]
    assert [None if device_plan is None else device_plan.budget_bytes for device_plan in chosen] == expected
