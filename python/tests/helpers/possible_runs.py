"""What no machine can do: a run that was made up must not show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from statistics import median
from typing import Any

Json = dict[str, Any]
_LIMIT = 0.95  # of a GPU: memory ran out with at least that in use


def check_possible(run_log: Json) -> None:
    """Raises ``ValueError`` that names the first figure of a run log that no machine could have."""
    for what, small, large in _pairs(run_log):
        for i, (low, high) in enumerate(zip(small, large, strict=True)):
            if low is not None and high is not None and low > high:
                raise ValueError(f"{what}: {low:g} > {high:g} in entry {i}")


def _pairs(run_log: Json) -> Iterator[tuple[str, Iterable[Any], Iterable[Any]]]:
    """What it is about, figures, and what each of them cannot exceed."""
    steps, host, memory, activity = (run_log[key] for key in ("steps", "host", "memory", "activity"))

    def limits(column: list[Any], most: float) -> tuple[list[Any], list[float]]:
        return column, [most] * len(column)

    for series in (memory, activity, steps):
        yield "time goes on", series["times_s"][:-1], series["times_s"][1:]
    yield "host RAM ≤ its total", *limits(memory["host_used_bytes"], host["total_bytes"])
    yield "/dev/shm ≤ its total", *limits(activity["shm_used_bytes"], host["shm_total_bytes"])
    for name in ("cpu_share", "tree_cpu_share", "busiest_core"):
        yield f"{name} ≤ 1", *limits(activity[name], 1)
    for small, large in (
        ("waited_s", "spent_s"), ("audio_s", "padded_s"), ("allocated_bytes", "peak_allocated_bytes"),
        ("allocated_bytes", "reserved_bytes"), ("peak_allocated_bytes", "peak_reserved_bytes"),
    ):  # fmt: skip
        yield f"{small} ≤ {large}", steps[small], steps[large]
    for i, gpu in enumerate(run_log["gpus"]):
        used, rows = memory["gpu_used_bytes"][i], activity["gpus"][i]
        yield f"GPU {i}: memory in use ≤ its total", *limits(used, gpu["total_bytes"])
        mine = [n == i for n in steps["gpu"]]
        reserved = [b for b, is_mine in zip(steps["peak_reserved_bytes"], mine, strict=True) if is_mine]
        yield f"GPU {i}: reserved ≤ its total", *limits(reserved, gpu["total_bytes"])
        for name in ("utilization", "memory_busy"):
            yield f"GPU {i}: {name} ≤ 1", *limits(rows[name], 1)
        yield f"GPU {i}: power ≤ the board's limit", *limits(rows["power_w"], gpu["power_limit_w"])
        yield f"GPU {i}: clock ≤ its highest", *limits(rows["clock_mhz"], gpu["max_clock_mhz"])
        yield f"GPU {i}: out of memory at the limit", *_ran_out(run_log, i, gpu)
    spans = [(a, b) for a, b in pairwise(memory["times_s"])]
    usual = median(b - a for a, b in spans) if spans else 0.0
    slept = [(a, b) for a, b in spans if b - a > 3 * usual + 1]
    within = [at for at in steps["times_s"] if any(a < at < b - 1e-6 for a, b in slept)]
    yield "no step ends while nothing is sampled", *limits([1] * len(within), 0)


def _ran_out(run_log: Json, gpu: int, card: Json) -> tuple[list[float], list[float]]:
    """For each error the least that must have been in use, and what was."""
    memory, most = run_log["memory"], []
    for event in run_log["events"]:
        if event["kind"] == "out_of_memory" and event["gpu"] == gpu:
            before = [
                u for at, u in zip(memory["times_s"], memory["gpu_used_bytes"][gpu], strict=True) if at <= event["at_s"]
            ]
            most.append(max(before[-10:]))
    return [_LIMIT * card["total_bytes"]] * len(most), most
