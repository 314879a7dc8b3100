"""What a GPU must confirm, in pieces of at most a few minutes, each in processes of its own.

Pieces that measure no time run beside each other, as many as the GPU's memory holds. Of those that do, the next ones
are prepared while one has the GPU.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CUDA_TRUTH = HERE.parent / "cuda_truth"
sys.path[:0] = [str(HERE), str(CUDA_TRUTH)]

MODEL, BATCH, SECONDS = "facebook/wav2vec2-base", 4, 10.0
IDLE_S = 10.0  # how long the monitor is watched
CONTEXT_BYTES = 2**30  # of a process, more than any card's
TRACING = threading.Lock()  # a process traces one model at a time
OUT_OF_MEMORY_BYTES = 20 * 2**30  # of a training of 16 clips with checkpointing


@dataclasses.dataclass(frozen=True)
class Piece:
    """``run(timeout)`` gives its figures as JSON has them, or raises what ``subprocess`` raises.

    ``timed`` pieces measure a time, or what the whole card holds.
    """

    name: str
    run: Callable[[float], dict[str, Any]]
    timed: bool = False


class GpuMemory:
    """What the processes that run beside each other may take together, in bytes."""

    def __init__(self, total: int) -> None:
        self.total, self._free, self._changed = total, total, threading.Condition()

    @contextmanager
    def taken(self, wanted: int) -> Iterator[None]:
        """Wait until so much is free; all of it where a process wants more than there is."""
        size = min(wanted + CONTEXT_BYTES, self.total)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()


def pieces(gpu: str, memory: GpuMemory) -> list[Piece]:
    """All of them, those that are timed last."""
    return [*_allocator(memory), *_out_of_memory(memory), *_memory(gpu, memory), *_small(), *_times(gpu)]


def _small() -> Iterator[Piece]:
    for kind in ("monitor", "calibration", "batch search"):
        yield Piece(kind, lambda timeout, kind=kind: _answer([__file__, kind], timeout), timed=True)  # type: ignore[misc]


def _memory(gpu: str, memory: GpuMemory) -> Iterator[Piece]:
    """Every training of speech models in cuda_truth, on this GPU."""
    from cases import cases
    from models import MODELS

    for case in cases():
        if MODELS[case.model].kind == "transformer" and "LoRA" not in case.model:
            here = dataclasses.asdict(dataclasses.replace(case, gpu=gpu))
            name = f"memory: {dataclasses.replace(case, gpu='')}"
            yield Piece(name, lambda timeout, c=here: _trained(c, memory, timeout))  # type: ignore[misc]


def _trained(case: dict[str, Any], memory: GpuMemory, timeout: float) -> dict[str, Any]:
    """A prediction, and the training."""
    script, found = str(CUDA_TRUTH / "child.py"), {}
    request, environment = {"what": "predict", "gpu": "", "cases": [case]}, {"OMP_NUM_THREADS": "1"}
    predicted = found["predict"] = _answer([script, json.dumps(request)], timeout, "answer: ", environment)
    request = {**request, "what": "train", "gpu": "here"}
    environment |= {"PYTORCH_ALLOC_CONF": case["allocator"]} if case["allocator"] else {}
    with memory.taken(predicted.get("reserved", memory.total)):
        measured = found["train"] = _answer([script, json.dumps(request)], timeout, "answer: ", environment)
    if measured.get("fits") and "reserved" in predicted:
        found["off"] = {name: predicted[name] / measured[name] - 1 for name in ("allocated", "reserved")}
    return found


def _allocator(memory: GpuMemory) -> Iterator[Piece]:
    from replay_snapshot import SETTINGS, WORKLOADS

    for workload in WORKLOADS:
        for settings in SETTINGS:
            name = f"allocator: {workload}, {settings or 'usual settings'}"
            yield Piece(name, lambda timeout, w=workload, s=settings: _replayed(w, s, memory, timeout))  # type: ignore[misc]


def _replayed(workload: str, settings: str, memory: GpuMemory, timeout: float) -> dict[str, Any]:
    """torch's reserved memory after each event, beside the simulated allocator's."""
    from replay_snapshot import ROOM, first_difference

    from asrconfig_go._core import native

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.json"
        command = [str(HERE / "replay_snapshot.py"), "case", workload, settings, str(path)]
        with memory.taken(ROOM):
            _process(command, timeout, {"PYTORCH_CUDA_ALLOC_CONF": settings})
        recording = json.loads(path.read_text())
    request = {name: recording[name] for name in ("events", "empty_cache", "settings", "device_total_bytes")}
    replayed = native.call("memory.replay", request)
    peaks = {"peak": max(recording["reserved"]), "simulated_peak": max(replayed["reserved"])}
    return {"events": len(recording["events"]), "first_difference": first_difference(recording, replayed), **peaks}


def _out_of_memory(memory: GpuMemory) -> Iterator[Piece]:
    import guard_oom

    def guarded(run: guard_oom.Run, timeout: float) -> dict[str, Any]:
        with memory.taken(OUT_OF_MEMORY_BYTES):
            return guard_oom.in_a_process(run, timeout)

    for run in guard_oom.runs("cuda"):
        yield Piece(f"out of memory: {run}", lambda timeout, run=run: guarded(run, timeout))  # type: ignore[misc]


def _times(gpu: str) -> Iterator[Piece]:
    import speech_time

    for run in speech_time.runs():
        yield Piece(f"time: {run}", lambda timeout, run=run: _timed(run, gpu, timeout), timed=True)  # type: ignore[misc]


def _timed(run: Any, gpu: str, timeout: float) -> dict[str, Any]:
    import speech_time

    import asrconfig_go as ac

    measured = statistics.median(speech_time.in_a_process(run, "cuda", timeout))
    with TRACING:
        said = ac.estimate_step_time(gpu=gpu, **dataclasses.asdict(run)).step_s
    estimated = {"low": said.low, "likely": said.likely, "high": said.high}
    return {"measured_s": measured, "estimated_s": estimated, "ratio": said.likely / measured}


def _answer(
    command: list[str], timeout: float, prefix: str = "", environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """The last line of a process that starts with the prefix, as JSON."""
    lines = [line for line in _process(command, timeout, environment or {}).splitlines() if line.startswith(prefix)]
    found: dict[str, Any] = json.loads(lines[-1][len(prefix) :])
    return found


def _process(command: list[str], timeout: float, environment: dict[str, str]) -> str:

    given = {**os.environ, **environment}
    done = subprocess.run([sys.executable, *command], env=given, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it gave no reason"])[-1][:300])
    return done.stdout


def monitor() -> dict[str, Any]:
    """The share of a core that the sampler takes beside an idle process, and one read of its newest sample."""
    from asrconfig_go.watch import MemoryMonitor

    with MemoryMonitor(interval_ms=100) as watching:
        begun, used = time.perf_counter(), time.process_time()
        time.sleep(IDLE_S)
        share = (time.process_time() - used) / (time.perf_counter() - begun)
        begun = time.perf_counter()
        for _ in range(10_000):
            watching.headroom()
        return {"share_of_a_core": share, "read_us": (time.perf_counter() - begun) * 100}


def calibration() -> dict[str, Any]:
    """The correction that a measured step gives, and what is left allocated afterwards."""
    import torch

    import asrconfig_go as ac
    from asrconfig_go.predict import calibrate

    with tempfile.TemporaryDirectory() as folder:
        trainer, model = _trainer(folder)
        before = torch.cuda.memory_allocated()
        with ac.MemoryModel.trace(model, gpu=torch.cuda.get_device_name(), precision="fp16", progress=False) as memory:
            found = calibrate(trainer, memory, batch=BATCH, seconds=SECONDS)
        left = torch.cuda.memory_allocated() - before
    return {**dataclasses.asdict(found), "day": str(found.day), "left_allocated": left}


def batch_search() -> dict[str, Any]:
    """The largest batch by trying, and the trials that it took from the prediction on."""
    from asrconfig_go.predict import find_max_batch_size

    with tempfile.TemporaryDirectory() as folder:
        found = find_max_batch_size(_trainer(folder)[0], seconds=SECONDS, high=128)
    return {"micro_batch": found.micro_batch, "start": found.start, "trials": len(found.probes)}


def _trainer(folder: str) -> tuple[Any, Any]:
    from transformers import Trainer, TrainingArguments

    from asrconfig_go.trace import speech_batches
    from asrconfig_go.trace.model import Model

    model = Model.of(MODEL).build()
    speech = speech_batches(model)
    made = speech.batch(1, speech.length(SECONDS), speech.labels(SECONDS))
    clips = [{name: value[0] for name, value in made.items()} for _ in range(128)]
    arguments = TrainingArguments(
        folder, fp16=True, report_to="none", per_device_train_batch_size=BATCH, disable_tqdm=True
    )
    return Trainer(model, arguments, train_dataset=clips), model  # type: ignore[arg-type]


if __name__ == "__main__":
    from speech_time import gpu_alone

    measure = {"monitor": monitor, "calibration": calibration, "batch search": batch_search}[sys.argv[1]]
    with gpu_alone():
        print(json.dumps(measure()))
