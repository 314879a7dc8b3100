"""How long a plan takes: the search alone over a million clips, and create_optimal_config from nothing.

    python benchmarks/plan_speed.py [--clips 1000000] [--files 10000] [--rounds 5] [--model NAME] [--gpu T4] [--json F]

First ``plan.make`` for the model, XLS-R-300M when none is named, with the durations of a million clips, from the config
alone and with the tables of a traced step; medians, aim 1 s. Then ``create_optimal_config`` of a folder of 10 000 WAV
files, each in a process of its own: with empty caches, aim 4 s (8 s for a model that is named); with the trace kept and
nothing of what it told, as for another GPU of its kind; and with warm ones, aim 0.5 s. The published tool takes 30 s.
The model is its config, the files have log-normal durations and no blocks on disk (the scan reads headers). Imports of
torch and transformers are shown beside: a notebook that trains has them already. ``--clips 0`` leaves the first part
out; ``--json`` writes the medians to a file.

Times are wall times, CPU times beside them: other work on the machine counts. Exit status 1 when an aim is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batching import log_normal
from cpu_training import cpu_s

MODEL, GPU, RATE = "facebook/wav2vec2-xls-r-300m", "T4", 16_000
SEARCH_S, COLD_S, LARGE_COLD_S, WARM_S, PUBLISHED_S = 1.0, 4.0, 8.0, 0.5, 30.0
STAGES = ("scan", "loader", "trace", "tables", "search")


def make_files(folder: Path, count: int) -> None:
    """16-bit mono WAV files whose headers and sizes are right and whose samples are holes."""
    source = random.Random(1)
    for number in range(count):
        size = 2 * round(RATE * log_normal(source))
        chunks = b"fmt " + (16).to_bytes(4, "little") + (1).to_bytes(2, "little") + (1).to_bytes(2, "little")
        chunks += RATE.to_bytes(4, "little") + (2 * RATE).to_bytes(4, "little") + b"\2\0\20\0"
        head = b"RIFF" + (36 + size).to_bytes(4, "little") + b"WAVE" + chunks + b"data" + size.to_bytes(4, "little")
        with (folder / f"clip_{number:05d}.wav").open("wb") as file:
            file.write(head)
            file.truncate(len(head) + size)


class Clock:
    """Wall time by stage, without that of the stages inside."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = dict.fromkeys(STAGES, 0.0)
        self._inside = [0.0]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        self._inside.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self.spent[name] += took - self._inside.pop()
            self._inside[-1] += took

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Count what ``owner.method`` takes as a stage."""
        plain: Callable[..., Any] = getattr(owner, method)

        def timed(*args: Any, **named: Any) -> Any:
            with self.stage(name):
                return plain(*args, **named)

        setattr(owner, method, timed)


def one(folder: str, model: str, gpu: str, imported: bool) -> dict[str, float]:
    """``create_optimal_config`` in this process, with torch imported before or by the way."""
    import asrconfig_go as ac
    from asrconfig_go import manager
    from asrconfig_go._core import native
    from asrconfig_go.plan import planner
    from asrconfig_go.predict import MemoryModel

    imports = time.perf_counter()
    if imported:
        import torch  # noqa: F401
        from transformers import Wav2Vec2ForCTC, WhisperForConditionalGeneration  # noqa: F401
    imports = time.perf_counter() - imports
    clock = Clock()
    clock.watch(manager, "scan_audio", "scan")
    clock.watch(manager.ASRConfigManager, "measure_loader", "loader")
    clock.watch(planner.Tracer, "trace", "tables")
    traced = MemoryModel.trace
    MemoryModel.trace = staticmethod(lambda *given, **named: in_stage(clock, traced, given, named))  # type: ignore
    call = native.call
    native.call = lambda op, *rest: (
        in_stage(clock, call, (op, *rest), {}, "search") if op == "plan.make" else call(op, *rest)
    )
    began, cpu = time.perf_counter(), cpu_s()
    config, _ = ac.create_optimal_config(folder, model, gpu=gpu, verbose=False)
    wall, cpu = time.perf_counter() - began, cpu_s() - cpu
    assert config.policy == "fastest" and any("traced" in d.reason for d in config.decisions)
    other = wall - sum(clock.spent.values())
    return {"all": wall, "CPU": cpu, **clock.spent, "rest": other, "imports before": imports}


def in_stage(clock: Clock, work: Callable[..., Any], args: Any, named: Any, name: str = "trace") -> Any:
    with clock.stage(name):
        return work(*args, **named)


def in_a_process(folder: str, model: str, gpu: str, cache: str, imported: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", folder, "--model", model, "--gpu", gpu]
    command += ["--imported"] if imported else []
    environment = {**os.environ, "ASRCONFIG_CACHE": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    seconds: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return seconds


def whole(files: int, rounds: int, model: str, gpu: str) -> dict[str, dict[str, float]]:
    """Cold and warm, with imports and without, in turn; the medians."""
    measured_runs: dict[tuple[str, bool], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as top:
        audio = Path(top) / "audio"
        audio.mkdir()
        make_files(audio, files)
        for turn in range(rounds):
            for imported in (True, False):
                cache = f"{top}/cache-{turn}-{imported}"
                for state in ("cold", "traced", "warm"):
                    if state == "traced":
                        shutil.rmtree(f"{cache}/tables")
                    measured_runs.setdefault((state, imported), []).append(
                        in_a_process(str(audio), model, gpu, cache, imported)
                    )
    print(f"\ncreate_optimal_config, {files} WAV files, {model} on {gpu}, medians of {rounds} processes, seconds\n")
    print("| caches | torch | all | CPU | scan | loader | trace | tables | search | rest | imports before |")
    print(f"|{' --- |' * 11}")
    medians = {}
    for (state, imported), runs in measured_runs.items():
        name = f"{state}, torch {'imported' if imported else 'not yet'}"
        median = medians[name] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        print(f"| {name.replace(', torch', ' |')} | {' | '.join(f'{v:.2f}' for v in median.values())} |")
    return medians


def judged(stages: dict[str, dict[str, float]], model: str) -> bool:
    """Whether the aims are reached, in words, too."""
    good = True
    for state, aim in (("cold", COLD_S if model == MODEL else LARGE_COLD_S), ("warm", WARM_S)):
        took = stages[f"{state}, torch imported"]["all"]
        good &= took <= aim
        print(
            f"{state}: {took:.2f} s, aim {aim:g}, {PUBLISHED_S / took:.1f}× the published 30 s: {verdict(took <= aim)}"
        )
    return good


def verdict(good: bool) -> str:
    return "reached" if good else "MISSED"


def search(clips: int, rounds: int, model: str, gpu: str) -> dict[str, dict[str, float]]:
    """``plan.make`` alone, with what ``manager.plan`` asks it; the medians."""
    from asrconfig_go import ASRConfigManager, PlanOptions, scan_audio
    from asrconfig_go._core import native
    from asrconfig_go.data import DatasetProfile
    from asrconfig_go.plan import planner

    source = random.Random(1)
    durations = array("d", (log_normal(source) for _ in range(clips)))
    calls: list[tuple[Any, ...]] = []
    call = native.call
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), 100)
        profile: DatasetProfile = scan_audio(folder, progress=False).profile
    manager = ASRConfigManager(gpu=gpu)
    manager.profile_dataset(profile)
    manager.durations = durations
    manager.profile_model(model)
    planner.native.call = lambda *given: calls.append(given) or call(*given)  # type: ignore[func-returns-value]
    try:
        manager.plan(PlanOptions())
    finally:
        planner.native.call = call
    calls = [request for request in calls if request[0] == "plan.make"]
    seconds = {}
    print(f"plan.make, {clips} clips, {model} on {gpu}, medians of {rounds}")
    for name, request in (
        ("from the config", calls[0]),
        (f"with {len(calls[-1][1].get('traced', []))} traced tables", calls[-1]),
    ):
        times = []
        for number in range(rounds):
            # Other lengths each time: the library remembers what it was asked before.
            lengths = array("d", (s * (1 - 1e-4 * number) for s in durations)).tobytes()
            began, cpu = time.perf_counter(), cpu_s()
            call(request[0], request[1], lengths)
            times.append((time.perf_counter() - began, cpu_s() - cpu))
        wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        seconds[f"search {name}"] = {"all": wall, "CPU": cpu}
        print(f"  {name}: {wall:.2f} s, {cpu:.2f} s of CPU, aim {SEARCH_S:g} s: {verdict(wall <= SEARCH_S)}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--gpu", default=GPU)
    parser.add_argument("--json", type=Path, help="write the medians to this file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--imported", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    model, gpu = options.model, options.gpu
    if options.one:
        print(json.dumps(one(options.one, model, gpu, options.imported)))
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    searched = search(options.clips, options.rounds, model, gpu) if options.clips else {}
    planned = whole(options.files, options.rounds, model, gpu)
    good = judged(planned, model) and all(took["all"] <= SEARCH_S for took in searched.values())
    print(f"load {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps({"model": model, "gpu": gpu, **searched, **planned}, indent=1) + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
