"""Speed of the scan over mixed files and over plain WAV, beside other readers and the least that can be done.

    python benchmarks/make_audio_corpus.py FOLDER --only speed even
    python benchmarks/scan_speed.py FOLDER/speed [--repeats 5] [--skip-memory]
    python benchmarks/scan_speed.py FOLDER/even --skip-memory

Every reader gets the same list of paths, in a random order for all, the cache of files warm. Ours is scan_audio without
its cache and with two workers; the others run in two processes that have started, imported and read all files before,
and get half of the list each. The floor opens, stats, reads 4 KiB of and closes every file, in two threads. One round
measures each in turn; medians over the rounds are compared. The set even has as many files of 1 to 8 s in each of four
formats. CPU time is of all threads and processes: it says more than the clock where other programs run beside. Memory
is that of processes of their own which scan lists of different lengths. A reader that is not installed, or reads none
of the files, is left out and named at the end: its aim is not measured, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
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

from audio_peers import read, total

import asrconfig_go

PEERS = ("tinytag", "mutagen", "mutagen typed", "soundfile")
_TRIED = 250  # files that a peer is tried with
WORKERS = 2
FLOOR, OURS = "floor: open, fstat, read 4 KiB, close", "scan_audio of the list"
AIMS: dict[str, dict[str, float]] = {  # how many times faster than a peer
    "mix": {"tinytag": 6.5, "mutagen": 8, "soundfile": 15},
    "even mix": {"tinytag": 3.5},
    "plain WAV": {"tinytag": 4},
}
FLOOR_AIMS = {"mix": 1.8, "even mix": 2.0, "plain WAV": 1.3}  # how many times the seconds of the floor
MEMORY_AIM = 200  # bytes a file, without its path


class Took(NamedTuple):
    """One measurement."""

    seconds: float
    cpu: float
    hours: float = 0.0  # of audio found
    failed: int = 0


Run = Callable[[], Took]


def run_ours(source: Any, progress: bool = False) -> Took:
    start, cpu = time.perf_counter(), time.process_time()
    profile = asrconfig_go.scan_audio(source, workers=WORKERS, progress=progress, cache=False).profile
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return Took(seconds, cpu, profile.total_hours, len(profile.bad_files))


def run_peer(pool: multiprocessing.pool.Pool, reader: str, paths: list[str]) -> Took:
    start = time.perf_counter()
    parts = pool.map(total, [(reader, paths[place::WORKERS]) for place in range(WORKERS)], chunksize=1)
    seconds, (hours, failed, cpu) = time.perf_counter() - start, map(sum, zip(*parts, strict=True))
    return Took(seconds, cpu, hours / 3600, failed)


def run_floor(program: Path, paths: list[str]) -> Took:
    names = "\n".join(paths)
    done = subprocess.run([program, "-workers", str(WORKERS)], input=names, capture_output=True, text=True, check=True)
    seconds, cpu, _ = map(float, done.stdout.split())
    return Took(seconds, cpu)


def rounds(runs: dict[str, Run], repeats: int) -> dict[str, Took]:
    """Medians of each, measured in turn; the first round only warms."""
    times: dict[str, list[Took]] = {name: [] for name in runs}
    for number in range(repeats + 1):
        for name, run in runs.items():
            took = run()
            if number:
                times[name].append(took)
    return {name: Took(*map(statistics.median, zip(*all_of_it, strict=True))) for name, all_of_it in times.items()}


def compared(title: str, results: dict[str, Took]) -> list[dict[str, Any]]:
    """Every aim, and what was measured: None beside a peer that was left out."""
    ours = results[OURS].seconds
    rows: list[dict[str, Any]] = []
    for peer, aim in AIMS[title].items():
        quickest = min((took.seconds for name, took in results.items() if name.startswith(peer)), default=None)
        rows.append({"beside": peer, "at_least": aim, "measured": quickest and quickest / ours})
    return [*rows, {"beside": "floor", "at_most": FLOOR_AIMS[title], "measured": ours / results[FLOOR].seconds}]


def show(record: dict[str, Any]) -> None:
    results, files = {name: Took(**took) for name, took in record["readers"].items()}, record["files"]
    ours, floor = results[OURS], results[FLOOR]
    print(f"\n{record['title']}: {files} files, {record['hours']:.2f} h\n")
    print("| reader | seconds | files/s | × ours | CPU µs a file | × ours | hours found | failed |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, took in sorted(results.items(), key=lambda item: item[1]):
        cells = [f"{took.seconds:.3f}", f"{files / took.seconds:,.0f}", f"{took.seconds / ours.seconds:.2f}"]
        cells += [f"{took.cpu / files * 1e6:.1f}", f"{took.cpu / ours.cpu:.2f}"]
        cells += [f"{took.hours:.2f}" if took.hours else "–", f"{took.failed:.0f}"]
        print(f"| {name} | {' | '.join(cells)} |")
    print()
    for aim in record["aims"]:
        print(told(**aim))
    print(f"{ours.cpu / floor.cpu:.2f} times the floor's CPU time")


def told(beside: str, measured: float | None, at_least: float = 0, at_most: float = math.inf) -> str:
    unit = "times the floor's time" if beside == "floor" else f"times as fast as {beside} in two processes"
    aim = f"aim {at_least or at_most}"
    if measured is None:
        return f"{unit}, {aim}: not measured"
    return f"{measured:.2f} {unit}, {aim}: {verdict(at_least <= measured <= at_most)}"


def verdict(good: bool) -> str:
    return "reached" if good else "MISSED"


def unusable(peer: str, paths: list[str]) -> str:
    """Why a peer cannot be compared with, or nothing."""
    package = peer.split()[0]
    if importlib.util.find_spec(package) is None:
        return f"not installed: pip install {package}"
    answers = [read(peer, path) for path in paths[:_TRIED]]
    if any(isinstance(answer, float) for answer in answers):
        return ""
    return f"reads none of {len(answers)} files: {answers[0]}"


def measure(folder: Path, program: Path, repeats: int) -> dict[str, Any]:
    truth = json.loads((folder / "seconds.json").read_text())
    sets = {
        "even mix" if folder.name == "even" else "mix": ("", list(truth)),
        "plain WAV": ("wav/plain", [n for n in truth if n.startswith("wav/plain/")]),
    }
    record: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0], "sets": [], "left_out": {}}
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
            record["left_out"] |= {peer: reason for peer in PEERS if (reason := unusable(peer, paths))}
            peers = [peer for peer in PEERS if peer not in record["left_out"]]
            runs |= {f"{peer} ×{WORKERS}": partial(run_peer, pool, peer, paths) for peer in peers}
            results, hours = rounds(runs, repeats), sum(truth[n] for n in names) / 3600
            readers = {name: took._asdict() for name, took in results.items()}
            row = {"title": title, "files": len(paths), "hours": hours, "readers": readers}
            record["sets"].append(row | {"aims": compared(title, results)})
    return record


def peak_bytes(list_file: Path, copies: int) -> tuple[int, int]:
    """Peak and lasting memory of a process that scans a list several times over, result kept."""
    command = [sys.executable, __file__, str(list_file), "--peak", str(copies)]
    peak, retained = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(peak), int(retained)


def print_peak(list_file: Path, copies: int) -> None:
    """In the process that is measured: what the scan added at its peak, and what stays with the result."""
    paths = [path for _ in range(copies) for path in list_file.read_text().split("\n")]
    run_ours(paths[:100])
    before = memory()[1]
    result = asrconfig_go.scan_audio(paths, workers=WORKERS, progress=False, cache=False)
    peak, now = memory()
    print(peak - before, now - before)
    del result


def memory() -> tuple[int, int]:
    """Peak and present resident bytes."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(fields["VmHWM"].split()[0]) << 10, int(fields["VmRSS"].split()[0]) << 10


def measure_memory(folder: Path, scratch: Path) -> dict[str, float]:
    """Bytes a file, at the peak and kept with the result, of long lists beyond those of short ones."""
    names = [str(folder / name) for name in json.loads((folder / "seconds.json").read_text())]
    listed = scratch / "names"
    listed.write_text("\n".join(names))
    few, many = 3, 28
    (peak_few, kept_few), (peak_many, kept_many) = peak_bytes(listed, few), peak_bytes(listed, many)
    files, path = (many - few) * len(names), statistics.mean(map(len, names))
    record = {"files": many * len(names), "path": path, "aim_beyond_path": MEMORY_AIM}
    return record | {"peak": (peak_many - peak_few) / files, "kept": (kept_many - kept_few) / files}


def show_memory(record: dict[str, float]) -> None:
    print(f"\nmemory, up to {record['files']:,} paths of {record['path']:.0f} bytes on average:")
    for label, size in (("at the peak", record["peak"]), ("kept with the result", record["kept"])):
        beyond = size - record["path"]
        reached = verdict(beyond <= MEMORY_AIM)
        print(f"{size:.0f} bytes a file {label}, {beyond:.0f} beyond its path, aim {MEMORY_AIM}: {reached}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the speed corpus")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--skip-memory", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print_peak(arguments.folder, arguments.peak)
        return
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch, "scan_floor")
        root = Path(__file__).resolve().parent
        subprocess.run(["go", "build", "-o", str(program), "./scan_floor"], cwd=root, check=True)
        record = measure(arguments.folder, program, arguments.repeats)
        if not arguments.skip_memory:
            record["memory"] = measure_memory(arguments.folder, Path(scratch))
    show_all(record)
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=2, ensure_ascii=False))
    if record["left_out"]:
        sys.exit("\n".join(f"{peer} left out: {reason}" for peer, reason in record["left_out"].items()))


def show_all(record: dict[str, Any]) -> None:
    print(f"{record['cores']} cores, load before: {record['load_before']:.2f}")
    for row in record["sets"]:
        show(row)
    if "memory" in record:
        show_memory(record["memory"])


if __name__ == "__main__":
    main()
