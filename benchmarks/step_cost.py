"""What guard and callback cost a training step in which nothing happens, in trainings that have them every other step.

    python benchmarks/step_cost.py [--beside CHECKOUT] [--json FILE] [--repeats 5] [--rounds 200] [--long-rounds 20]

A small wav2vec2 is trained with the guard, with the callback, with both, and with neither, which shows what can be told
apart. Of each two steps one, drawn anew, is taken with what was attached removed: the Trainer's, its optimizer's and
its accelerator's methods, the callbacks, the hooks of the model. So both sides have the same tensors in the same
places, which makes steps faster or slower by more than is measured here. A step is all from the end of one step to the
end of the next, loader and logging (every 10 steps) included, in processor time of the thread that trains. What counts
is the median over pairs of the difference, and of that the median over processes. What the first steps take, in which
the guard learns what steps change, stands on its own: all of them with it, by the median step without.

Aims: both together 0.15 ms of a short step (8 to 10 ms alone on the machine), and as much as that is not more than
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
import time
import types
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, Wav2Vec2Config, Wav2Vec2ForCTC
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as hf_logging

from asrconfig_go import AdaptiveMemoryCallback
from asrconfig_go.guard import attach

BOTH = "guard + callback"
WAYS = {"short": ("nothing", "guard", "callback", BOTH), "long": ("nothing", BOTH)}
AIMS = {f"short step, {BOTH}: more, us": 150.0, f"long step, {BOTH}: share by the short one's, %": 0.1}
_FUNCTIONS = (types.FunctionType, types.MethodType)
SIZES: dict[str, dict[str, int]] = {
    "short": {"hidden_size": 48, "num_hidden_layers": 2, "clips": 2, "samples": 2_000, "skipped": 60},
    "long": {"hidden_size": 256, "num_hidden_layers": 4, "clips": 8, "samples": 32_000, "skipped": 10},
}


class Attached:
    """What guard and callback have put on a Trainer in training, to be removed and put back."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self._handler = trainer, trainer.callback_handler
        self._owners: list[Any] = [trainer, self._handler]
        self._before = [dict(vars(owner)) for owner in self._owners]
        self._methods: list[tuple[Any, str, Any, Any]] = []

    def training_begins(self) -> None:
        """The optimizer is there, and not followed yet."""
        owners = (self._trainer.accelerator, self._trainer.optimizer)
        self._owners += owners
        self._before += [dict(vars(owner)) for owner in owners]

    def look(self) -> None:
        """All is attached."""
        for owner, before in zip(self._owners, self._before, strict=True):
            for name, value in vars(owner).items():
                if isinstance(value, _FUNCTIONS) and value is not before.get(name):
                    self._methods.append((owner, name, before.get(name), value))
        self._callbacks = list(self._handler.callbacks)
        self._others = [c for c in self._callbacks if not type(c).__module__.startswith("asrconfig_go.")]
        hooks = (self._trainer.model._forward_pre_hooks, self._trainer.model._forward_hooks)
        self._hooks = [(of, dict(of)) for of in hooks]

    def switch(self, on: bool) -> None:
        for owner, name, before, method in self._methods:
            if on or before is not None:
                owner.__dict__[name] = method if on else before
            else:
                owner.__dict__.pop(name, None)
        self._handler.callbacks = list(self._callbacks if on else self._others)
        for of, hooks in self._hooks:
            of.clear()
            of.update(hooks if on else {})


class StepClock(TrainerCallback):  # type: ignore[misc]
    """Processor seconds of each step, with what is attached and without."""

    def __init__(self, skipped: int, rounds: int, seed: int) -> None:
        drawn = random.Random(seed)
        # All at once: a generator that a callback holds is one more that the guard notes before each step.
        orders = [drawn.sample((True, False), 2) for _ in range(rounds)]
        self._skipped, self._next = skipped, [on for order in orders for on in order]
        self.attached: Any = None
        self._on, self._since = True, 0.0
        self.first: list[float] = []
        self.taken: dict[bool, list[float]] = {True: [], False: []}

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.attached.training_begins()
        self._since = time.thread_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        took = time.thread_time() - self._since
        (self.first if state.global_step <= self._skipped else self.taken[self._on]).append(took)
        if state.global_step == self._skipped:
            self.attached.look()
        if state.global_step >= self._skipped and self._next:
            self._on = self._next.pop()
            self.attached.switch(self._on)
        self._since = time.thread_time()

    def more(self) -> list[float]:
        """Seconds that each pair's step with what is attached takes more."""
        return [a - b for a, b in zip(self.taken[True], self.taken[False], strict=True)]


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
            "labels": torch.randint(1, 32, (1 + i % 3,), generator=drawn),
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
    clock.attached = Attached(trainer)
    if "guard" in way:
        attach(trainer)
    return trainer


def measure(name: str, rounds: int, seed: int) -> dict[str, float]:
    """Milliseconds of the step without anything, microseconds that each way takes more, and in the first steps."""
    size, costs = SIZES[name], dict[str, float]()
    skipped = size["skipped"]
    for way in WAYS[name]:
        clock = StepClock(skipped, rounds, seed)
        with tempfile.TemporaryDirectory() as folder:
            trainer_of(way, size, skipped + 2 * rounds, clock, folder).train()
        alone = statistics.median(clock.taken[False])
        costs.setdefault(f"{name} step, ms", 1e3 * alone)
        costs[f"{name} step, {way}: more, us"] = 1e6 * statistics.median(clock.more())
        costs[f"{name} step, {way}: more in the first {skipped}, ms"] = 1e3 * (sum(clock.first) - skipped * alone)
    return costs


def once(options: argparse.Namespace) -> dict[str, float]:
    """All of this process."""
    hf_logging.set_verbosity_error()
    logging.getLogger("asrconfig_go").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    counts = {"short": options.rounds, "long": options.long_rounds}
    costs: dict[str, float] = {}
    for name, count in counts.items():
        costs.update(measure(name, count, options.once) if count else {})
    return costs


def elsewhere(checkout: Path, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """What a process measures of a checkout."""
    own = ["--once", str(seed), "--rounds", str(options.rounds), "--long-rounds", str(options.long_rounds)]
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "python")}
    done = subprocess.run([sys.executable, __file__, *own], env=environment, stdout=subprocess.PIPE, check=True)
    costs: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return costs


def figures(runs: list[dict[str, float]]) -> dict[str, float]:
    """The medians, and what both cost of a long step by the microseconds of a short one."""
    medians = {label: statistics.median(run[label] for run in runs) for label in runs[0]}
    own = medians[f"short step, {BOTH}: more, us"]
    if "long step, ms" in medians:
        medians[f"long step, {BOTH}: share by the short one's, %"] = own / 10 / medians["long step, ms"]
    return medians


def rows_of(ours: dict[str, float], before: dict[str, float] | None) -> list[dict[str, Any]]:
    """Every figure with its aim, if it has one, and the other checkout's."""
    rows = [{"what": label, "value": value, "aim": AIMS.get(label)} for label, value in ours.items()]
    return rows if before is None else [{**row, "before": before[row["what"]]} for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="processes")
    parser.add_argument("--rounds", type=int, default=200, help="pairs of steps of each training, in each process")
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
