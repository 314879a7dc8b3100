"""What watching memory costs: one read, the callback's share of a step, and the sampler's share of a core.

    python benchmarks/callback_cost.py [--seconds 20] [--json]

Every figure stands beside its aim and the ratio of the two; under 1 is reached. The Trainer's part needs transformers;
without it that figure is left out and said so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from asrconfig_go import MemoryMonitor

STEP_SECONDS = 0.1  # of the training step that the callback's share is of


def median_cost(action: Callable[[], Any], repeats: int = 200, calls: int = 500) -> float:
    """Seconds a call: the median over ``repeats`` rounds of ``calls`` calls, the empty loop taken off."""

    def timed(run: Callable[[], Any]) -> float:
        rounds = []
        for _ in range(repeats):
            start = time.perf_counter()
            for _ in range(calls):
                run()
            rounds.append((time.perf_counter() - start) / calls)
        return statistics.median(rounds)

    return timed(action) - timed(lambda: None)


def cpu_seconds() -> float:
    """CPU time of this process, all its threads included."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def sampler_share(interval_ms: float, seconds: float) -> tuple[float, int]:
    """The share of one core that a monitor takes while Python sleeps, and its samples."""
    with MemoryMonitor(interval_ms) as monitor:
        time.sleep(1)  # past the start
        before, samples, start = cpu_seconds(), monitor.read().samples, time.perf_counter()
        time.sleep(seconds)
        taken = time.perf_counter() - start
        return (cpu_seconds() - before) / taken, monitor.read().samples - samples


def callback_cost() -> float | None:
    """Seconds a step of the callback's ``on_step_end``, as the Trainer calls it; None without transformers."""
    try:
        from asrconfig_go import AdaptiveMemoryCallback
    except ImportError:
        return None
    from types import SimpleNamespace

    state = SimpleNamespace(is_local_process_zero=True, is_world_process_zero=True)
    with AdaptiveMemoryCallback() as callback:
        callback.on_train_begin(None, state, None)
        return median_cost(lambda: callback.on_step_end(None, state, None, model=None, optimizer=None))


def measure(seconds: float) -> list[dict[str, Any]]:
    """Every figure with its unit and aim; ``value`` is None where it could not be measured."""
    with MemoryMonitor() as monitor:
        stats = median_cost(monitor._refresh)
        share = median_cost(monitor.gpu_fraction if monitor.gpu_names else monitor.host_fraction)
        whole = median_cost(monitor.read, calls=100)
    step = callback_cost()
    cpu, samples = sampler_share(100, seconds)
    rows = [
        ("stats read (library call)", stats * 1e6, "us", 2.0),
        ("read of the fullest share", share * 1e6, "us", None),
        ("read of a whole snapshot", whole * 1e6, "us", None),
        ("callback per step", None if step is None else step * 1e6, "us", STEP_SECONDS * 0.001 * 1e6),
        ("callback, share of a 100 ms step", None if step is None else step / STEP_SECONDS * 100, "%", 0.1),
        (f"sampler at 100 ms, share of a core ({samples} samples)", cpu * 100, "%", 0.5),
    ]
    return [{"what": what, "value": value, "unit": unit, "aim": aim} for what, value, unit, aim in rows]


def printed(row: dict[str, Any]) -> str:
    """One row for people."""
    if row["value"] is None:
        return f"{row['what']:<52} not measured: transformers is not installed"
    text = f"{row['what']:<52} {row['value']:>9.3f} {row['unit']:<2}"
    return (
        text
        if row["aim"] is None
        else f"{text}   aim {row['aim']:g} {row['unit']}, ratio {row['value'] / row['aim']:.3f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="What watching memory costs.")
    parser.add_argument("--seconds", type=float, default=20, help="length of the sampler's measurement, at least 10")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    rows = measure(max(10.0, arguments.seconds))
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    if arguments.json:
        print(json.dumps({"machine": machine, "figures": rows}, indent=2))
    else:
        print(machine, *map(printed, rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
