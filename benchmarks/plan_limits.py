"""Whether steps cut by predicted memory stay within it over whole runs, and how much of it they use.

    python benchmarks/plan_limits.py [--steps 10000] [--clips 100000] [--only WORD] [--samples 32] [--order stratified]

For twelve pairs of a model and a card, and two kinds of data (log-normal durations of up to 30 s, heavy-tailed ones of
up to 60 s): steps of 32 clips by ``StepSampler``, stratified as plans have it or with ``--order random``, cut as
the guard cuts them by ``memory_table`` for a budget of 0.85 × the card's memory − the CUDA context, played one after
the other through the simulated allocator. It may reserve the whole card but for the context, as PyTorch's own may; or,
harder (with ``--setups all``), no more than the budget. ``expandable`` is PYTORCH_ALLOC_CONF=expandable_segments:True.
Models that normalise over time keep the padding of the whole step under the guard, so that their steps are bucketed and
not trimmed. Whisper pads every clip to 30 s, whatever is done: what its padding row says is the model's, and clips are
of at most 30 s.

``over`` counts steps in which a micro-batch was out of memory, aim 0 on the card with expandable segments; ``use`` is
the most allocated in a micro-batch as a share of the budget, mean and weighted by time; ``padding`` is compared with
random order at the one micro-batch that the longest clip allows. The cut that takes least time does not fill the
memory where a step's clips differ. So one more row shows the fullest steps: in as few micro-batches as can be, so
large that no more than a quarter of the clips fit a fourth of a step at once. They have the aim of 87 % (by time).
Stratified steps have the aim of 5 % padding where random order pays 30 %.
Exit status 1 when an aim is missed that is one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from batching import heavy_tailed, log_normal

import asrconfig_go as ac
from asrconfig_go._core.declared import OVERHEAD_S
from asrconfig_go.predict import memory_table
from asrconfig_go.predict.length_table import fits_in

MARGIN = 0.85
FEWEST = 1e6  # seconds of audio that a micro-batch is said to cost, so that as few as can be are made


class Pair(NamedTuple):
    model: str
    gpu: str
    precision: str
    checkpointing: bool = False
    trimmed: bool = True  # no norms over time
    longest_s: float = 60.0


class Row(NamedTuple):
    good: bool  # the aims are reached
    enough: int | None  # clips of a step that could fill the memory, where these cannot


class AllocatorSetup(NamedTuple):
    name: str
    allocator: str
    whole_card: bool  # to reserve, and not the budget alone
    counts: bool  # whether its figures are aims


SETUPS = (
    AllocatorSetup("default, card", "", True, False),
    AllocatorSetup("expandable, budget", "expandable_segments:True", False, False),
    AllocatorSetup("expandable, card", "expandable_segments:True", True, True),
)
COLUMNS = (
    "model", "card", "settings", "data", "clips a step, order", "allocator", "over", "use", "by time", "peak reserved",
    "padding: random → ours", "micro-batches a step", "cache given back", "a fourth fits", "CPU",
)  # fmt: skip
PAIRS = (
    Pair("facebook/wav2vec2-base", "T4", "fp16", trimmed=False),
    Pair("facebook/wav2vec2-xls-r-300m", "T4", "fp16", checkpointing=True),
    Pair("facebook/wav2vec2-xls-r-300m", "L4", "bf16"),
    Pair("facebook/wav2vec2-xls-r-1b", "A100-40GB", "bf16", checkpointing=True),
    Pair("facebook/hubert-large-ll60k", "A10G", "bf16"),
    Pair("facebook/hubert-large-ll60k", "V100", "fp16", checkpointing=True),
    Pair("microsoft/wavlm-base-plus", "RTX 3090", "bf16", trimmed=False),
    Pair("facebook/w2v-bert-2.0", "RTX 3090", "bf16", checkpointing=True),
    Pair("facebook/data2vec-audio-base", "T4", "fp16"),
    Pair("openai/whisper-base", "T4", "fp16", longest_s=30.0),
    Pair("openai/whisper-small", "L4", "bf16", longest_s=30.0),
    Pair("openai/whisper-medium", "A100-40GB", "bf16", longest_s=30.0),
)


def data(draw: Callable[[random.Random], float], clips: int, longest_s: float) -> list[float]:
    source = random.Random(1)
    return [max(0.5, min(longest_s, draw(source))) for _ in range(clips)]


def enough_samples(durations: list[float], table: tuple[tuple[float, int], ...]) -> int:
    """The smallest power of two of which no more than a quarter of the clips fit a fourth of a step at once."""
    sizes = sorted(fits_in(table, s) for s in durations)
    samples = 4
    while samples < 4 * sizes[len(sizes) * 3 // 4]:
        samples *= 2
    return samples


def row(
    pair: Pair,
    name: str,
    durations: list[float],
    steps: int,
    samples: int,
    order: str,
    setup: AllocatorSetup,
    overhead_s: float,
) -> Row:
    """Play and print one line."""
    target = ac.MemoryModel.trace(
        pair.model, precision=pair.precision, gradient_checkpointing=pair.checkpointing, accumulation=3, gpu=pair.gpu,
        allocator=setup.allocator, progress=False,
    )  # fmt: skip
    with target as memory:
        total, context = memory.target.total_bytes, memory.target.context_bytes
        assert total is not None and context is not None
        budget = int(MARGIN * total) - context
        table = memory_table(memory, max(durations), budget)
        if table[-1][1] < 1:
            print(f"{pair.model} on {pair.gpu}: the longest clip does not fit")
            return Row(False, None)
        mode = order if pair.trimmed else "bucketed"
        sampler = ac.StepSampler(durations, samples, mode=mode, memory=table)
        began = time.process_time()
        run = memory.simulate_steps(
            durations, sampler, table=table, count=steps, trim=pair.trimmed, overhead_s=overhead_s,
            limit_bytes=total - context if setup.whole_card else budget,
        )  # fmt: skip
        took = time.process_time() - began
    part = 4 if pair.trimmed else 1
    full_share = sum(part * fits_in(table, s) > samples for s in durations) / len(durations)
    plain = ac.compare_batching(durations, samples, table).find("random", "fixed")
    assert run.limit_bytes is not None and run.use is not None and run.use_by_time is not None
    use, by_time = run.use * run.limit_bytes / budget, run.use_by_time * run.limit_bytes / budget
    settings = pair.precision + (" ckpt" if pair.checkpointing else "") + ("" if pair.trimmed else " group norm")
    print(
        f"| {pair.model.split('/')[-1]} | {pair.gpu} | {settings} | {name} | {samples} {mode} | {setup.name} "
        f"| {run.failed_steps} | {use:.1%} | {by_time:.1%} | {run.peak_reserved / budget:.1%} "
        f"| {plain.padding:.1%} → {run.padding:.1%} | {run.micro_batches / run.steps:.2f} | {run.retries} "
        f"| {full_share:.0%} | {took:.0f} s |",
        flush=True,
    )
    full = by_time >= 0.87 or overhead_s != FEWEST
    padded = run.padding <= 0.05 or mode != "stratified" or plain.padding < 0.3 or pair.longest_s <= 30
    good = not setup.counts or (run.fits and full and padded)
    return Row(good, enough_samples(durations, table) if full_share > 0.25 else None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--clips", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=32, help="clips of an optimizer step")
    parser.add_argument(
        "--order", choices=("random", "stratified"), default="stratified", help="of models that are trimmed"
    )
    parser.add_argument("--setups", choices=("aim", "all"), default="aim", help="of the allocator")
    parser.add_argument("--only", default="", help="pairs with this in their model or card")
    options = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    good = True
    for pair in PAIRS:
        if options.only.lower() not in f"{pair.model} {pair.gpu}".lower():
            continue
        for name, draw in (("log-normal", log_normal), ("heavy-tailed", heavy_tailed)):
            durations = data(draw, options.clips, pair.longest_s)
            for setup in SETUPS if options.setups == "all" else SETUPS[-1:]:
                figures = row(pair, name, durations, options.steps, options.samples, options.order, setup, OVERHEAD_S)
                good &= figures.good
            if figures.enough is not None:
                steps = max(1, options.steps * options.samples // figures.enough)
                good &= row(pair, name, durations, steps, figures.enough, "stratified", setup, FEWEST).good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
