"""Which samplers see a short rise of GPU memory while Python is busy holding the interpreter's lock?

    python benchmarks/monitor_spike.py [--spikes 40] [--ms 50] [--asleep] [--json FILE]

Another process lets GPU 0 of the stand-in driver use more for a moment, each time a different amount, about once a
second; meanwhile the sampler's process runs calls that keep the lock for about half a second each, as reading a
large file with ``json`` does. A spike is seen when one of the samples has its amount.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fake_driver
from monitor_peers import CONTENDERS, wait

ROWS = [("ours", 10), ("ours", 100), ("thread", 10), ("thread", 100), ("nvitop", 100)]


def amount(spike: int) -> int:
    """Bytes of a spike: no two are alike."""
    return (20 << 30) + (spike << 20)


def child(name: str, interval_s: float, library: str, asleep: bool) -> None:
    """Sample until a line comes, and print what was seen."""
    stop = CONTENDERS[name](interval_s, library)
    print("ready", flush=True)
    wait(float(sys.stdin.readline()), hold_gil=not asleep)
    print(json.dumps(sorted(set(stop()))), flush=True)


def seen(name: str, interval_ms: float, spikes: int, ms: float, folder: Path, asleep: bool = False) -> int:
    """How many of the spikes one sampler saw."""
    library, control = fake_driver.build(folder)
    command = [sys.executable, __file__, "--child", name, str(interval_ms / 1000), str(library)]
    command += ["--asleep"] * asleep
    environment = fake_driver.environment(library, control)
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        while process.stdout.readline().strip() != "ready":
            if process.poll() is not None:
                raise SystemExit(f"{name} did not start")
        process.stdin.write(f"{spikes * 1.1 + 1}\n")
        process.stdin.flush()
        time.sleep(0.5)
        for spike in range(spikes):
            time.sleep(random.uniform(0.5, 1.5) - ms / 1000)
            control.put(0, used=amount(spike))
            time.sleep(ms / 1000)
            control.put(0, used=2 << 30)
        kinds = set(json.loads(process.stdout.readlines()[-1]))
    tolerance = 1 << 18  # nvitop gives MiB
    return sum(any(abs(value - amount(spike)) < tolerance for value in kinds) for spike in range(spikes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spikes", type=int, default=40)
    parser.add_argument("--ms", type=float, default=50)
    parser.add_argument("--asleep", action="store_true", help="Python sleeps instead of holding its lock")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], float(options.child[1]), options.child[2], options.asleep)
        return 0
    rows: list[dict[str, Any]] = []
    for name, interval_ms in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            count = seen(name, interval_ms, options.spikes, options.ms, Path(folder), options.asleep)
        rows.append({"sampler": name, "interval_ms": interval_ms, "seen": count, "spikes": options.spikes})
        print(f"{name:8} every {interval_ms:4} ms: {count} of {options.spikes} spikes of {options.ms:g} ms", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
