"""Speed of the scan over mixed files and over plain WAV, beside other readers and the least that can be done.

    python benchmarks/make_audio_corpus.py FOLDER --only speed even
    python benchmarks/scan_speed.py FOLDER/speed [--repeats 5] [--skip-memory]
    python benchmarks/scan_speed.py FOLDER/even --skip-memory

Every reader gets the same list of paths, in a random order for all, the cache of files warm. Ours is scan_audio without
its cache and with two workers; the others run in two processes that have started and imported before. The floor opens,
stats, reads 4 KiB of and closes every file, in two threads. One round measures each in turn; medians over the rounds
are compared. CPU time is of all threads and processes: it says more than the clock where other programs run beside.
Memory is that of processes of their own which scan lists of different lengths.
"""

from __future__ import annotations

import argparse
import inspect
import json
import multiprocessing
import multiprocessing.pool
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from audio_peers import total

import asrconfig_go

PEERS = ("tinytag", "mutagen", "mutagen typed", "soundfile")
CHUNK = 250  # files a process takes at a time
WORKERS = 2
FLOOR, OURS = "floor: open, fstat, read 4 KiB, close", "scan_audio of the list"
AIMS = {
    "mix": ((8, "tinytag"), (8, "mutagen"), (15, "soundfile")),
    "even mix": ((3.5, "tinytag"),),
    "plain WAV": ((4, "tinytag"),),
}
FLOOR_AIMS = {"mix": 1.35, "even mix": 2.0, "plain WAV": 1.3}
MEMORY_AIM = 200  # bytes a file, without its path
UNCACHED = {"cache": False} if "cache" in inspect.signature(asrconfig_go.scan_audio).parameters else {}


class Took(NamedTuple):
    """One measurement."""

    seconds: float
    cpu: float
    hours: float = 0.0  # of audio found
    failed: int = 0


Run = Callable[[], Took]


def run_ours(source: Any, progress: bool = False) -> Took:
    start, cpu = time.perf_counter(), time.process_time()
    found = asrconfig_go.scan_audio(source, workers=WORKERS, progress=progress, **UNCACHED).profile
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return Took(seconds, cpu, found.total_hours, len(found.bad_files))


def run_peer(pool: multiprocessing.pool.Pool, reader: str, paths: list[str]) -> Took:
    start = time.perf_counter()
    jobs = [(reader, paths[n : n + CHUNK]) for n in range(0, len(paths), CHUNK)]
    parts = list(pool.imap_unordered(total, jobs))
    seconds, (hours, failed, cpu) = time.perf_counter() - start, map(sum, zip(*parts, strict=True))
    return Took(seconds, cpu, hours / 3600, failed)


def run_floor(program: Path, paths: list[str]) -> Took:
    names = "\n".join(paths)
    done = subprocess.run([program, "-workers", str(WORKERS)], input=names, capture_output=True, text=True, check=True)
    seconds, cpu, _ = map(float, done.stdout.split())
    return Took(seconds, cpu)


def rounds(runs: dict[str, Run], repeats: int) -> dict[str, Took]:
    """Medians of each, measured in turn; the first round only warms."""
    taken: dict[str, list[Took]] = {name: [] for name in runs}
    for number in range(repeats + 1):
        for name, run in runs.items():
            took = run()
            if number:
                taken[name].append(took)
    return {name: Took(*map(statistics.median, zip(*all_of_it, strict=True))) for name, all_of_it in taken.items()}


def show(title: str, files: int, true_hours: float, results: dict[str, Took]) -> None:
    ours, floor = results[OURS], results[FLOOR]
    print(f"\n{title}: {files} files, {true_hours:.2f} h\n")
    print("| reader | seconds | files/s | × ours | CPU µs a file | × ours | hours found | failed |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, took in sorted(results.items(), key=lambda item: item[1]):
        cells = [f"{took.seconds:.3f}", f"{files / took.seconds:,.0f}", f"{took.seconds / ours.seconds:.2f}"]
        cells += [f"{took.cpu / files * 1e6:.1f}", f"{took.cpu / ours.cpu:.2f}"]
        cells += [f"{took.hours:.2f}" if took.hours else "–", f"{took.failed:.0f}"]
        print(f"| {name} | {' | '.join(cells)} |")
    print()
    for factor, peer in AIMS[title]:
        best = min(took.seconds for name, took in results.items() if name.startswith(peer))
        ratio = best / ours.seconds
        print(f"{ratio:.1f} times as fast as {peer} in two processes, aim {factor}: {verdict(ratio >= factor)}")
    aim = FLOOR_AIMS[title]
    ratio, by_cpu = ours.seconds / floor.seconds, ours.cpu / floor.cpu
    print(f"{ratio:.2f} times the floor, aim {aim}: {verdict(ratio <= aim)}; by CPU time {by_cpu:.2f}")


def verdict(good: bool) -> str:
    return "reached" if good else "MISSED"


def measure(folder: Path, program: Path, repeats: int) -> None:
    truth = json.loads((folder / "seconds.json").read_text())
    sets = {
        "even mix" if folder.name == "even" else "mix": ("", list(truth)),
        "plain WAV": ("wav/plain", [n for n in truth if n.startswith("wav/plain/")]),
    }
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        for title, (below, names) in sets.items():
            paths = [str(folder / name) for name in names]
            random.Random(3).shuffle(paths)
            runs: dict[str, Run] = {
                FLOOR: partial(run_floor, program, paths),
                OURS: partial(run_ours, paths),
                "scan_audio of the list, progress bar": partial(run_ours, paths, progress=True),
                "scan_audio of the folder": partial(run_ours, folder / below),
            }
            runs |= {f"{peer} ×{WORKERS}": partial(run_peer, pool, peer, paths) for peer in PEERS}
            show(title, len(paths), sum(truth[n] for n in names) / 3600, rounds(runs, repeats))


def peak_bytes(list_file: Path, copies: int) -> tuple[int, int]:
    """Peak and lasting memory of a process that scans a list several times over, result kept."""
    command = [sys.executable, __file__, str(list_file), "--peak", str(copies)]
    peak, kept = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(peak), int(kept)


def print_peak(list_file: Path, copies: int) -> None:
    """In the process that is measured: what the scan added at its peak, and what stays with the result."""
    paths = [path for _ in range(copies) for path in list_file.read_text().split("\n")]
    run_ours(paths[:100])
    before = memory()[1]
    result = asrconfig_go.scan_audio(paths, workers=WORKERS, progress=False, **UNCACHED)
    peak, now = memory()
    print(peak - before, now - before)
    del result


def memory() -> tuple[int, int]:
    """Peak and present resident bytes."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(fields["VmHWM"].split()[0]) << 10, int(fields["VmRSS"].split()[0]) << 10


def show_memory(folder: Path, scratch: Path) -> None:
    names = [str(folder / name) for name in json.loads((folder / "seconds.json").read_text())]
    listed = scratch / "names"
    listed.write_text("\n".join(names))
    few, many = 3, 28
    (peak_few, kept_few), (peak_many, kept_many) = peak_bytes(listed, few), peak_bytes(listed, many)
    files, path = (many - few) * len(names), statistics.mean(map(len, names))
    print(f"\nmemory, {few * len(names):,} against {many * len(names):,} paths of {path:.0f} bytes on average:")
    for what, more in (("at the peak", peak_many - peak_few), ("kept with the result", kept_many - kept_few)):
        beyond = more / files - path
        told = verdict(beyond <= MEMORY_AIM)
        print(f"{more / files:.0f} bytes a file {what}, {beyond:.0f} beyond its path, aim {MEMORY_AIM}: {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the speed corpus")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--skip-memory", action="store_true")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print_peak(arguments.folder, arguments.peak)
        return
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch, "scan_floor")
        root = Path(__file__).resolve().parent
        subprocess.run(["go", "build", "-o", str(program), "./scan_floor"], cwd=root, check=True)
        measure(arguments.folder, program, arguments.repeats)
        if not arguments.skip_memory:
            show_memory(arguments.folder, Path(scratch))


if __name__ == "__main__":
    main()
