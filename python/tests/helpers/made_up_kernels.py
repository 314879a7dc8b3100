"""A table of kernels as ``asrconfig profile-gpu`` writes it, of a T4 that nobody measured."""

from __future__ import annotations

from typing import Any

from asrconfig_go._base import native

BYTES_A_SECOND, FLOPS = 2.0e11, 4.0e12


def t4_table(bytes_a_second: float = BYTES_A_SECOND, flops: float = FLOPS) -> dict[str, Any]:
    """Each kernel takes what its bytes or its arithmetic take at these rates, and 2 µs."""
    asked = {"compute_capability": "7.5", "memory_bytes": 16e9}
    rows = []
    for sample in native.call("timing.kernels", asked)["samples"]:
        o = sample["operation"]
        products = {"attention": 2, "attention_backward": 5}.get(sample["recipe"], 1)
        work = 2 * products * o.get("batch", 0) * o.get("m", 0) * o.get("n", 0) * o.get("k", 0)
        seconds = max((o["read"] + o["written"]) / bytes_a_second, work / flops) + 2e-6 * o["kernels"]
        rows.append({**o, "seconds": seconds, "low_s": 0.98 * seconds, "high_s": 1.04 * seconds})
    return {
        "version": 1, "gpu": "Tesla T4", "memory_bytes": 16106127360, "driver": "580.1", "torch": "2.9", "cuda": "12.8",
        "date": "2026-03-01", "launch_s": 2e-6, "dispatch_s": 7e-6, "kernels": rows,
    }  # fmt: skip
