"""How long it takes to know a model's memory, and how much of this machine's RAM.

For each model, in a process of its own, imports not counted: one traced step at one shape; the traces of all shapes
that the formulas need; the same from the cache; one answer for another shape.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

MODELS = {  # name: aim for all shapes, in seconds
    "facebook/wav2vec2-base": 2.0,
    "facebook/wav2vec2-xls-r-300m": 6.0,
    "facebook/wav2vec2-xls-r-1b": 12.0,
    "openai/whisper-large-v3": 12.0,
}
REPEATS = 3


def seconds(work: Callable[[], Any]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def one(name: str) -> dict[str, float]:
    """All figures of one model, in this process."""
    import asrconfig_go as ac
    from asrconfig_go.trace import speech_batches, trace_training
    from asrconfig_go.trace.model import Model

    trace_training(Model.of("openai/whisper-tiny").build, steps=1, evaluation=False)  # imports, torch's first calls
    build = Model.of(name).build
    points = speech_batches(_config(build)).points()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    single = seconds(lambda: trace_training(build, points=points[:1], precision="fp16", evaluation=False))
    full = seconds(lambda: ac.MemoryModel.trace(name, precision="fp16", progress=False))
    cached = seconds(lambda: ac.MemoryModel.trace(name, precision="fp16", progress=False))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    model = ac.MemoryModel.trace(name, precision="fp16", progress=False)
    answers = [seconds(lambda b=b: model.estimate(b, 12.5 + b / 8, timeline=0)) for b in range(2, 34)]
    return {
        "one shape": single,
        "all shapes": full,
        "cached": cached,
        "answer": statistics.median(answers),
        "RAM grown, MB": grown,
    }


def _config(build: Callable[[], Any]) -> Any:
    from asrconfig_go.trace import MemoryRecorder

    with MemoryRecorder():
        return build().config


def main() -> int:
    """Print a table; medians of three processes."""
    if len(sys.argv) == 2:
        print(json.dumps(one(sys.argv[1])))
        return 0
    for name, aim in MODELS.items():
        runs = [in_a_process(name) for _ in range(REPEATS)]
        median = {key: statistics.median(f[key] for f in runs) for key in runs[0]}
        print(
            f"{name:30} one shape {median['one shape']:5.2f} s   all shapes {median['all shapes']:5.2f} s, aim {aim:g}"
            f"   cached {median['cached'] * 1e3:5.0f} ms   an answer {median['answer'] * 1e3:5.1f} ms, aim 5 ms"
            f"   RAM grew by {median['RAM grown, MB']:4.0f} MB, aim 500 MB",
            flush=True,
        )
    return 0


def in_a_process(name: str) -> dict[str, float]:
    """``one`` in a fresh process with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "ASRCONFIG_CACHE": cache}
        done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    seconds: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return seconds


if __name__ == "__main__":
    sys.exit(main())
