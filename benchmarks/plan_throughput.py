"""Clips a second of small models trained by the plan and by other strategies of the same effective batch size.

    OMP_NUM_THREADS=1 python benchmarks/plan_throughput.py [--rounds 5] [--tasks new-head continued whisper]

Every strategy trains the same weights on the same clips (log-normal durations of up to 12 s, 16 kHz, two tones in noise
whose labels are the tones) for as many epochs, 32 clips an optimizer step, and may use the same memory: as much as four
of the longest clips take by a traced step, the batch of the published scenario (XLS-R-1B on an L4). A forward pass of
more clips than the trace allows for their length raises torch.OutOfMemoryError, the Trainer's and ours alike.
The tasks:

- new-head: a wav2vec2 whose body was trained on other clips, with a new head;
- continued: the same with its head;
- whisper: a tiny Whisper from random weights. All its inputs are as long, so that no order saves anything.

The strategies:

- batch 1 × 32, the safe configuration by hand;
- 4 × 8 in random order, the published plan's batch. What the published formula itself gives for this model and memory
  is shown, too;
- the Trainer's group_by_length at 2, 4, 8 and 16, as one would try by hand: the best that ends counts;
- the plan: a manager profiles clips and model on a machine with so much memory and plans, then attach and train. Its
  own time before the first step is shown beside, and not part of the training's.

The order of the strategies turns from round to round, and each round has a seed of its own for weights and orders. Time
is that of the CPU, all threads, as other work on the machine would count otherwise. Ratios are means of those within
rounds, with 95 % confidence intervals by Student's t. The loss is that of 128 other clips afterwards, in one batch size
for all. A worker loads the clips, as on a machine with a GPU, beside the training, whose time alone counts. oneDNN is
off for all (cpu_training.use_one_thread).

Exit status 1 when an aim is missed: no slower than the best length grouping and, where clips have lengths, 1.5 times
random order at the published batch; a loss that differs from theirs by no more than the seeds do.
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

from cpu_training import (
    FRAMES_A_SECOND,
    Heard,
    Spoken,
    cpu_s,
    grouped_by_length,
    loss_of,
    profiled,
    silent_trainer,
    small_model,
    small_whisper,
    use_one_thread,
)

import asrconfig_go as ac
from asrconfig_go.predict import HardwareProfile
from asrconfig_go.predict.length_table import Table, fits_in
from asrconfig_go.predict.memory_settings import Shape

RATE, STEP, PUBLISHED, LONGEST_S = 16_000, 32, 4, 12.0
MARGIN, PROCESS_BYTES = 0.85, 1_000_000_000  # what a plan for a CPU leaves to the process itself
# A micro-batch takes besides what one to three seconds of audio take, up to as much as a mean clip: the planner
# predicts 4 s of XLS-R-300M on a T4, for clips of 7 s. Frames have 40 ms.
BODY: dict[str, Any] = {
    "conv_dim": (32,) * 3, "conv_kernel": (160, 5, 3), "conv_stride": (80, 4, 2), "hidden_size": 192,
    "intermediate_size": 384,
}  # fmt: skip
WARM_UP_CLIPS = 1920  # of the body, in steps of random clips
T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}  # by rounds
COMMON: dict[str, Any] = {
    "save_strategy": "no", "report_to": "none", "use_cpu": True, "dataloader_num_workers": 1,
    "disable_tqdm": True, "logging_steps": 1000,
    "remove_unused_columns": False, "learning_rate": 2e-3, "warmup_steps": 5, "weight_decay": 0.0, "max_grad_norm": 1.0,
}  # fmt: skip
TASKS = ["new-head", "continued", "whisper"]
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


class Task:
    """What is trained: the model of a seed, its clips, and a machine that holds four of the longest."""

    def __init__(self, name: str, clips: int) -> None:
        self.name, self.input = name, "input_features" if name == "whisper" else "input_values"
        self._body: dict[str, Any] = {}
        self.clips, self.held_out = self._clips(clips, 0), self._clips(128, clips)
        if name != "whisper":
            self._body = self._warmed_up()
        # Gradients of one micro-batch lie beside the next, as the guard traces it.
        with ac.MemoryModel.trace(self.model(0), precision="fp32", accumulation=3, progress=False) as memory:
            self.bytes = memory.estimate(PUBLISHED, LONGEST_S, timeline=0).peak_reserved
            lengths = sorted({round(RATE * s) / RATE for s in self.clips.durations})
            fits = memory.largest_batches([Shape(1, s) for s in lengths], self.bytes)
        self.table: Table = tuple(zip(lengths, fits, strict=True))
        hardware = HardwareProfile.detect(safety_margin=MARGIN)
        if hardware.gpus:
            sys.exit("this machine has a GPU: hide it by CUDA_VISIBLE_DEVICES=")
        available = math.ceil((self.bytes + PROCESS_BYTES) / MARGIN) + 1
        ram = dataclasses.replace(hardware.memory, available_bytes=available)
        self.hardware = dataclasses.replace(hardware, memory=ram)

    def _clips(self, count: int, first: int) -> Spoken:
        source = random.Random(2 + first)
        durations = [max(0.5, min(LONGEST_S, source.lognormvariate(0.9, 0.7))) for _ in range(count - 1)]
        kind = Heard if self.name == "whisper" else Spoken
        return kind([LONGEST_S, *(durations if first == 0 else sorted(durations))], RATE, first)

    def model(self, seed: int) -> Any:
        if self.name == "whisper":
            return small_whisper(seed, LONGEST_S)
        made = small_model(seed, **BODY)
        kept = {k: v for k, v in self._body.items() if self.name == "continued" or not k.startswith("lm_head")}
        made.load_state_dict(kept, strict=False)
        return made

    def _warmed_up(self) -> dict[str, Any]:
        """The weights of a model after some steps on other clips."""
        made, clips = self.model(0), self._clips(WARM_UP_CLIPS, 10_000)
        self.trained(made, PUBLISHED, clips, 1, 0, {}).train()
        return dict(made.state_dict())

    def trained(self, model: Any, batch: int, clips: Spoken, epochs: int, seed: int, settings: dict[str, Any]) -> Any:
        """A Trainer of these settings."""
        from transformers import TrainingArguments

        arguments = TrainingArguments(
            tempfile.mkdtemp(), per_device_train_batch_size=batch, gradient_accumulation_steps=STEP // batch,
            num_train_epochs=epochs, seed=seed, **COMMON, **settings,
        )  # fmt: skip
        return silent_trainer(model, arguments, clips)


class Watched:
    """Counts what a model computes in training, and raises where the memory would not suffice."""

    def __init__(self, model: Any, task: Task) -> None:
        self.task, self.sizes, self.seconds, self.refused = task, [], 0.0, 0
        model.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, model: Any, _: Any, inputs: dict[str, Any]) -> None:
        import torch

        if not torch.is_grad_enabled():
            return
        name = self.task.input
        size, length = len(inputs[name]), inputs[name].shape[-1]
        seconds = length / (FRAMES_A_SECOND if name == "input_features" else RATE)
        if size > fits_in(self.task.table, seconds - 1e-9):
            self.refused += 1
            raise torch.OutOfMemoryError(f"CUDA out of memory. {size} clips of {seconds:.2f} s do not fit.")
        self.sizes.append(size)
        self.seconds += size * seconds


def strategies() -> list[Strategy]:
    swept = [Strategy(f"group_by_length, {size} × {STEP // size}", size, grouped_by_length()) for size in (2, 4, 8, 16)]
    return [
        Strategy(SAFE, 1, {}),
        Strategy(FIXED, PUBLISHED, {}),
        *swept,
    ]


def by_the_trainer(strategy: Strategy, task: Task, epochs: int, seed: int) -> Run:
    trainer = task.trained(task.model(seed), strategy.batch, task.clips, epochs, seed, strategy.settings)
    return measured(trainer, trainer.train, task)


def by_the_plan(task: Task, epochs: int, seed: int) -> Run:
    began, start = cpu_s(), task.model(seed)
    manager = planned(task, start, epochs)
    assert manager.config is not None
    arguments = manager.config.to_training_arguments(tempfile.mkdtemp(), seed=seed, **COMMON)
    trainer = silent_trainer(start, arguments, task.clips)
    guard = manager.attach(trainer)
    before = cpu_s() - began
    run = measured(trainer, lambda: manager.train(trainer, verbose=False), task)
    guard.detach()
    return run._replace(before_s=before)


def planned(task: Task, start: Any, epochs: int, policy: str = "fastest") -> ac.ASRConfigManager:
    manager = profiled(task.hardware, task.clips.durations, RATE, start)
    manager.plan(ac.PlanOptions(target_batch_size=STEP, num_train_epochs=float(epochs), policy=policy))
    return manager


def measured(trainer: Any, train: Any, task: Task) -> Run:
    """Train, and look at what was computed; out of memory that nobody survives is a result, too."""
    import torch

    watched = Watched(trainer.model, task)
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
        loss_of(trainer.model, task.held_out, 8) if ended else float("nan"), len(watched.sizes),
        1 - spoken / watched.seconds if ended else float("nan"), max(watched.sizes, default=0),
        trainer.state.global_step, watched.refused,
    )  # fmt: skip


def rounds(task: Task, epochs: int, count: int) -> dict[str, list[Run]]:
    """Every strategy in every round, begun with another one each time."""
    todo: dict[str, Any] = {
        strategy.name: lambda seed, strategy=strategy: by_the_trainer(strategy, task, epochs, seed)
        for strategy in strategies()
    }
    todo[OURS] = lambda seed: by_the_plan(task, epochs, seed)
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
    """What README and guides quote: means of the ratios within each round."""
    best = best_grouping(runs)
    pairs = {
        "plan_vs_batch1": faster(runs, SAFE),
        "plan_vs_published": faster(runs, FIXED),
        "plan_vs_grouping": faster(runs, best),
        "fixed_vs_batch1": faster(runs, SAFE, FIXED),
        "grouping_vs_batch1": faster(runs, SAFE, best),
    }
    return {"plan_rounds": len(runs[OURS]), **{name: statistics.mean(ratios) for name, ratios in pairs.items()}}


def interval(values: list[float]) -> str:
    """Half of the 95 % confidence interval of their mean."""
    if len(values) < 2:
        return "one round"
    return f"± {T_95.get(len(values), 2.0) * statistics.stdev(values) / math.sqrt(len(values)):.2f}"


def judged(task: Task, runs: dict[str, list[Run]]) -> bool:
    """Print every aim and whether it is reached."""
    best = best_grouping(runs)
    aims = {best: 0.98 if task.name == "whisper" else 1.0, SAFE: 1.0}
    if task.name != "whisper":
        aims[FIXED] = 1.5
    good, ours = True, runs[OURS]
    for name, aim in aims.items():
        ratios = faster(runs, name)
        good &= (reached := statistics.mean(ratios) >= aim)
        print(f"{statistics.mean(ratios):.2f}× ({interval(ratios)}) {name}, aim {aim}: ", end="")
        print("reached" if reached else "MISSED")
    base = [run.loss for run in runs[FIXED]]
    for name in (OURS, best):
        apart = [run.loss / loss - 1 for run, loss in zip(runs[name], base, strict=True)]
        print(f"loss of {name}: {statistics.mean(apart):+.2%} ({interval([100 * x for x in apart])} %) of {FIXED}")
    noise = max(base) - min(base)
    away = abs(statistics.mean(run.loss for run in ours) - statistics.mean(base))
    print(f"loss: {away:.3f} from {FIXED}, whose seeds differ by {noise:.3f}: ", end="")
    print("reached" if away <= noise else "MISSED")
    refused = sum(run.refused for run in ours)
    print(f"micro-batches of the plan over the memory: {refused}; planning, tracing and attaching took ", end="")
    print(", ".join(f"{run.before_s:.1f}" for run in ours), "s of CPU")
    return good and away <= noise and not refused


def run_task(name: str, options: argparse.Namespace) -> tuple[dict[str, list[Run]], bool]:
    task = Task(name, options.clips)
    manager, formula = (planned(task, task.model(0), options.epochs, p).config for p in ("fastest", "published"))
    assert manager is not None and formula is not None
    print(f"\n## {name}\n\nMemory: {task.bytes / 1e6:.0f} MB; {fits_in(task.table, LONGEST_S)} of {LONGEST_S:g} s fit")
    print(f"The plan: {manager.length_handling} steps, {manager.micro_batching}; the published formula: ", end="")
    print(f"{formula.per_device_train_batch_size} × {formula.gradient_accumulation_steps}", flush=True)
    runs = rounds(task, options.epochs, options.rounds)
    print(f"load {os.getloadavg()[0]:.1f}\n")
    show(runs)
    print()
    return runs, judged(task, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clips", type=int, default=640)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of the first task to it as well")
    options = parser.parse_args()
    import torch
    import transformers

    use_one_thread()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    print(f"{torch.get_num_threads()} thread, torch {torch.__version__}, without oneDNN")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ASRCONFIG_CACHE"] = os.environ["TMPDIR"] = tempfile.tempdir = folder
        results = [run_task(name, options) for name in options.tasks]
    if options.json:
        options.json.write_text(json.dumps(figures(results[0][0])))
    sys.exit(0 if all(good for _, good in results) else 1)


if __name__ == "__main__":
    main()
