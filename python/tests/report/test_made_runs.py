"""The runs that galleries and guides show are possible, and the check of that finds what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from made_runs import trained
from possible_runs import check_possible
from run_logs import GIB, Json


def put(series: str, column: str, value: float) -> Callable[[Json], None]:
    def change(run_log: Json) -> None:
        run_log[series][column][-1] = value

    return change


def put_gpu(column: str, value: float) -> Callable[[Json], None]:
    def change(run_log: Json) -> None:
        run_log["activity"]["gpus"][0][column][-1] = value

    return change


def fill(run_log: Json, gib: float) -> None:
    used = run_log["memory"]["gpu_used_bytes"][0]
    used[:] = [gib * GIB] * len(used)


def step_within_the_gap(run_log: Json) -> None:
    times: list[Any] = run_log["steps"]["times_s"]
    after = next(i for i, at in enumerate(times) if at > 0.65 * run_log["duration_s"])
    times[after] = 0.635 * run_log["duration_s"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: fill(r, 24.1), "GPU 0: memory in use ≤ its total"),
        (lambda r: fill(r, 20), "GPU 0: out of memory at the limit"),
        (put("steps", "peak_reserved_bytes", 26 * GIB), "GPU 0: reserved ≤ its total"),
        (put("steps", "allocated_bytes", 25 * GIB), "allocated_bytes ≤ peak_allocated_bytes"),
        (put("steps", "reserved_bytes", GIB), "allocated_bytes ≤ reserved_bytes"),
        (put("steps", "peak_reserved_bytes", GIB), "peak_allocated_bytes ≤ peak_reserved_bytes"),
        (put("steps", "waited_s", 1e3), "waited_s ≤ spent_s"),
        (put("steps", "audio_s", 1e5), "audio_s ≤ padded_s"),
        (put_gpu("utilization", 1.01), "GPU 0: utilization ≤ 1"),
        (put_gpu("power_w", 73), "GPU 0: power ≤ the board's limit"),
        (put_gpu("clock_mhz", 2100), "GPU 0: clock ≤ its highest"),
        (put("memory", "host_used_bytes", 33 * GIB), "host RAM ≤ its total"),
        (put("activity", "shm_used_bytes", 17 * GIB), "/dev/shm ≤ its total"),
        (put("activity", "cpu_share", 1.2), "cpu_share ≤ 1"),
        (put("memory", "times_s", 0), "time goes on"),
        (step_within_the_gap, "no step ends while nothing is sampled"),
    ],
)
def test_what_no_machine_can_do_is_found(change: Callable[[Json], None], words: str) -> None:
    run_log = trained(seconds=600, points=300, rows=200, steps=200)
    change(run_log)
    with pytest.raises(ValueError, match=words):
        check_possible(run_log)
