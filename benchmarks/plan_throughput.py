"""Samples a second of a small wav2vec2 trained by the plan and by other strategies of the same effective batch size.

    OMP_NUM_THREADS=1 python benchmarks/plan_throughput.py [--rounds 3] [--clips 640] [--epochs 2] [--json FILE]

Every strategy trains the same weights on the same clips (log-normal durations of up to 4 s, 16 kHz, two tones in noise
whose labels are the tones) for as many epochs, 32 clips an optimizer step, and may use the same memory: as much as four
of the longest clips take by a traced step, the batch of the published scenario (XLS-R-1B on an L4). A forward pass of
more clips than the trace's table allows for their length raises torch.OutOfMemoryError, the Trainer's and ours alike.
The strategies:

- batch 1 × 32, the safe configuration by hand;
- 4 × 8 in random order, the published plan's batch. What the published formula itself gives for this model and memory
  is shown, too;
- the Trainer's group_by_length at 2, 4, 8 and 16, as one would try by hand: the best that ends counts;
- auto_find_batch_size from 32, whose effective batch shrinks with the batch;
- the plan: a manager profiles clips and model on a machine with so much memory and plans, then attach and train. Its
  own time before the first step is shown beside, and not part of the training's.

The order of the strategies turns from round to round, and each round has a seed of its own for weights and orders. Time
is that of the CPU, all threads, as other work on the machine would count otherwise; medians are shown. The loss is that
of 128 other clips afterwards, in one batch size for all.

Exit status 1 when an aim is missed: 2.6 times batch 1, 1.5 times random order at the published batch, no slower than
the best length grouping, a loss that differs from those of the first two by no more than the seeds do.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from cpu_training import Spoken, cpu_s, grouped_by_length, loss_of, overhead_of, silent_trainer, small_model

import asrconfig_go as ac
from asrconfig_go.predict import HardwareProfile
from asrconfig_go.predict.opened_trace import Table, fits_in, memory_table

RATE, STEP, PUBLISHED, LONGEST_S = 16_000, 32, 4, 4.0
MARGIN, PROCESS_BYTES = 0.85, 1_000_000_000  # what a plan for a CPU leaves to the process itself
# Clips are a quarter as long as usual ones, and frames have 40 ms: so a micro-batch takes besides what about a second
# of audio takes, as much as a mean clip. On GPUs the planner assumes 4 s, as much as a mean clip there.
FRAMES = {"conv_dim": (32,) * 3, "conv_kernel": (160, 5, 3), "conv_stride": (80, 4, 2)}
COMMON: dict[str, Any] = {
    "save_strategy": "no", "report_to": "none", "use_cpu": True, "disable_tqdm": True, "logging_steps": 1000,
    "remove_unused_columns": False, "learning_rate": 2e-3, "warmup_steps": 5, "weight_decay": 0.0, "max_grad_norm": 1.0,
}  # fmt: skip
OURS, SAFE, FIXED = "the plan", "batch 1 × 32", f"random order, {PUBLISHED} × {STEP // PUBLISHED}"


class Strategy(NamedTuple):
    """A strategy of training by the Trainer alone."""

    name: str
    batch: int
    settings: dict[str, Any]


class Run(NamedTuple):
    """One training. A strategy that ran out of memory has no speed."""

    cpu: float
    wall: float
    speed: float | None
    loss: float
    micro_batches: int
    padding: float
    largest: int
    steps: int
    refused: int
    before_s: float = 0.0


class Memory:
    """As much memory as the longest clips of the published batch take, and a machine that has it."""

    def __init__(self) -> None:
        # Gradients of one micro-batch lie beside the next, as the guard traces it.
        with ac.MemoryModel.trace(model(0), precision="fp32", accumulation=3, progress=False) as memory:
            self.bytes = memory.estimate(PUBLISHED, LONGEST_S, timeline=0).peak_reserved
            self.table: Table = memory_table(memory, LONGEST_S, self.bytes)
        hardware = HardwareProfile.detect(safety_margin=MARGIN)
        if hardware.gpus:
            sys.exit("this machine has a GPU: hide it by CUDA_VISIBLE_DEVICES=")
        available = math.ceil((self.bytes + PROCESS_BYTES) / MARGIN) + 1
        ram = dataclasses.replace(hardware.memory, available_bytes=available)
        self.hardware = dataclasses.replace(hardware, memory=ram)


class Watched:
    """Counts what a model computes in training, and raises where the memory would not suffice."""

    def __init__(self, model: Any, table: Table) -> None:
        self.table, self.sizes, self.seconds, self.refused = table, [], 0.0, 0
        model.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, model: Any, _: Any, inputs: dict[str, Any]) -> None:
        import torch

        if not torch.is_grad_enabled():
            return
        size, samples = inputs["input_values"].shape
        if size > fits_in(self.table, samples / RATE - 1e-9):
            self.refused += 1
            raise torch.OutOfMemoryError(f"CUDA out of memory. {size} clips of {samples / RATE:.2f} s do not fit.")
        self.sizes.append(size)
        self.seconds += size * samples / RATE


def model(seed: int) -> Any:
    return small_model(seed, **FRAMES)


def clips_of(count: int) -> Spoken:
    source = random.Random(2)
    durations = [max(0.2, min(LONGEST_S, source.lognormvariate(-0.2, 0.7))) for _ in range(count - 1)]
    return Spoken([LONGEST_S, *durations], RATE)


def strategies() -> list[Strategy]:
    swept = [Strategy(f"group_by_length, {size} × {STEP // size}", size, grouped_by_length()) for size in (2, 4, 8, 16)]
    return [
        Strategy(SAFE, 1, {}),
        Strategy(FIXED, PUBLISHED, {}),
        *swept,
        Strategy("auto_find_batch_size from 32", STEP, {"auto_find_batch_size": True}),
    ]


def by_the_trainer(strategy: Strategy, clips: Spoken, held_out: Spoken, memory: Memory, epochs: int, seed: int) -> Run:
    from transformers import TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=strategy.batch, gradient_accumulation_steps=STEP // strategy.batch,
            num_train_epochs=epochs, seed=seed, **COMMON, **strategy.settings,
        )  # fmt: skip
        trainer = silent_trainer(model(seed), arguments, clips)
        return measured(trainer, trainer.train, held_out, memory)


def by_the_plan(clips: Spoken, held_out: Spoken, memory: Memory, epochs: int, seed: int) -> Run:
    began, start = cpu_s(), model(seed)
    manager = planned(clips, start, memory, epochs)
    assert manager.config is not None
    with tempfile.TemporaryDirectory() as folder:
        arguments = manager.config.to_training_arguments(folder, seed=seed, **COMMON)
        trainer = silent_trainer(start, arguments, clips)
        guard = manager.attach(trainer)
        before = cpu_s() - began
        run = measured(trainer, lambda: manager.train(trainer, verbose=False), held_out, memory)
        guard.detach()
    return run._replace(before_s=before)


def planned(clips: Spoken, start: Any, memory: Memory, epochs: int, policy: str = "fastest") -> ac.ASRConfigManager:
    import numpy

    manager, silence = ac.ASRConfigManager(), numpy.zeros(round(RATE * LONGEST_S), dtype=numpy.float32)
    manager.hardware = memory.hardware
    arrays = [{"array": silence[: round(RATE * s)], "sampling_rate": RATE} for s in clips.durations]
    manager.profile_dataset(arrays, progress=False)
    manager.profile_model(start)
    manager.plan(ac.PlanOptions(target_batch_size=STEP, num_train_epochs=float(epochs), policy=policy))
    return manager


def measured(trainer: Any, train: Any, held_out: Spoken, memory: Memory) -> Run:
    """Train, and look at what was computed; out of memory that nobody survives is a result, too."""
    import torch

    watched = Watched(trainer.model, memory.table)
    cpu, wall, ended = cpu_s(), time.perf_counter(), True
    try:
        train()
    except torch.OutOfMemoryError:
        ended = False
    cpu, wall = cpu_s() - cpu, time.perf_counter() - wall
    clips = trainer.train_dataset
    spoken = sum(clips.durations) * trainer.args.num_train_epochs
    return Run(
        cpu, wall, len(clips) * trainer.args.num_train_epochs / cpu if ended else None,
        loss_of(trainer.model, held_out, 8) if ended else float("nan"), len(watched.sizes),
        1 - spoken / watched.seconds if ended else float("nan"), max(watched.sizes, default=0),
        trainer.state.global_step, watched.refused,
    )  # fmt: skip


def rounds(clips: Spoken, held_out: Spoken, memory: Memory, epochs: int, count: int) -> dict[str, list[Run]]:
    """Every strategy in every round, begun with another one each time."""
    todo: dict[str, Any] = {
        strategy.name: lambda seed, strategy=strategy: by_the_trainer(strategy, clips, held_out, memory, epochs, seed)
        for strategy in strategies()
    }
    todo[OURS] = lambda seed: by_the_plan(clips, held_out, memory, epochs, seed)
    names, runs = list(todo), {name: [] for name in todo}
    for turn in range(count):
        at = turn * len(names) // count
        for name in names[at:] + names[:at]:
            runs[name].append(todo[name](turn + 1))
            print(f"  round {turn + 1}: {name}: {runs[name][-1].cpu:.1f} s of CPU", file=sys.stderr)
    return runs


def median(runs: list[Run], field: str) -> float:
    return statistics.median(getattr(run, field) for run in runs)


def show(by_name: dict[str, list[Run]]) -> None:
    base = median(by_name[SAFE], "speed")
    print("| | samples/s | ratio | by wall time | padding | micro-batches | largest | steps | loss: seeds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    slow = median(by_name[SAFE], "wall")
    for name, runs in by_name.items():
        last = runs[-1]
        if last.speed is None:
            print(f"| {name} | out of memory in step {last.steps + 1} | | | | | | | |")
            continue
        losses = ", ".join(f"{run.loss:.3f}" for run in runs)
        speed = median(runs, "speed")
        print(
            f"| {name} | {speed:.1f} | {speed / base:.2f}× | {slow / median(runs, 'wall'):.2f}× "
            f"| {median(runs, 'padding'):.1%} | {median(runs, 'micro_batches'):.0f} | {last.largest} | {last.steps} "
            f"| {statistics.mean(run.loss for run in runs):.3f}: {losses} |"
        )


def best_grouping(by_name: dict[str, list[Run]]) -> str:
    grouped = [name for name, runs in by_name.items() if name.startswith("group") and runs[-1].speed is not None]
    return max(grouped, key=lambda name: median(by_name[name], "speed"))


def faster(runs: dict[str, list[Run]], than: str, name: str = OURS) -> list[float]:
    """How many times faster one strategy is than another, in each round."""
    return [a.speed / b.speed for a, b in zip(runs[name], runs[than], strict=True) if a.speed and b.speed]


def figures(runs: dict[str, list[Run]]) -> dict[str, float]:
    """What README and guides quote: medians of the ratios within each round."""
    best = best_grouping(runs)
    pairs = {
        "plan_vs_batch1": faster(runs, SAFE),
        "plan_vs_published": faster(runs, FIXED),
        "plan_vs_grouping": faster(runs, best),
        "fixed_vs_batch1": faster(runs, SAFE, FIXED),
        "grouping_vs_batch1": faster(runs, SAFE, best),
    }
    return {"plan_rounds": len(runs[OURS]), **{name: statistics.median(ratios) for name, ratios in pairs.items()}}


def judged(runs: dict[str, list[Run]]) -> bool:
    """Print every aim and whether it is reached. Ratios are medians of those within each round."""
    aims = {SAFE: 2.6, FIXED: 1.5, best_grouping(runs): 1.0}
    good, ours = True, runs[OURS]
    for name, aim in aims.items():
        ratios = faster(runs, name)
        good &= (reached := statistics.median(ratios) >= aim)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{statistics.median(ratios):.2f}× {name} ({spread}), aim {aim}: {'reached' if reached else 'MISSED'}")
    others = [name for name in aims if not name.startswith("group")]  # grouping by length has a higher loss
    losses = [statistics.mean(run.loss for run in runs[name]) for name in others]
    noise = max(max(r.loss for r in runs[name]) - min(r.loss for r in runs[name]) for name in others)
    away = max(abs(statistics.mean(run.loss for run in ours) - loss) for loss in losses)
    print(f"loss: {away:.3f} from the farther of {' and '.join(others)}, seeds differ by up to {noise:.3f}: ", end="")
    print("reached" if away <= noise else "MISSED")
    refused = sum(run.refused for run in ours)
    print(f"micro-batches of the plan over the memory: {refused}; planning, tracing and attaching took ", end="")
    print(", ".join(f"{run.before_s:.1f}" for run in ours), "s of CPU")
    return good and away <= noise and not refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clips", type=int, default=640)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    options = parser.parse_args()
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["ASRCONFIG_CACHE"] = cache
        rate, overhead = overhead_of(model(0), RATE)
        print(f"A second of audio takes {1000 * rate:.2f} ms, a micro-batch as much as {overhead:.1f} s besides")
        memory, clips = Memory(), clips_of(options.clips)
        held_out = Spoken(sorted(clips_of(128).durations), RATE, first=options.clips)
        manager, formula = (
            planned(clips, model(0), memory, options.epochs, p).config for p in ("fastest", "published")
        )
        assert manager is not None and formula is not None
        fits = fits_in(memory.table, LONGEST_S)
        print(
            f"Memory: {memory.bytes / 1e6:.0f} MB; {fits} of {LONGEST_S:g} s fit, {memory.table[0][1]} of the shortest"
        )
        print(f"The plan: {manager.length_handling} steps, {manager.micro_batching}; the published formula: ", end="")
        print(f"{formula.per_device_train_batch_size} × {formula.gradient_accumulation_steps}", flush=True)
        runs = rounds(clips, held_out, memory, options.epochs, options.rounds)
    print(f"\nload {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} thread, torch {torch.__version__}\n")
    show(runs)
    print()
    if options.json:
        options.json.write_text(json.dumps(figures(runs)))
    sys.exit(0 if judged(runs) else 1)


if __name__ == "__main__":
    main()
