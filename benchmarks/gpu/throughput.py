"""Speech a second that trains on this GPU by the plan, and by settings by hand in the same memory.

    python benchmarks/gpu/throughput.py [--model facebook/wav2vec2-xls-r-300m] [--memory-gib 22] [--only plan]

Every strategy trains the same random weights on the same 2048 clips (log-normal durations of up to 20 s, noise, 8
labels a second), 32 an optimizer step, in bf16, each in a process of its own: cuDNN prepares what it computes for each
new shape, so that a strategy must not find another's. Processes train in turn. ``--memory-gib`` limits them as a
smaller card would, and tells the planner so. By hand, sizes are tried with and without gradient checkpointing:

- batch 1 × 32, and 4 × 8, the published batch, with checkpointing;
- random order at 8, 16 and 32 clips;
- the Trainer's group_by_length at 4, 8, 16 and 32 clips, timed over as many micro-batches as it sorts at once.

The plan is run with the guard and without, and in random order. Time begins after the first step. Padding is a share
of the audio that was computed. Four workers prepare the noise.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parents[1])]

RATE, STEP, CLIPS, LONGEST_S, LABELS_A_SECOND = 16_000, 32, 2048, 20.0, 8
WARM_UP, MEGABATCH, PATIENCE_S, AT_ONCE = 1, 50, 12.0, 4  # steps; micro-batches; of random order; one has the GPU
COMMON: dict[str, Any] = {
    "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "logging_strategy": "no", "num_train_epochs": 1,
    "remove_unused_columns": False, "learning_rate": 1e-5, "dataloader_num_workers": 4,
}  # fmt: skip
SAFE, FIXED, PLAN = "batch 1 × 32, checkpointing", "random, 4 × 8, checkpointing", "the plan"
RANDOM, BARE = "the plan, random order", "the plan's arguments without the guard"


class Clips:
    """Noise of these durations, as the model's inputs have it."""

    def __init__(self, durations: Sequence[float], features: bool) -> None:
        import torch

        self.durations, self.features = durations, features
        self.noise = torch.randn(round(RATE * LONGEST_S), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.durations)

    def __getitem__(self, i: int) -> dict[str, Any]:
        seconds = self.durations[i]
        labels = [5 + n % 20 for n in range(max(1, round(LABELS_A_SECOND * seconds)))]
        if self.features:
            return {"input_features": self.noise[: 80 * 3000].view(80, 3000), "labels": labels}
        return {"input_values": self.noise[: round(RATE * seconds)], "labels": labels}


class Run(NamedTuple):
    """Clips a second by the speech in them; the peak of reserved memory; micro-batches a step; their padding."""

    speed: float
    peak_gib: float
    micro_batches: float
    padding: float
    steps: int
    errors: int = 0


class Computed:
    """Counts what a model computes to train: neither evaluation nor the clips that the guard looks at alone."""

    def __init__(self, model: Any) -> None:
        self.calls, self.length, self.spoken = 0, 0, 0
        model.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, model: Any, _: Any, inputs: dict[str, Any]) -> None:
        import torch

        if not (model.training and torch.is_grad_enabled()):
            return
        values = inputs[model.main_input_name]
        self.calls, self.length = self.calls + 1, self.length + values.numel()
        mask = inputs.get("attention_mask")
        self.spoken = self.spoken + (values.numel() if mask is None else mask.sum())  # stays on the GPU: nothing waits


class Task:
    """A model, its clips, and the machine that plans are for."""

    def __init__(self, name: str, memory_gib: float | None) -> None:
        import torch

        from asrconfig_go.predict import HardwareProfile
        from asrconfig_go.trace.model import Model

        draw = random.Random(2)
        durations = [max(0.5, min(LONGEST_S, draw.lognormvariate(1.6, 0.6))) for _ in range(CLIPS - 1)]
        self.model = Model.of(name).build()
        self.clips = Clips([LONGEST_S, *durations], self.model.main_input_name == "input_features")
        self.hardware = HardwareProfile.detect()
        if memory_gib is not None:
            limit = round(memory_gib * 2**30)
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(limit / total)
            card = dataclasses.replace(self.hardware.gpus[0], memory_total_bytes=limit, memory_free_bytes=limit)
            self.hardware = dataclasses.replace(self.hardware, gpus=(card,))


def by_hand(task: Task, size: int, grouped: bool, checkpointing: bool) -> Run:
    from cpu_training import grouped_by_length, silent_trainer
    from transformers import TrainingArguments

    arguments = TrainingArguments(
        tempfile.mkdtemp(), per_device_train_batch_size=size, gradient_accumulation_steps=STEP // size, bf16=True,
        tf32=True, gradient_checkpointing=checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if checkpointing else None,
        **COMMON, **(grouped_by_length() if grouped else {}),
    )  # fmt: skip
    trainer = silent_trainer(task.model, arguments, task.clips)
    return measured(trainer, trainer.train, MEGABATCH * size // STEP if grouped else None)


def by_the_plan(task: Task, guarded: bool = True, **options: Any) -> Run:
    from cpu_training import profiled, silent_trainer

    import asrconfig_go as ac

    manager = profiled(task.hardware, task.clips.durations, RATE, task.model)
    plan = manager.plan(ac.PlanOptions(target_batch_size=STEP, num_train_epochs=1.0, precision="bf16", **options))
    plan.apply(task.model, environment=False)
    trainer = silent_trainer(task.model, plan.to_training_arguments(tempfile.mkdtemp(), **COMMON), task.clips)
    if not guarded:
        return measured(trainer, trainer.train)
    guard = manager.attach(trainer)
    return measured(trainer, lambda: manager.train(trainer, verbose=False))._replace(errors=len(guard.events))


def measured(trainer: Any, train: Callable[[], Any], steps: int | None = None) -> Run:
    """Train so many steps after the first, or as many as end in PATIENCE_S."""
    import torch
    from speech_time import gpu_alone
    from transformers import TrainerCallback

    computed = Computed(trainer.model)
    begin: list[Any] = []
    end: list[Any] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
            done = state.global_step - WARM_UP
            if done >= 0 and (steps is None or done in (0, steps)):
                torch.cuda.synchronize()
                end[:] = [time.perf_counter(), int(computed.spoken), computed.length, computed.calls, done]
                begin[:] = begin or end
                control.should_training_stop = done == steps or end[0] - begin[0] > PATIENCE_S

    trainer.add_callback(Clock())
    with gpu_alone():
        train()
    seconds, spoken, length, calls, count = (a - b for a, b in zip(end, begin, strict=True))
    mean = sum(trainer.train_dataset.durations) / len(trainer.train_dataset)
    clips = STEP * count if trainer.train_dataset.features else spoken / RATE / mean
    peak = torch.cuda.max_memory_reserved() / 2**30
    return Run(clips / seconds, peak, calls / count, 1 - spoken / length, count)


def strategies() -> dict[str, Callable[[Task], Run]]:
    hand: dict[str, Callable[[Task], Run]] = {
        SAFE: lambda task: by_hand(task, 1, False, True),
        FIXED: lambda task: by_hand(task, 4, False, True),
    }
    for grouped, sizes in ((True, (4, 8, 16, 32)), (False, (8, 16, 32))):
        for size in sizes:
            for checkpointing in (False, True):
                name = f"{'grouped' if grouped else 'random'}, {size} × {STEP // size}"
                name += ", checkpointing" if checkpointing else ""
                hand[name] = lambda task, s=size, g=grouped, c=checkpointing: by_hand(task, s, g, c)  # type: ignore[misc]
    return {
        PLAN: by_the_plan,
        RANDOM: lambda task: by_the_plan(task, length_handling="random"),
        BARE: lambda task: by_the_plan(task, guarded=False),
        **hand,
    }


def in_a_process(name: str, options: argparse.Namespace) -> Run | str:
    """The figures of a strategy, or why it has none."""
    command = [sys.executable, __file__, "--one", name, "--model", options.model]
    command += ["--memory-gib", str(options.memory_gib)] if options.memory_gib else []
    environment = {**os.environ, "PYTORCH_ALLOC_CONF": "expandable_segments:True", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 0:
        return Run(*json.loads(done.stdout.splitlines()[-1]))
    reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
    return "out of memory" if "out of memory" in reason.lower() else reason[:200]


def show(runs: dict[str, Run]) -> None:
    """The plan over each rival, where both ran."""
    fastest = {
        kind: max((name for name in runs if name.startswith(kind)), key=lambda name: runs[name].speed, default=None)
        for kind in ("grouped", "random")
    }
    for name in (PLAN, RANDOM, BARE):
        rivals = [rival for rival in (SAFE, FIXED, *fastest.values()) if rival in runs and name in runs]
        ratios = [f"{runs[name].speed / runs[rival].speed:.2f}× {rival}" for rival in dict.fromkeys(rivals)]
        if ratios:
            print(f"{name}: " + "; ".join(ratios))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="facebook/wav2vec2-xls-r-300m")
    parser.add_argument("--memory-gib", type=float)
    parser.add_argument("--only", default="", help="strategies whose name matches this expression")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("no CUDA GPU was found: run this on a machine with one", file=sys.stderr)
        return 1
    if options.one:
        print(json.dumps(strategies()[options.one](Task(options.model, options.memory_gib))))
        return 0
    from run_all import about_gpu

    about = about_gpu()
    setting = f"{about['gpu']}, torch {about['versions']['torch']}"
    print(f"## {options.model} in {options.memory_gib or 'all'} GiB of {setting}\n", flush=True)
    print("| | clips a second | micro-batches a step | padding | reserved, GiB | steps | out of memory |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    runs: dict[str, Run] = {}

    def run(name: str) -> None:
        got = in_a_process(name, options)
        if isinstance(got, str):
            print(f"| {name} | {got} | | | | | |", flush=True)
            return
        runs[name] = got
        cells = f"{got.speed:.1f} | {got.micro_batches:.1f} | {got.padding:.1%} | {got.peak_gib:.1f} | {got.steps}"
        print(f"| {name} | {cells} | {got.errors} |", flush=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, [name for name in strategies() if re.search(options.only, name)]))
    print()
    show(runs)
    if options.json:
        task = {"model": options.model, "memory_gib": options.memory_gib}
        rows = {name: run._asdict() for name, run in runs.items()}
        options.json.write_text(json.dumps({**task, **about, "runs": rows}, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
