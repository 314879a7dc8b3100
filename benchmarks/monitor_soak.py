"""A monitor that runs for hours: memory flat, goroutines flat, no second without a sample.

    python benchmarks/monitor_soak.py [--minutes 120] [--interval-ms 10] [--json]

Samples 8 GPUs of the stand-in driver, whose memory keeps changing, while a training tells of a step every 100 ms
and saves the run log each minute. The first tenth is for warming up: tables that fill are memory that grows, once.
Memory is looked at ten times a second; a save takes some MiB for a while, so that the least of each quarter tells what
stays. Exits with 1 when the least or the most of a quarter is more than 2 MiB above that of the quarter before,
threads were added, or samples stayed away for a second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fake_driver


def resident() -> int:
    """Resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def soak(minutes: float, interval_ms: float, folder: Path) -> dict[str, Any]:
    """Run it and give what was measured."""
    library, control = fake_driver.build(folder)
    os.environ["FAKE_NVML_CONTROL"] = str(control.path)
    from asrconfig_go import MemoryMonitor
    from asrconfig_go._core import native

    end, quarter_s = time.monotonic() + minutes * 60, minutes * 60 * 0.9 / 4
    warm = time.monotonic() + minutes * 60 * 0.1
    quarters: list[list[int]] = []
    goroutines: list[int] = []
    longest, saved = 0.0, time.monotonic()
    with MemoryMonitor(interval_ms, library_path=str(library)) as monitor:
        samples, moved = monitor.read().samples, time.monotonic()
        while (now := time.monotonic()) < end:
            control.put(random.randrange(8), used=random.randrange(1 << 30, 30 << 30))
            monitor.step(audio_s=30.0, longest_s=12.0)
            if (current := monitor.read().samples) != samples:
                samples, moved = current, now
            longest = max(longest, now - moved)
            if now - saved >= 60:
                monitor.save(folder / "run.json")
                saved = now
            if now >= warm + quarter_s * len(quarters):
                quarters.append([])
                goroutines.append(native.call("library.info")["goroutines"])
            if quarters:
                quarters[-1].append(resident())
            time.sleep(0.1)
        goroutines.append(native.call("library.info")["goroutines"])
        run_log = monitor.run_log()
    gaps = [event.text for event in run_log.events if event.kind == "gap"]
    return {
        "minutes": minutes,
        "interval_ms": interval_ms,
        "samples": run_log.samples,
        "expected": round(run_log.duration_s * 1000 / interval_ms),
        "least_rss_mib": [round(min(sizes) / (1 << 20), 2) for sizes in quarters],
        "most_rss_mib": [round(max(sizes) / (1 << 20), 2) for sizes in quarters],
        "threads": threads(),
        "goroutines": goroutines,
        "longest_without_s": round(longest, 3),
        "gaps": gaps,
    }


def failures(record: dict[str, Any]) -> list[str]:
    """What was not flat."""
    wrong = [
        f"the {which} resident memory grew from {a} to {b} MiB"
        for which in ("least", "most")
        for a, b in itertools.pairwise(record[f"{which}_rss_mib"])
        if b - a > 2
    ]
    if max(record["goroutines"]) > min(record["goroutines"]):
        wrong.append(f"goroutines came: {record['goroutines']}")
    return wrong + record["gaps"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--interval-ms", type=float, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = soak(options.minutes, options.interval_ms, Path(folder))
    record["failures"] = failures(record)
    if options.json:
        print(json.dumps(record))
    else:
        for name, value in record.items():
            print(f"{name:20} {value}")
    return 1 if record["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
