"""How long answers from recorded traces take: of another batch and length, and of a training of 500 varied steps.

``--traces FOLDER`` keeps the traces for the next run. ``--json FILE`` writes the figures. They are of processor time,
which other programs on the machine change less than they do wall time; an answer and a training run on one core.
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
from collections.abc import Callable
from pathlib import Path

import asrconfig_go as ac
from asrconfig_go._core.settings import ALLOCATOR

MODELS = ("facebook/wav2vec2-xls-r-300m", "facebook/wav2vec2-xls-r-1b", "openai/whisper-large-v3")
ANSWER_AIM_MS = 5.0
RUN_AIM_S = 1.0
STEPS = 500
MOST = 12  # clips of a step, which are of one length


def main() -> int:
    """Print a line for each model; fails when one misses an aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, help="folder of traces; those that it lacks are recorded into it")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    if options.traces and not options.traces.is_dir():
        parser.error(f"--traces {options.traces} is not a folder: make it first, with mkdir -p {options.traces}")
    with tempfile.TemporaryDirectory() as folder:
        record = {name: figures(traced(name, options.traces or Path(folder))) for name in MODELS}
    for name, f in record.items():
        print(
            f"{name:30} an answer {f['answer_ms']:5.2f} ms, aim {ANSWER_AIM_MS:g}"
            f" (without expandable segments {f['answer_whole_segments_ms']:5.2f})"
            f"   {STEPS} steps {f['run_s']:5.2f} s, aim {RUN_AIM_S:g} ({f['run_whole_segments_s']:5.2f})"
        )
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return int(any(f["answer_ms"] > ANSWER_AIM_MS or f["run_s"] > RUN_AIM_S for f in record.values()))


def traced(name: str, folder: Path) -> Path:
    """The trace of a model, recorded in a process of its own if it is not there."""
    file = folder / f"{name.split('/')[-1]}.trace"
    if not file.exists():
        with tempfile.TemporaryDirectory() as cache:
            record = f"import asrconfig_go as ac; ac.MemoryModel.trace({name!r}, precision='fp16', progress=False)"
            environment = {**os.environ, "ASRCONFIG_CACHE": cache}
            subprocess.run([sys.executable, "-c", record], check=True, env=environment)
            shutil.copy(next(Path(cache, "traces").glob("*.trace")), file)
    return file


def figures(trace: Path) -> dict[str, float]:
    """Medians and minima over answers at 96 shapes, and over trainings of steps of all sizes and lengths."""
    draw = random.Random(5)
    clips = [draw.uniform(1, 20) for _ in range(STEPS)]
    steps = [[draw.randint(1, MOST) * [clip]] for clip in range(STEPS)]
    values: dict[str, float] = {}
    for suffix, allocator in {"": ALLOCATOR, "_whole_segments": ""}.items():
        with ac.MemoryModel.load(trace, allocator=allocator) as model:
            answers = [_seconds(lambda b=b: model.estimate(b, 12.5 + b / 8, timeline=0)) for b in 3 * [*range(2, 34)]]  # type: ignore[misc]
            runs = [_seconds(lambda: model.simulate_steps(clips, steps, count=STEPS)) for _ in range(3)]
        values |= {
            f"answer{suffix}_ms": 1e3 * statistics.median(answers),
            f"answer{suffix}_least_ms": 1e3 * min(answers),
            f"run{suffix}_s": statistics.median(runs),
            f"run{suffix}_least_s": min(runs),
        }
    return values


def _seconds(work: Callable[[], object]) -> float:
    """Processor time of one call, of all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
