"""What watching costs: reads, the sampler's share of a core, memory, and training slowed down; beside other samplers.

    python benchmarks/monitor_cost.py [--seconds 30] [--samplers ours nvitop …] [--pairs 100] [--json FILE]

Every sampler runs in a process of its own that sleeps, on the stand-in driver with 8 GPUs: processor time and
memory are those of the process and what it started, less those of a process that only imported this package.
Anonymous memory leaves out the pages of libraries and other files. Peers that are not installed
are left out. The slow-down is measured in pairs of blocks of the same
training on the CPU, with and without the monitor in turns of random order: the median of the ratios of times, and
the middle of 95 % of medians drawn again.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fake_driver
from monitor_peers import CONTENDERS, wait

ROWS = [
    ("ours", 100),
    ("ours", 10),
    ("thread", 100),
    ("nvitop", 100),
    ("wandb", 15_000),
    ("wandb", 100),
    ("tracker", 0),
]

LOOP = """
#include <stdint.h>
#include <stddef.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
double many(int32_t (*call)(uint64_t, void *, size_t), uint64_t monitor, void *block, size_t size, long n) {
    double start = now();
    for (long i = 0; i < n; i++)
        if (call(monitor, block, size))
            return -1;
    return (now() - start) / n;
}
"""


def tree() -> list[str]:
    """This process and all that it started, as folders of /proc."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[folder.name] = folder.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1]
            except OSError:
                continue
    pids = [str(os.getpid())]
    for pid in pids:
        pids += [child for child, parent in parents.items() if parent == pid]
    return pids


def used() -> tuple[float, int, int]:
    """Processor seconds, resident bytes and those of them that are no pages of a file, of the tree so far."""
    ticks = resident = anonymous = 0
    for pid in tree():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            sizes = dict(line.split(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
        except OSError:
            continue
        ticks += int(stat[11]) + int(stat[12])
        resident += kibibytes(sizes["Rss"])
        anonymous += kibibytes(sizes["Anonymous"])
    return ticks / os.sysconf("SC_CLK_TCK"), resident, anonymous


def kibibytes(size: str) -> int:
    """Bytes of a line of smaps."""
    return int(size.removesuffix("kB")) * 1024


def child(name: str, interval_s: float, library: str, seconds: float) -> None:
    """Sample for a while and print the share of a core and the resident memory."""
    import asrconfig_go  # noqa: F401 - everyone's memory is compared with a process that did only this

    stop = CONTENDERS[name](interval_s, library)
    wait(5, hold_gil=False)
    (before, *_), start = used(), time.monotonic()
    wait(seconds, hold_gil=False)
    after, *memory = used()
    print(json.dumps([(after - before) / (time.monotonic() - start), *memory]), flush=True)
    stop()
    os._exit(0)  # without waiting for what a peer does when the interpreter ends


def contender(name: str, interval_ms: float, seconds: float, folder: Path) -> list[float] | None:
    library, control = fake_driver.build(folder)
    command = [sys.executable, __file__, "--child", name, str(interval_ms / 1000), str(library), str(seconds)]
    done = subprocess.run(
        command, env=fake_driver.environment(library, control), capture_output=True, text=True, timeout=seconds + 120
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    return json.loads(lines[-1]) if lines else None


def calls(folder: Path) -> dict[str, float]:
    """Microseconds of the calls around JSON, from C and through ctypes."""
    from asrconfig_go import MemoryMonitor
    from asrconfig_go._core import native

    library, control = fake_driver.build(folder)
    os.environ["FAKE_NVML_CONTROL"] = str(control.path)
    source, loop = folder / "loop.c", folder / "loop.so"
    source.write_text(LOOP)
    compiler = shutil.which("cc") or "gcc"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(loop), str(source)], check=True, timeout=60)
    many = ctypes.CDLL(str(loop)).many
    many.restype = ctypes.c_double
    with MemoryMonitor(100, library_path=str(library)) as monitor:
        monitor.step()
        core = native._load()

        def from_c(function: Any, block: Any) -> float:
            n, size = ctypes.c_long(20_000), ctypes.c_size_t(ctypes.sizeof(block))
            address = ctypes.cast(function, ctypes.c_void_p)
            return statistics.median(
                many(address, ctypes.c_uint64(monitor._handle), ctypes.byref(block), size, n) for _ in range(15)
            )

        def from_python(call: Any) -> float:
            rounds = []
            for _ in range(15):
                start = time.perf_counter()
                for _ in range(10_000):
                    call()
                rounds.append((time.perf_counter() - start) / 10_000)
            return statistics.median(rounds)

        return {
            "ac_stats_read from C": from_c(core.ac_stats_read, monitor._stats) * 1e6,
            "ac_stats_read through ctypes": from_python(monitor._refresh) * 1e6,
            "ac_step_put from C": from_c(core.ac_step_put, monitor._step) * 1e6,
            "ac_step_put through ctypes": from_python(monitor._put) * 1e6,
            "MemoryMonitor.step": from_python(monitor.step) * 1e6,
        }


def slow_down(pairs: int, folder: Path) -> dict[str, Any]:
    """How much longer a block of training takes beside a monitor at 100 ms that it tells of every step."""
    import torch

    from asrconfig_go import MemoryMonitor

    library, control = fake_driver.build(folder)
    os.environ["FAKE_NVML_CONTROL"] = str(control.path)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 1024))
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(128, 1024)

    def block(monitor: MemoryMonitor | None) -> tuple[float, float]:
        start, cpu = time.perf_counter(), time.thread_time()
        for _ in range(6):
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if monitor is not None:
                monitor.step()
        return time.perf_counter() - start, time.thread_time() - cpu

    ratios: tuple[list[float], list[float]] = ([], [])
    block(None)
    for _ in range(pairs):
        times = {}
        for watched in random.sample([True, False], k=2):
            if watched:
                with MemoryMonitor(100, library_path=str(library)) as monitor:
                    times[watched] = block(monitor)
            else:
                times[watched] = block(None)
        for kind, beside, alone in zip(ratios, times[True], times[False], strict=True):
            kind.append(beside / alone)
    return {"pairs": pairs, "time_percent": middle(ratios[0]), "cpu_time_percent": middle(ratios[1])}


def middle(ratios: list[float]) -> list[float]:
    """The median in percent above 1, and where 95 % of medians of as many drawn again lie."""
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    return [round(100 * (value - 1), 3) for value in (statistics.median(ratios), medians[50], medians[1949])]


def samplers(names: list[str] | None, seconds: float, folder: Path) -> dict[str, dict[str, float] | None]:
    """What each costs beyond a process that samples nothing; None of one that is not installed."""
    idle = contender("nothing", 0, 5, folder) or [0, 0, 0]
    costs: dict[str, dict[str, float] | None] = {}
    for name, interval_ms in ROWS:
        if names and name not in names:
            continue
        cost = contender(name, interval_ms, seconds, folder)
        beyond = None
        if cost:
            share, resident, anonymous = (a - b for a, b in zip(cost, idle, strict=True))
            beyond = {"percent_of_a_core": 100 * share, "mib": resident / 2**20, "anonymous_mib": anonymous / 2**20}
        costs[f"{name} {interval_ms} ms"] = beyond
        print(name, interval_ms, beyond, flush=True)
    return costs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--samplers", nargs="+", choices=sorted({name for name, _ in ROWS}), metavar="NAME")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, interval_s, library, seconds = options.child
        child(name, float(interval_s), library, float(seconds))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        record: dict[str, Any] = {
            "calls_us": calls(Path(folder)),
            "samplers": samplers(options.samplers, options.seconds, Path(folder)),
            "slow_down": slow_down(options.pairs, Path(folder)) if options.pairs else None,
        }
    print(*record["calls_us"].items(), record["slow_down"], sep="\n")
    if options.json:
        options.json.write_text(json.dumps(record, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
