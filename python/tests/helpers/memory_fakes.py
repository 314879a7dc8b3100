"""A library whose memory answers follow a formula simple enough to check by hand."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from asrconfig_go._core import native

MIB = 2**20
STATIC = {"parameters": 100 * MIB, "gradients": 100 * MIB, "optimizer": 200 * MIB}
PER_SECOND = MIB  # of activations, for each second of each sample
RESERVED = 1.25  # reserved over allocated memory
CONTEXT = 300 * MIB
ABOUT = {
    "model": "Fake", "torch": "2.0", "precision": "fp16", "optimizer": "adamw_torch", "checkpointing": "none",
    "accumulation": 1, "length_per_second": 16000, "labels_per_second": 15,
}  # fmt: skip


class FakeLibrary:
    """Stands in for ``native.call``: memory operations are answered here, all others by the real library."""

    def __init__(self, about: dict[str, Any] | None = None) -> None:
        self.about = {**ABOUT, **(about or {})}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.opened: set[int] = set()
        self._real = native.call

    def __call__(self, op: str, args: dict[str, Any] | None = None) -> Any:
        if not op.startswith("memory."):
            return self._real(op, args)
        self.asked.append((op, args or {}))
        return getattr(self, op.removeprefix("memory."))(**(args or {}))

    def count(self, op: str) -> int:
        """How often an operation was asked for."""
        return sum(name == op for name, _ in self.asked)

    def open(self, **_: Any) -> dict[str, Any]:
        self.opened.add(self.count("memory.open"))
        points = [{"kind": "micro", "batch": 2, "length": 32000, "labels": 11}]
        return {"trace": self.count("memory.open"), "about": self.about, "over_time": False,
                "storages": 3, "exact": 3, "approximate": 0,
                "worst_residual": 0.0, "points": points, "templates": []}  # fmt: skip

    def close(self, trace: int) -> None:
        self.opened.discard(trace)

    def determined(self, **_: Any) -> dict[str, Any]:
        return {"exactly": True}

    def device(self, nccl: bool, **_: Any) -> dict[str, Any]:
        return {
            "context_bytes": CONTEXT,
            "multiprocessors": 108,
            "threads_per_multiprocessor": 2048,
            "nccl_bytes": CONTEXT * nccl,
            "high": 2 * CONTEXT,
        }

    def snapshot(self, **_: Any) -> dict[str, Any]:
        stacks = {name: [i] for i, name in enumerate(("op", "module", "segment", "phase", "component"))}
        return {
            "names": ["aten.mm", "layers.1", "micro", "forward", "activations"],
            "stacks": stacks,
            "events": {"action": [2, 0], "address": [0, 0], "bytes": [2097152, 1000], "stack": [0, 0], "step": [1, 1]},
            "left_out": 7,
            "segments": [],
            "settings": {"expandable_segments": False},
            "out_of_memory": None,
        }

    def simulate(self, batch: int, length: int, limit_bytes: int | None, **more: Any) -> dict[str, Any]:
        activations = round(batch * length / 16000 * PER_SECOND)
        if more.get("kind") == "evaluate":
            return answer(
                {**STATIC, "gradients": 0, "activations": activations // 10, "outputs": batch * 1000}, None, more
            )
        return answer({**STATIC, "activations": activations}, limit_bytes, more)

    def largest(self, rows: list[dict[str, Any]], limit_bytes: int, most: int, **more: Any) -> dict[str, Any]:
        room = limit_bytes / RESERVED - sum(STATIC.values())
        fits = [max(0, min(most, int(room // (row["length"] / 16000 * PER_SECOND)))) for row in rows]
        return {"batches": list(accumulate(fits, min)), "by_batch": bool(more.get("by_batch")), "missing": None}

    def run(self, windows: list[list[list[int]]], limit_bytes: int | None, **more: Any) -> dict[str, Any]:
        """As if what a window reserves were given back before the next."""
        largest = max((micro for window in windows for micro in window), key=lambda micro: micro[0] * micro[1])
        peaks = [
            [self.simulate(micro[0], micro[1], limit_bytes=None)["peak_allocated"] for micro in w] for w in windows
        ]
        failed = [n for n, w in enumerate(peaks) if limit_bytes is not None and max(w) * RESERVED > limit_bytes]
        every = [peak for window in peaks for peak in window]
        alone = self.simulate(largest[0], largest[1], limit_bytes=None)
        names = ("peak_allocated", "peak_reserved")
        return {"peak_allocated": max(every), "peak_reserved": round(max(every) * RESERVED), "retries": 0,
                "failed_steps": len(failed), "first_failed_step": failed[0] if failed else None,
                "micro_batches": len(every), "mean_peak": sum(every) / len(every),
                "mean_peak_by_time": float(max(every)),
                "largest_batch_only": {name: alone[name] for name in names}}  # fmt: skip


def answer(components: dict[str, int], limit: int | None, more: dict[str, Any]) -> dict[str, Any]:
    """The library's answer to ``memory.simulate`` when all of these are held at once."""
    allocated = sum(components.values())
    reserved = round(allocated * RESERVED)
    context = more.get("device_bytes")
    full = limit is not None and reserved > limit
    failure = {"segment": "micro", "phase": "backward", "op": "aten.mm", "module": "layers.1", "wanted": 7 * MIB,
               "reserved": limit, "allocated": limit}  # fmt: skip
    phases = [
        {"segment": "load", "phase": "load", "peak_allocated": 100 * MIB, "peak_reserved": 120 * MIB},
        {"segment": "micro", "phase": "backward", "peak_allocated": allocated, "peak_reserved": reserved},
    ]
    steps = {name: [0, size, size // 2] for name, size in components.items()}
    timeline = {"event": [0, 50, 100], "phase": [0, 1, 1], "allocated": [0, allocated, allocated // 2],
                "reserved": [0, reserved, reserved], "components": steps}  # fmt: skip
    return {
        "estimator": "trace",
        "peak_allocated": min(allocated, limit) if full and limit else allocated,
        "peak_requested": allocated,
        "peak_reserved": limit if full else reserved,
        "peak_device": None if context is None else reserved + context,
        "pinned_bytes": 0,
        "fits": None if limit is None else not full,
        "retries": 0,
        "out_of_memory": failure if full else None,
        "fragmentation": 0.2,
        "at_peak": {"segment": "micro", "phase": "backward", "op": "aten.mm", "module": "layers.1",
                    "components": components, "modules": [{"module": "layers.1", "bytes": 5 * MIB}]},
        "phases": phases,
        "timeline": timeline if more.get("timeline") else None,
        "approximate": 0,
        "notes": [],
    }  # fmt: skip
