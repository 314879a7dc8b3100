"""What guard and callback cost a training step in which nothing happens, in trainings that take their steps by turns.

    python benchmarks/step_cost.py [--beside CHECKOUT] [--json FILE] [--rounds 150] [--long-rounds 50]

Trainers of one small wav2vec2, without anything (twice, which shows what can be told apart), with the guard, with the
callback, and with both, train in one process: one takes a step, then the next one, in an order that changes. A step is
all from one end of a step to the next, loader and logging (every 10 steps) included, in processor time of the thread
that trains. What counts is the median, over rounds, of the difference from the step without anything in the same
round. The first steps, in which the guard measures the loss, are added up on their own.

Aims: both together 0.3 ms of a step of 12 to 15 ms, and 0.1 % of one of about 300 ms by those microseconds; the
difference in the long step itself is printed, but is as unsteady as the two without anything are. With ``--beside``,
another checkout (with its library built) is measured by the same script by turns with this one, three times each; its
figures stand beside ours with the ratio. Exit status 1 when an aim is missed.
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
from asrconfig_go.guard import attach

WAYS = ("plain", "plain again", "guard", "callback", "guard + callback")
BOTH = WAYS[4]
AIM_US, AIM_SHARE = 300.0, 0.001
SIZES: dict[str, dict[str, int]] = {
    "short": {"hidden_size": 48, "num_hidden_layers": 4, "clips": 2, "samples": 4_000, "skipped": 60},
    "long": {"hidden_size": 256, "num_hidden_layers": 4, "clips": 8, "samples": 32_000, "skipped": 10},
}


class Turns:
    """Lets trainings, each in a thread of its own, take one step after the other."""

    def __init__(self, ways: tuple[str, ...]) -> None:
        self._ways, self._order, self._change = ways, list(ways), threading.Condition()
        self._left, self._drawn = list(ways), random.Random(0)

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


def measure(size: dict[str, int], rounds: int) -> dict[str, Any]:
    """Milliseconds of the step without anything, microseconds that each way takes more, and in the first steps."""
    turns, clocks = Turns(WAYS), {}
    with tempfile.TemporaryDirectory() as folder:

        def run(way: str) -> None:
            turns.wait(way)
            trainer_of(way, size, size["skipped"] + rounds, clocks[way], folder).train()

        clocks = {way: StepClock(way, turns) for way in WAYS}
        threads = [threading.Thread(target=run, args=(way,), daemon=True) for way in WAYS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    first = {way: clock.took[: size["skipped"]] for way, clock in clocks.items()}
    steps = {way: clock.took[size["skipped"] :] for way, clock in clocks.items()}
    plain = steps["plain"]
    return {
        "step_ms": 1e3 * statistics.median(plain),
        "more_us": {w: 1e6 * statistics.median(_differences(steps[w], plain)) for w in WAYS[1:]},
        "first_ms": {w: 1e3 * sum(_differences(first[w], first["plain"])) for w in WAYS[1:]},
    }


def _differences(some: list[float], others: list[float]) -> list[float]:
    return [a - b for a, b in zip(some, others, strict=True)]


def elsewhere(checkout: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What this script measures of another checkout."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        own = ["--json", file.name, "--rounds", str(options.rounds), "--long-rounds", str(options.long_rounds)]
        environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "python")}
        subprocess.run([sys.executable, __file__, *own], env=environment, stdout=subprocess.DEVNULL, check=False)
        found: dict[str, Any] = json.loads(Path(file.name).read_text())
        return found


def medians(runs: list[Any]) -> Any:
    """The same with the median of each figure."""
    if isinstance(runs[0], dict):
        return {key: medians([run[key] for run in runs]) for key in runs[0]}
    return statistics.median(runs)


def printed(ours: dict[str, Any], others: dict[str, Any] | None) -> None:
    for size, found in ours.items():
        print(f"{size} step: {found['step_ms']:.1f} ms")
        for what, unit in (("more_us", "µs more a step"), ("first_ms", "ms more in the first steps")):
            for way, value in found[what].items():
                beside = f"{value:9.0f}"
                if others is not None:
                    before = others[size][what][way]
                    beside = f"{before:9.0f} → {value:6.0f}, ×{value / before:.2f}"
                print(f"  {way:<17}{beside} {unit}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=150, help="steps of each training that count")
    parser.add_argument("--long-rounds", type=int, default=50, help="the same of the long steps; 0: none")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout to compare with")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    hf_logging.set_verbosity_error()
    logging.getLogger("asrconfig_go").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    others = None
    if options.beside:
        here = Path(__file__).resolve().parents[1]
        runs = [[elsewhere(side, options) for side in (options.beside, here)] for _ in range(3)]
        others, ours = medians([old for old, _ in runs]), medians([new for _, new in runs])
    else:
        counts = {"short": options.rounds, "long": options.long_rounds}
        ours = {name: measure(size, counts[name]) for name, size in SIZES.items() if counts[name]}
    printed(ours, others)
    own = ours["short"]["more_us"][BOTH]
    share = own / 1e3 / ours["long"]["step_ms"] if "long" in ours else None
    print(f"both: {own:.0f} µs of a short step, aim {AIM_US:.0f}, ratio {own / AIM_US:.2f}")
    if share is not None:
        print(f"      {share:.3%} of a long step, aim {AIM_SHARE:.1%}, ratio {share / AIM_SHARE:.2f}")
    if options.json:
        aims = {"aim_us": AIM_US, "aim_share": AIM_SHARE, "share_of_long": share}
        options.json.write_text(json.dumps(ours if others is None and not options.beside else {**ours}, indent=2))
        del aims
    return int(own > AIM_US or (share or 0.0) > AIM_SHARE)


if __name__ == "__main__":
    sys.exit(main())
