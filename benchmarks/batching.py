"""Padding, memory use and time of every way to make batches, by simulation and in real trainings on the CPU.

    python benchmarks/batching.py [--clips 100000] [--no-training | --only-training] [--rounds 3]

First an epoch of log-normal, heavy-tailed (Pareto) and LibriSpeech-like durations by every strategy, for steps of 32,
64 and 128 clips and cards on which 120 or 240 padded seconds fit; then how long a million clips take; then a small
wav2vec2 with steps of 32 clips on a card on which 64 padded seconds would fit: the Trainer in random order and grouped
by length at the micro-batch size that the longest clip allows, and steps made by ``StepSampler``, split by memory under
the guard. A second of its audio has 2000 samples, so that a micro-batch's own cost weighs about as it does on a GPU; it
is measured first, and prediction and measurement are compared with each other. Rounds are interleaved, medians shown,
and time is that of the CPU (one thread), as other work on the machine would count otherwise.

Exit status 1 when an aim is missed: stratified steps with at most 5 % padding wherever random order pays 30 % and
more, and no micro-batch over the limit.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from array import array

from cpu_training import (
    Spoken,
    cpu_s,
    grouped_by_length,
    loss_of,
    overhead_of,
    silent_trainer,
    small_model,
    use_one_thread,
)

import asrconfig_go as ac
from asrconfig_go.predict import cost_of_longest
from asrconfig_go.train import use_batches

LIMIT_S, STEP, RATE = 64.0, 32, 2000  # of the real trainings; samples in a second


def log_normal(source: random.Random) -> float:
    return min(30.0, source.lognormvariate(1.8, 0.6))


def heavy_tailed(source: random.Random) -> float:
    return min(60.0, 2.0 * source.paretovariate(1.6))


def librispeech(source: random.Random) -> float:
    """Most of its utterances were cut at silences to last 12 to 16.5 s; the rest are spread evenly below."""
    return source.uniform(1.4, 12.0) if source.random() < 0.37 else min(24.5, source.triangular(11.0, 17.0, 15.5))


def table(padded_s: float, longest: float) -> list[tuple[float, int]]:
    """A card on which so many padded seconds fit, and at least one clip of any length."""
    return [(s / 2, max(1, int(padded_s / (s / 2)))) for s in range(1, int(2 * longest) + 2)]


def simulate(clips: int) -> bool:
    """Print an epoch of each kind of data; whether the aims are reached."""
    good = True
    for draw in (log_normal, heavy_tailed, librispeech):
        source = random.Random(1)
        durations = array("d", (draw(source) for _ in range(clips)))
        for step in (32, 64, 128):
            for padded_s in (120, 240):
                report = ac.compare_batching(durations, step, table(padded_s, max(durations)))
                plain, even = report.strategies[0], report.find("stratified", "optimal")
                print(f"\n{draw.__name__}, steps of {step}, {padded_s} padded seconds fit: {report!r}")
                over = sum(s.over_memory for s in report.strategies)
                if over or (plain.padding >= 0.3 and even.padding > 0.05):
                    good = False
                    print(f"  MISSED: stratified padding {even.padding:.1%}; {over} over the limit")
    return good


def time_a_million() -> None:
    source = random.Random(1)
    durations = array("d", (log_normal(source) for _ in range(1_000_000)))
    memory = table(120, 30)
    for name, ask in {
        "compare_batching, six strategies": lambda: ac.compare_batching(durations, 32, memory),
        "StepSampler, stratified, one epoch's order": lambda: list(
            ac.StepSampler(durations, 32, mode="stratified", memory=memory)
        ),
        "cost_of_longest": lambda: cost_of_longest(durations, 32, memory, [25, 20, 15]),
    }.items():
        wall, cpu = time.perf_counter(), cpu_s()
        ask()
        print(f"10^6 clips: {name}: {time.perf_counter() - wall:.2f} s, {cpu_s() - cpu:.2f} s of CPU")


class Card:
    """What a memory model would say of a card on which so many padded seconds fit."""

    class target:
        limit_bytes = 1

    def __init__(self, rows: list[tuple[float, int]]) -> None:
        self.about, self.rows = {"length_per_second": float(RATE)}, rows

    def largest_batch(self, seconds: float, limit: int | None = None, *, near: int = 1) -> int:
        return next((batch for up_to, batch in self.rows if up_to >= seconds), 0)


def training(
    way: str, durations: list[float], rows: list[tuple[float, int]], one: int, overhead: float
) -> tuple[float, int, float]:
    """Samples a second of CPU, optimizer steps and the loss afterwards; ``one`` is the micro-batch size for all."""
    from transformers import TrainingArguments

    size = one if way in ("random, one size", "grouped, one size") else STEP
    settings = grouped_by_length() if way == "grouped, one size" else {}
    clips = Spoken(durations, RATE)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=size, gradient_accumulation_steps=STEP // size, num_train_epochs=1,
            save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True, logging_steps=1,
            remove_unused_columns=False, learning_rate=1e-4, **settings,
        )  # fmt: skip
        trainer = silent_trainer(small_model(), arguments, clips)
        if size == STEP:
            from asrconfig_go.guard import attach

            mode = way.split(",")[0]
            use_batches(trainer, ac.StepSampler(durations, STEP, mode=mode, memory=rows, seed=3))
            attach(trainer, memory=Card(rows), overhead_s=overhead)
        begin = time.process_time()
        trainer.train()
        took = time.process_time() - begin
    return len(durations) / took, trainer.state.global_step, loss_of(trainer.model, Spoken(durations[:STEP], RATE))


def trainings(rounds: int) -> None:
    use_one_thread()
    source = random.Random(2)
    durations = [min(16.0, source.lognormvariate(1.2, 0.7)) for _ in range(40 * STEP)]
    rows = table(LIMIT_S, 16.0)
    rate, overhead = overhead_of(small_model(), RATE)
    print(f"\nA second of audio takes {1000 * rate:.2f} ms, a micro-batch as much as {overhead:.1f} s of audio besides")
    report = ac.compare_batching(durations, STEP, rows, overhead_s=overhead)
    print(report)
    ways: dict[str, tuple[str, str]] = {
        "random, one size": ("random", "fixed"),
        "grouped, one size": ("grouped", "fixed"),
        "random, sized by memory": ("random", "optimal"),
        "bucketed, sized by memory": ("bucketed", "optimal"),
        "stratified, sized by memory": ("stratified", "optimal"),
    }
    results: dict[str, list[tuple[float, int, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            results[way].append(training(way, durations, rows, report.strategies[0].micro_batch or 1, overhead))
    base = statistics.median(result[0] for result in results["random, one size"])
    print(f"\n{'':<26} samples/s  ratio  predicted  steps  loss after")
    for way, names in ways.items():
        speed = statistics.median(result[0] for result in results[way])
        steps, loss = results[way][0][1:]
        predicted = report.find(*names).speed
        print(f"{way:<26} {speed:>9.1f}  {speed / base:>4.2f}×  {predicted:>8.2f}×  {steps:>5}  {loss:>10.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("--only-training", action="store_true")
    options = parser.parse_args()
    good = True
    if not options.only_training:
        good = simulate(options.clips)
        time_a_million()
    if not options.no_training:
        trainings(options.rounds)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
