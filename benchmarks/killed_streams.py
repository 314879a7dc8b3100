"""Trainings on a stream, killed by SIGKILL at random moments and resumed until they are done.

    python benchmarks/killed_streams.py [--kills 20] [--seed 1] [--json FILE]

240 bundled clips in six Parquet or tar shards, read in windows of 64 clips, without those over 1.3 s; 60 optimizer
steps of 8 clips of similar length, a convolution with dropout, Adam, a checkpoint every seventh step, on the CPU: alone
without and with two loader workers, and with two processes (gloo). Each training is killed, all its processes at once,
up to 50 ms after a step drawn at random, up to three times. In the end its weights and the clips of every optimizer
step are compared with those of the training that nobody disturbed. Processes are forked from one that has only
imported.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as hf_logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests" / "helpers"))
from streamed_training import STEPS, ended, make_shards, result, started

KINDS: dict[str, dict[str, Any]] = {
    "no workers": {},
    "two workers": {"workers": 2},
    "two processes": {"ranks": 2},
    "tar shards, two workers": {"kind": "tar", "workers": 2},
}


def run(settings: dict[str, Any], files: list[str], kill_at: int | None = None, later: float = 0) -> list[int]:
    """A training's processes, killed so many seconds after they made a step (0: at once); their exit statuses."""
    before = len(steps_of(settings["output"]))
    children = started(settings, files)
    if kill_at is not None:
        while max(steps_of(settings["output"])[before:], default=0) < kill_at and not over(children[0]):
            time.sleep(0.001)
        time.sleep(later)
        for child in children:
            os.kill(child, signal.SIGKILL)
    return ended(children)


def over(child: int) -> bool:
    """Whether a process has ended; it stays to be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def steps_of(output: str) -> list[int]:
    """The optimizer steps that were written down."""
    file = Path(output) / "steps-0.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [int(json.loads(line)[0]) for line in lines if line.endswith("\n")]


def wrong(output: Path, calm: Path, ranks: int) -> str:
    """What of a training is not as it should be."""
    steps, weights = result(output, ranks)
    wanted, undisturbed = result(calm, ranks)
    if any(sorted(rank_steps) != list(range(1, STEPS + 1)) for rank_steps in steps):
        return "steps are missing"
    if any(sum(len(rank_steps[step]) for rank_steps in steps) != 8 for step in steps[0]):
        return "another effective batch"
    if steps != wanted:
        return "another order of clips"
    off = float((weights - undisturbed).abs().max())
    return f"weights {off:.1g} off" if off else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    hf_logging.set_verbosity_error()
    torch.set_num_threads(1)
    chance, begin, kills, right, trainings = random.Random(arguments.seed), time.monotonic(), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        files = {kind: make_shards(Path(folder, kind), kind) for kind in ("parquet", "tar")}
        for name, settings in KINDS.items():
            if any(run({**settings, "output": f"{folder}/calm {name}"}, files[settings.get("kind", "parquet")])):
                sys.exit(
                    f"the undisturbed training with {name} failed: {Path(folder, f'calm {name}', 'errors').read_text()}"
                )
        while kills < arguments.kills:
            name, settings = list(KINDS.items())[trainings % len(KINDS)]
            output, shards, places = (
                Path(folder, f"run{trainings}"),
                files[settings.get("kind", "parquet")],
                list[int](),
            )
            spec, trainings = {**settings, "output": str(output)}, trainings + 1
            while len(places) < 3 and kills + len(places) < arguments.kills:
                at = chance.randint(min(max(places, default=0), STEPS - 1), STEPS - 1)
                if 0 in run(spec, shards, at, chance.uniform(0, 0.05)):
                    break
                places.append((steps_of(str(output)) or [0])[-1])
            status = run(spec, shards)
            problem = f"a process ended with {status}" if any(status) else ""
            problem = problem or wrong(output, Path(folder, f"calm {name}"), settings.get("ranks", 1))
            kills, right = kills + len(places), right + (not problem)
            told_places = ", ".join(f"{place}" for place in places) or "never"
            print(f"{trainings:>3} {name}: killed after step {told_places}: {problem or 'right'}", flush=True)
    print(f"{kills} kills of {trainings} trainings of {STEPS} steps, in {time.monotonic() - begin:.0f} s")
    print(f"{right} of {trainings} ended with the same weights, and the same clips in the same order")
    if arguments.json:
        arguments.json.write_text(json.dumps({"killed_streams": f"{right} of {trainings}", "stream_kills": kills}))
    if right < trainings:
        sys.exit("every one must")


if __name__ == "__main__":
    main()
