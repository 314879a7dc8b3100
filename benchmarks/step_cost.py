"""What guard and callback cost a training step in which nothing happens, in trainings that take their steps by turns.

    python benchmarks/step_cost.py [--beside CHECKOUT] [--json FILE] [--repeats 5] [--rounds 60] [--long-rounds 20]

Trainers of one small wav2vec2, without anything (twice, which shows what can be told apart), with the guard, with the
callback, and with both, train in one process: one takes a step, then the next one, in an order that changes. A step is
all from one end of a step to the next, loader and logging (every 10 steps) included, in processor time of the thread
that trains. What counts is the median, over rounds, of the difference from the step without anything in the same
round, and of that the median over processes: where a training's tensors lie makes it faster or slower, too. The first
steps, in which the guard learns what steps change, are added up on their own. So is what the guard looks at in each step for
bad clips, alone: the loss, two gradients, the rows of the batch, the norm of the step before.

Aims: both together 0.15 ms of a short step (12 to 15 ms alone on the machine), and as much as that is not more than
0.1 % of a long one (about 300 ms). With ``--beside``, another checkout with its library built is measured by this
script by turns with this one, and its figures stand before ours. Exit status 1 when an aim is missed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, Wav2Vec2Config, Wav2Vec2ForCTC
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as hf_logging

from asrconfig_go import AdaptiveMemoryCallback
from asrconfig_go.guard import attach, guard_of

PLAIN, BOTH = "plain", "guard + callback"
WAYS = {"short": (PLAIN, "plain again", "guard", "callback", BOTH), "long": (PLAIN, "plain again", BOTH)}
LOOK = "look for bad clips"
AIMS = {
    f"short step, {BOTH}: more, us": 150.0,
    f"long step, {BOTH}: share by the short one's, %": 0.1,
    f"{LOOK}, share of a long step, %": 0.1,
}
SIZES: dict[str, dict[str, int]] = {
    "short": {"hidden_size": 48, "num_hidden_layers": 4, "clips": 2, "samples": 4_000, "skipped": 60},
    "long": {"hidden_size": 256, "num_hidden_layers": 4, "clips": 8, "samples": 32_000, "skipped": 10},
}


class Turns:
    """Lets trainings, each in a thread of its own, take one step after the other."""

    def __init__(self, ways: tuple[str, ...], seed: int) -> None:
        self._order, self._change, self._drawn = list(ways), threading.Condition(), random.Random(seed)
        self._drawn.shuffle(self._order)
        self._left = list(self._order)

    def wait(self, way: str) -> None:
        """Until it is the turn of ``way``."""
        with self._change:
            self._change.wait_for(lambda: self._left[0] == way)

    def next(self) -> None:
        """The turn of the next training."""
        with self._change:
            self._left.pop(0)
            if not self._left:
                self._drawn.shuffle(self._order)
                self._left = list(self._order)
            self._change.notify_all()


class StepClock(TrainerCallback):  # type: ignore[misc]
    """Processor seconds of each step; waits for its turn in between."""

    def __init__(self, way: str, turns: Turns) -> None:
        self.way, self.turns, self.took, self._since = way, turns, [], 0.0  # type: ignore[var-annotated]

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._since = time.thread_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.took.append(time.thread_time() - self._since)
        self.turns.next()
        if state.global_step < state.max_steps:
            self.turns.wait(self.way)
        self._since = time.thread_time()


class Clips(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Noise."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        drawn = torch.Generator().manual_seed(i)
        return {
            "input_values": torch.randn(self._samples, generator=drawn),
            "attention_mask": torch.ones(self._samples, dtype=torch.long),
            "labels": torch.randint(1, 32, (4 + i % 3,), generator=drawn),
        }


def collate(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Only labels are of different lengths."""
    labels = torch.nn.utils.rnn.pad_sequence([row.pop("labels") for row in rows], True, -100)
    return {**torch.utils.data.default_collate(rows), "labels": labels}


def trainer_of(way: str, size: dict[str, int], steps: int, clock: StepClock, folder: str) -> Trainer:
    torch.manual_seed(0)
    config = Wav2Vec2Config(
        vocab_size=32,
        hidden_size=size["hidden_size"],
        num_hidden_layers=size["num_hidden_layers"],
        num_attention_heads=4,
        intermediate_size=4 * size["hidden_size"],
        conv_dim=(32,) * 7,
        feat_extract_norm="layer",
        do_stable_layer_norm=True,
        apply_spec_augment=False,
        ctc_loss_reduction="mean",
    )
    trainer = Trainer(
        Wav2Vec2ForCTC(config),
        TrainingArguments(
            f"{folder}/{way}",
            per_device_train_batch_size=size["clips"],
            max_steps=steps,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
        ),
        train_dataset=Clips(size["samples"]),
        data_collator=collate,
        callbacks=[AdaptiveMemoryCallback(), clock] if "callback" in way else [clock],
    )
    trainer.remove_callback(PrinterCallback)
    if "guard" in way:
        attach(trainer)
    return trainer


def measure(name: str, rounds: int, seed: int) -> dict[str, float]:
    """Milliseconds of the step without anything, microseconds that each way takes more, and in the first steps."""
    size, ways = SIZES[name], WAYS[name]
    turns = Turns(ways, seed)
    clocks = {way: StepClock(way, turns) for way in ways}
    with tempfile.TemporaryDirectory() as folder:

        def run(way: str) -> None:
            turns.wait(way)
            trainer_of(way, size, size["skipped"] + rounds, clocks[way], folder).train()

        threads = [threading.Thread(target=run, args=(way,), daemon=True) for way in ways]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    plain, skipped = clocks[PLAIN].took, size["skipped"]
    found = {f"{name} step, ms": 1e3 * statistics.median(plain[skipped:])}
    for way in ways[1:]:
        more = [a - b for a, b in zip(clocks[way].took, plain, strict=True)]
        found[f"{name} step, {way}: more, us"] = 1e6 * statistics.median(more[skipped:])
        found[f"{name} step, {way}: more in the first {skipped}, ms"] = 1e3 * sum(more[:skipped])
    return found


def look_us(times: int = 2000) -> float:
    """Microseconds of what a guard does in each step for the sake of bad clips, where there is none.

    0 of an earlier checkout, whose guard does not look.
    """
    with tempfile.TemporaryDirectory() as folder:
        turns = Turns(("guard",), 0)
        trainer = trainer_of("guard", SIZES["short"], 30, StepClock("guard", turns), folder)
        trainer.train()
    guard = guard_of(trainer)
    if guard is None or not hasattr(guard, "_bad"):
        return 0.0
    bad, rows, norm = guard._bad, guard._rows, torch.tensor(1.0)
    for p in bad._probes:
        p.grad = torch.zeros_like(p)
    # What is passed is called where something is wrong; an earlier checkout takes the model first.
    arguments = (trainer.train,) if hasattr(bad, "window_begins") else (trainer.model, None, trainer.train)
    taken = []
    for _ in range(times):
        begin = time.thread_time()
        bad.look(*arguments)
        bad._norms._newest = norm
        bad.step_over()
        rows.fetched(1)
        taken.append(time.thread_time() - begin)
    return 1e6 * statistics.median(taken)


def once(options: argparse.Namespace) -> dict[str, float]:
    """All of this process."""
    hf_logging.set_verbosity_error()
    logging.getLogger("asrconfig_go").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    counts = {"short": options.rounds, "long": options.long_rounds}
    found: dict[str, float] = {}
    for name, count in counts.items():
        found.update(measure(name, count, options.once) if count else {})
    found[f"{LOOK}, us"] = look_us()
    return found


def elsewhere(checkout: Path, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """What a process measures of a checkout."""
    own = ["--once", str(seed), "--rounds", str(options.rounds), "--long-rounds", str(options.long_rounds)]
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "python")}
    done = subprocess.run([sys.executable, __file__, *own], env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def figures(runs: list[dict[str, float]]) -> dict[str, float]:
    """The medians, and what both cost of a long step by the microseconds of a short one."""
    found = {what: statistics.median(run[what] for run in runs) for what in runs[0]}
    own = found[f"short step, {BOTH}: more, us"]
    if "long step, ms" in found:
        found[f"long step, {BOTH}: share by the short one's, %"] = own / 10 / found["long step, ms"]
        found[f"{LOOK}, share of a long step, %"] = found[f"{LOOK}, us"] / 10 / found["long step, ms"]
    return found


def rows_of(ours: dict[str, float], before: dict[str, float] | None) -> list[dict[str, Any]]:
    """Every figure with its aim, if it has one, and the other checkout's."""
    rows = [{"what": what, "value": value, "aim": AIMS.get(what)} for what, value in ours.items()]
    return rows if before is None else [{**row, "before": before[row["what"]]} for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="processes")
    parser.add_argument("--rounds", type=int, default=60, help="steps of each training that count, in each process")
    parser.add_argument("--long-rounds", type=int, default=20, help="the same of the long steps; 0: none")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout to compare with")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--once", type=int, metavar="SEED", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once is not None:
        print(json.dumps(once(options)))
        return 0
    sides = [Path(__file__).resolve().parents[1], *([options.beside] if options.beside else [])]
    runs = [[elsewhere(side, seed, options) for side in sides] for seed in range(options.repeats)]
    ours, *before = [figures([run[i] for run in runs]) for i in range(len(sides))]
    rows = rows_of(ours, before[0] if before else None)
    for row in rows:
        earlier = f"{row['before']:10.2f} →" if before else ""
        aim = "" if row["aim"] is None else f"   aim {row['aim']:g}, ratio {row['value'] / row['aim']:.2f}"
        print(f"{row['what']:<58}{earlier}{row['value']:10.2f}{aim}")
    if options.json:
        options.json.write_text(json.dumps({"figures": rows}, indent=2, ensure_ascii=False) + "\n")
    return int(any(row["aim"] is not None and row["value"] > row["aim"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
