"""Samplers of other packages and ours, each behind one function, for ``monitor_cost.py`` and ``monitor_spike.py``.

Every function starts sampling in this process and gives a function that stops it and gives what GPU 0 was seen to
use, in bytes, a value for each sample.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Stop = Callable[[], list[float]]


def ours(interval_s: float, library: str) -> Stop:
    from asrconfig_go import MemoryMonitor

    monitor = MemoryMonitor(interval_s * 1000, library_path=library)

    def stop() -> list[float]:
        readings = [float(used or 0) for used in monitor.history().gpus[0].used_bytes]
        monitor.stop()
        return readings

    return stop


def thread(interval_s: float, library: str) -> Stop:
    """A polling thread with nvidia-ml-py, as many people write it."""
    import pynvml

    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    readings: list[float] = []
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(interval_s):
            used = [pynvml.nvmlDeviceGetMemoryInfo(h, version=pynvml.nvmlMemory_v2).used for h in handles]
            readings.append(used[0])

    threading.Thread(target=poll, daemon=True).start()

    def stop() -> list[float]:
        ended.set()
        return readings

    return stop


def nvitop(interval_s: float, library: str) -> Stop:
    """The collector's own thread; its highest value of each collection."""
    from nvitop import Device, ResourceMetricCollector

    readings: list[float] = []
    running = [True]

    def collected(metrics: dict[str, float]) -> bool:
        readings.extend(v * 2**20 for k, v in metrics.items() if k.endswith("gpu:0/memory_used (MiB)/max"))
        return running[0]

    ResourceMetricCollector(Device.all(), interval=interval_s).daemonize(collected, interval=interval_s)

    def stop() -> list[float]:
        running[0] = False
        return readings

    return stop


def wandb(interval_s: float, library: str) -> Stop:
    """W&B's system monitor, offline; its samples stay in its file."""
    import tempfile

    import wandb

    settings = wandb.Settings(x_stats_sampling_interval=interval_s, console="off", silent=True)
    run = wandb.init(mode="offline", dir=tempfile.mkdtemp(), settings=settings)

    def stop() -> list[float]:
        run.finish()
        return []

    return stop


def tracker(interval_s: float, library: str) -> Stop:
    """What the Trainer does with ``skip_memory_metrics=False`` while it trains: a thread that never waits."""
    from transformers.trainer_utils import TrainerMemoryTracker

    watching = TrainerMemoryTracker(skip_memory_metrics=False)

    def train() -> None:  # the tracker goes by the name of its caller
        watching.start()

    train()

    def stop() -> list[float]:
        watching.stop("train")
        return []

    return stop


def nothing(interval_s: float, library: str) -> Stop:
    import asrconfig_go  # noqa: F401 - what the others are compared with: an interpreter that imported a package

    return list


CONTENDERS: dict[str, Callable[[float, str], Stop]] = {
    "nothing": nothing,
    "ours": ours,
    "thread": thread,
    "nvitop": nvitop,
    "wandb": wandb,
    "tracker": tracker,
}


def wait(seconds: float, hold_gil: bool) -> None:
    """Let time pass asleep, or in calls that keep the interpreter's lock for half a second each."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if hold_gil:
            sum(range(25_000_000))
        else:
            time.sleep(min(0.2, seconds))
