"""What watching memory costs: one read, the callback's share of a step, and the sampler's share of a core.

    python benchmarks/callback_cost.py [--seconds 20] [--json FILE]

Every figure stands beside its aim and the ratio of the two; under 1 is reached. The callback watches the two T4 of the
tests' fake driver; PyTorch's counters, which a step reads where CUDA is used, are not in its figure. The Trainer's part
needs transformers; without it that figure is left out and said so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asrconfig_go import MemoryMonitor


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
        elapsed = time.perf_counter() - start
        return (cpu_seconds() - before) / elapsed, monitor.read().samples - samples


def fake_driver(folder: Path, machine: str = "TWO_T4") -> str:
    """The tests' stand-in for NVIDIA's driver, compiled; "" without a C compiler."""
    source = Path(__file__).resolve().parents[1] / "core/hardware/testdata/fake_nvml.c"
    made, compiler = folder / "libnvidia-ml.so.1", shutil.which("cc")
    if compiler is None:
        return ""
    subprocess.run([compiler, "-shared", "-fPIC", f"-DMACHINE_{machine}", "-o", made, source], check=True)
    return str(made)


def callback_cost(driver: str) -> list[tuple[str, float, str, float | None]]:
    """Rows of the callback's costs, as the Trainer calls it; none without torch and transformers."""
    try:
        import torch
        from transformers.trainer_callback import TrainerState
    except ImportError:
        return []
    from asrconfig_go import AdaptiveMemoryCallback
    from asrconfig_go.watch.batch_shapes import BatchShapes, LoaderWait
    from asrconfig_go.watch.display import Panel

    state = TrainerState(global_step=5, max_steps=10**6, is_local_process_zero=True, is_world_process_zero=True)
    mask = torch.ones(8, 160_000, dtype=torch.long)
    batch = {"input_values": torch.zeros(8, 160_000), "attention_mask": mask.to("meta")}  # as on a GPU: not read
    in_host_memory = {**batch, "attention_mask": mask}
    model = torch.nn.Linear(1, 1)
    with AdaptiveMemoryCallback(monitor=lambda: MemoryMonitor(library_path=driver), run_file=False) as callback:
        callback.on_train_begin(None, state, None)
        watch = callback._watch
        assert watch is not None
        inputs, wait = BatchShapes(model), LoaderWait()
        watch.follow(wait, inputs)
        watch.panel = None

        def step() -> None:
            wait.on_step_begin(None, state, None, model=None, optimizer=None)
            inputs._look(model, (), batch)
            callback.on_step_end(None, state, None, model=None, optimizer=None)
            wait.on_step_end(None, state, None, model=None, optimizer=None)

        costs = [("callback: all events of a step", median_cost(step) * 1e6, "us", 20.0)]
        step_us = median_cost(lambda: watch.monitor.step(5)) * 1e6
        costs.append(("  of which telling the monitor", step_us, "us", None))
        look = median_cost(lambda: inputs._look(model, (), batch)) * 1e6
        costs.append(("  of which looking at the batch's shapes", look, "us", None))
        masked = median_cost(lambda: inputs._look(model, (), in_host_memory)) * 1e6
        costs.append(("reading lengths from a mask in host memory, more", masked - look, "us", None))
        costs.append(("scalars, with each log", median_cost(watch.scalars, 50, 20) * 1e6, "us", None))
        watch.panel = Panel(lambda *_, **__: Drawn())
        display_us = median_cost(lambda: watch._show(5, 10**6, 1e9), 50, 20)
        costs.append(("notebook's panel, at most once a second", display_us * 1e6, "us", None))
        with tempfile.TemporaryDirectory() as folder:
            saved = median_cost(lambda: watch.monitor.save(Path(folder) / "run.json"), 20, 1)
        costs.append(("the run's file, once a minute", saved * 1e6, "us", None))
    return [(label, value, unit, aim) for label, value, unit, aim in costs]


class Drawn:
    """What a notebook's display gives; drawing it is the browser's."""

    def update(self, content: Any, raw: bool) -> None:
        """Nothing."""


def measure(seconds: float) -> list[dict[str, Any]]:
    """Every figure with its unit and aim; ``value`` is None where it could not be measured."""
    with MemoryMonitor() as monitor:
        stats = median_cost(monitor._refresh)
        check = median_cost(monitor.check, calls=100)
        read_s = median_cost(monitor.read, calls=100)
    with tempfile.TemporaryDirectory() as folder:
        driver = fake_driver(Path(folder))
        steps = callback_cost(driver)
    cpu, samples = sampler_share(100, seconds)
    rows = [
        ("stats read (library call)", stats * 1e6, "us", 1.0),
        ("check of memory and alerts", check * 1e6, "us", None),
        ("read of a whole snapshot", read_s * 1e6, "us", None),
        *(steps or [("callback: all events of a step", None, "us", 20.0)]),
        (f"sampler at 100 ms, share of a core ({samples} samples)", cpu * 100, "%", 0.3),
    ]
    return [{"what": label, "value": value, "unit": unit, "aim": aim} for label, value, unit, aim in rows]


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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    arguments = parser.parse_args()
    rows = measure(max(10.0, arguments.seconds))
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    print(machine, *map(printed, rows), sep="\n")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "figures": rows}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
