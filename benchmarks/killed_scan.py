"""A scan with its cache, killed at a random moment again and again; then a scan that must be right, and a quick one.

    python benchmarks/make_audio_corpus.py FOLDER --only speed
    python benchmarks/killed_scan.py FOLDER/speed [--kills 20]

Each round starts with an empty cache and kills two scans of the same folder at once, at different moments, by SIGKILL.
Then every duration of a scan with what is left of the cache is compared with a scan without any.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

import asrconfig_go

SCAN = "import sys, asrconfig_go; print('ready', flush=True); asrconfig_go.scan_audio(sys.argv[1], progress=False)"


def durations(folder: Path, cache: bool) -> tuple[array[float], float]:
    """Every duration, and the seconds that the scan took."""
    start = time.perf_counter()
    scan = asrconfig_go.scan_audio(folder, cache=cache, progress=False)
    return scan.durations, time.perf_counter() - start


def start_scan(folder: Path) -> subprocess.Popen[str]:
    """A scan in a process of its own, just before it begins."""
    process = subprocess.Popen([sys.executable, "-c", SCAN, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def kill_two(folder: Path, longest: float, chance: random.Random) -> int:
    """Start two scans, kill both, and say how many were still running then."""
    scans = [start_scan(folder), start_scan(folder)]
    for process in scans:
        time.sleep(chance.uniform(0, longest))
        process.kill()
    return sum(process.wait() == -9 for process in scans)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    truth, _ = durations(arguments.folder, cache=False)
    _, uncached_s = durations(arguments.folder, cache=False)  # now that its files are in memory
    killed, resumed, wrong, again = 0, [], 0, []
    chance = random.Random(11)
    for _ in range(arguments.kills):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["ASRCONFIG_CACHE"] = cache
            killed += kill_two(arguments.folder, uncached_s, chance)
            first, seconds = durations(arguments.folder, cache=True)
            resumed.append(seconds)
            second, seconds = durations(arguments.folder, cache=True)
            again.append(seconds)
            wrong += first != truth or second != truth
    print(
        f"{len(truth)} files, {killed} of {2 * arguments.kills} scans killed while they ran, {wrong} wrong after that"
    )
    after = f"{min(resumed):.2f}–{max(resumed):.2f} after kills, then {min(again):.2f}"
    print(f"seconds: {uncached_s:.2f} without cache, {after}")
    if wrong or not killed:
        sys.exit("no scan may be wrong, and some must have been killed")


if __name__ == "__main__":
    main()
