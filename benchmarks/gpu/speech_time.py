"""Estimated against measured seconds of real Trainer steps of speech models.

    python benchmarks/gpu/speech_time.py                    # with a CUDA GPU of the catalogue
    python benchmarks/gpu/speech_time.py --device cpu       # tries the measuring itself, on the smallest model

Each run is a process of its own. Models are built from their configs with random weights; nothing is downloaded. All
clips of a batch last equally long and are made once, so that no loader is in the time. Processes that run at the same
time train in turn.
"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WARM_UP, STEPS = 4, 12


@dataclasses.dataclass(frozen=True)
class Run:
    """One training to estimate and to measure."""

    model: str
    precision: str
    gradient_checkpointing: bool
    optimizer: str
    batch: int
    seconds: float
    accumulation: int


def runs() -> list[Run]:
    """24 runs: each model in each precision, with the other settings taking turns."""
    models = ["facebook/wav2vec2-base", "facebook/wav2vec2-xls-r-300m", "microsoft/wavlm-base-plus"]
    models += ["facebook/w2v-bert-2.0", "openai/whisper-tiny", "openai/whisper-small", "openai/whisper-medium"]
    models += ["facebook/wav2vec2-xls-r-1b"]
    turns = itertools.cycle([(False, "adamw_torch", 8, 10.0, 1), (True, "adamw_torch_fused", 4, 20.0, 2)])
    return [Run(model, precision, *next(turns)) for model in models for precision in ("fp16", "bf16", "fp32")]


def measure(run: Run, device: str) -> list[float]:
    """Seconds of each step after the warm-up, in this process."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from asrconfig_go.trace import speech_batches
    from asrconfig_go.trace.model import Model

    model = Model.of(run.model).build()
    if hasattr(model.config, "layerdrop"):
        model.config.layerdrop = 0.0  # the estimate is for a step that drops no layer
    speech = speech_batches(model)
    batch = speech.batch(run.batch, speech.length(run.seconds), speech.labels(run.seconds))
    ends: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *arguments: Any, **known: Any) -> None:
            if device == "cuda":
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=run.batch,
            gradient_accumulation_steps=run.accumulation,
            max_steps=WARM_UP + STEPS,
            fp16=run.precision == "fp16",
            bf16=run.precision == "bf16",
            tf32=True if run.precision == "fp32" and device == "cuda" else None,
            gradient_checkpointing=run.gradient_checkpointing,
            gradient_checkpointing_kwargs={"use_reentrant": False} if run.gradient_checkpointing else None,
            optim=run.optimizer,
            use_cpu=device == "cpu",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        items = [{"index": i} for i in range(run.batch * run.accumulation * (WARM_UP + STEPS))]
        trainer = Trainer(
            model, arguments, train_dataset=items, data_collator=lambda _: dict(batch), callbacks=[Clock()]
        )  # type: ignore[arg-type]
        with gpu_alone():
            trainer.train()
    return [end - begin for begin, end in itertools.pairwise(ends[WARM_UP - 1 :])]


@contextmanager
def gpu_alone() -> Iterator[None]:
    """Wait until no other process of these benchmarks measures a time."""
    with (Path(tempfile.gettempdir()) / "asrconfig-gpu-times.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def in_a_process(run: Run, device: str, timeout: float = 900) -> list[float]:
    """``measure`` in a process of its own."""
    command = [sys.executable, __file__, "--device", device, "--one", json.dumps(dataclasses.asdict(run))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"{run}: {done.stderr.strip().splitlines()[-1]}")
    return list(json.loads(done.stdout.splitlines()[-1]))


def compare(device: str) -> None:
    """A line for each run, and how far off the estimates are."""
    import asrconfig_go as ac
    from asrconfig_go.predict import HardwareProfile

    found = HardwareProfile.detect()
    gpu = found.gpu_name.removeprefix("NVIDIA ") if device == "cuda" else "T4"  # on a CPU only the plumbing is tried
    chosen = runs() if device == "cuda" else [Run("openai/whisper-tiny", "fp32", False, "adamw_torch", 1, 2.0, 1)]
    print(f"| run on {gpu} | measured, s | estimate, s (range) | estimate / measured |\n| --- | --- | --- | --- |")
    ratios = []
    for run in chosen:
        try:
            measured = statistics.median(in_a_process(run, device))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"| {run} | {error} | | |", flush=True)
            continue
        s = ac.estimate_step_time(gpu=gpu, **dataclasses.asdict(run)).step_s
        ratios.append(s.likely / measured)
        print(f"| {run} | {measured:.3f} | {s.likely:.3f} ({s.low:.3f}–{s.high:.3f}) | {ratios[-1]:.2f} |", flush=True)
    if ratios:
        print(f"estimate / measured: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")


def main() -> None:
    """Measure one run for the parent process, or compare all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(Run(**json.loads(arguments.one)), arguments.device)))
    else:
        compare(arguments.device)


if __name__ == "__main__":
    main()
