"""Trainings with checkpoints, killed by SIGKILL at random moments and resumed until they are done.

    python benchmarks/killed_training.py [--runs 30] [--seed 1] [--plain] [--json FILE]

A small wav2vec2 with CTC and dropout, Adam, 5 epochs of 48 clips in 4 × 2, on the CPU; every other training groups its
batches by length and saves every second step instead of every third. Each is killed at least once: at a moment of its
whole duration, or, one in three, while it saves; what is resumed may be killed again. In the end its weights and
the clips of every optimizer step are compared with those of the training that nobody disturbed. Processes are forked
from one that has only imported: imports take longer than a training.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import logging as hf_logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests" / "helpers"))
import asrconfig_go.train.restart
from asrconfig_go import ASRConfigManager
from asrconfig_go.guard import attach
from asrconfig_go.train import guarded_training
from speech_models import wav2vec2
from tiny_training import Grouped

AIM = 1e-6
CLIPS, EPOCHS, STEPS = 48, 5, 30
TIMEOUT_S = 120
PHASES = ("before", "forward", "backward", "a callback", "saving", "an epoch's begin")
PRELOADED = (asrconfig_go.train.restart, guarded_training, attach)
Place = SynchronizedArray  # of phase, step, times that saving began and its seconds
Kind = tuple[bool, bool]  # grouped by length; by the Trainer alone


class Speech(torch.utils.data.Dataset):  # type: ignore[misc]
    """Clips of noise with labels and their number."""

    def __init__(self) -> None:
        source = torch.Generator().manual_seed(1)
        self.x = torch.randn(CLIPS, 800, generator=source)
        self.y = torch.randint(3, 8, (CLIPS, 4), generator=source)

    def __len__(self) -> int:
        return CLIPS

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"input_values": self.x[i], "labels": self.y[i]}


class Teller(TrainerCallback):
    """Says where a training is, and writes down the clips of every optimizer step."""

    def __init__(self, place: Place, file: Path, data: Speech) -> None:
        self.place, self.file, self.seen = place, file, list[int]()
        self.number = {float(x[0]): i for i, x in enumerate(data.x)}

    def forward(self, model: Any, args: Any, kwargs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            self.place[0] = 1
            self.seen += [self.number[float(x[0])] for x in kwargs["input_values"]]

    def on_epoch_begin(self, *_: Any, **kwargs: Any) -> None:
        self.place[0] = 5

    def on_step_begin(self, *_: Any, **kwargs: Any) -> None:
        self.seen = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.place[0], self.place[1] = 3, state.global_step
        with self.file.open("a") as file:
            print(json.dumps([state.global_step, self.seen]), file=file)


def telling(place: Place, original: Any) -> Any:
    """Say so while a checkpoint is saved, and how long that takes."""

    def save_checkpoint(*args: Any, **kwargs: Any) -> Any:
        begin = time.monotonic()
        place[0], place[2] = 4, place[2] + 1
        result = original(*args, **kwargs)
        place[0], place[3] = 3, place[3] + time.monotonic() - begin
        return result

    return save_checkpoint


def train(output: Path, grouped: bool, plain: bool, place: Place) -> None:
    """One process of a training."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    torch.manual_seed(0)
    model, data = wav2vec2("mean"), Speech()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.1
    output.mkdir(exist_ok=True)
    teller = Teller(place, output / "steps.jsonl", data)
    model.register_forward_pre_hook(teller.forward, with_kwargs=True)
    model.register_forward_hook(lambda *_: place.__setitem__(0, 2))
    arguments = TrainingArguments(
        str(output),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=EPOCHS,
        learning_rate=1e-3,
        save_strategy="steps",
        save_steps=2 if grouped else 3,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = (Grouped if grouped else Trainer)(model, arguments, train_dataset=data, callbacks=[teller])
    trainer.remove_callback(PrinterCallback)
    trainer._save_checkpoint = telling(place, trainer._save_checkpoint)
    if plain:
        trainer.train(resume_from_checkpoint=get_last_checkpoint(str(output)))
    else:
        ASRConfigManager().train(trainer, resume=True, verbose=False)
    torch.save(torch.cat([p.detach().flatten() for p in model.parameters()]), output / "weights.pt")


def process(output: Path, kind: Kind) -> tuple[Any, Place]:
    """One that has been started, and where it is."""
    context = multiprocessing.get_context("fork")
    place = context.Array("d", 4, lock=False)
    started = context.Process(target=train, args=(output, *kind, place), daemon=True)
    started.start()
    return started, place


def finish(started: Any) -> str:
    """Wait for a process that nobody kills; what went wrong."""
    started.join(TIMEOUT_S)
    if started.exitcode is None:
        started.kill()
    return "" if started.exitcode == 0 else f"a process ended with {started.exitcode}"


def wait_for(started: Any, there: Any) -> None:
    """Wait until a process is somewhere, or over."""
    until = time.monotonic() + TIMEOUT_S
    while not there() and started.is_alive() and time.monotonic() < until:
        time.sleep(0.0005)


@dataclass
class Result:
    """How a training ended, and how long it took from its first epoch, with so many saves."""

    samples: dict[int, list[int]]
    weights: Any
    seconds: float = 0.0
    saves: int = 0
    save_s: float = 0.0

    @classmethod
    def of(cls, output: Path) -> Result:
        lines = [json.loads(line) for line in (output / "steps.jsonl").read_text().splitlines()]
        return cls(dict(lines), torch.load(output / "weights.pt"))

    def off(self, calm: Result) -> float:
        """The largest difference of a weight."""
        return float((self.weights - calm.weights).abs().max())

    def wrong(self, calm: Result) -> str:
        """What of it is not as it should be."""
        epochs = [
            [i for step in range(e * 6 + 1, e * 6 + 7) for i in self.samples.get(step, [])] for e in range(EPOCHS)
        ]
        if any(sorted(epoch) != list(range(CLIPS)) for epoch in epochs):
            return "clips were lost or repeated"
        if self.samples != calm.samples:
            return "another order of clips"
        return f"weights {self.off(calm):.1g} off" if self.off(calm) > AIM else ""


def undisturbed(output: Path, kind: Kind) -> Result:
    started, place = process(output, kind)
    wait_for(started, lambda: place[0] == 5)
    begin = time.monotonic()
    wrong = finish(started)
    seconds = time.monotonic() - begin
    if wrong:
        sys.exit(wrong)
    result = Result.of(output)
    result.seconds, result.saves, result.save_s = seconds, int(place[2]), place[3] / place[2]
    return result


def kill(output: Path, kind: Kind, calm: Result, chance: random.Random) -> str:
    """Start a process and kill it at a random moment; where it was then, or ``""`` when it was over before."""
    started, place = process(output, kind)
    if chance.random() < 1 / 3:
        which = chance.randint(1, calm.saves)
        wait_for(started, lambda: place[2] >= which and place[0] == 4)
        time.sleep(chance.uniform(0, calm.save_s))
    else:
        wait_for(started, lambda: place[0] == 5)
        time.sleep(chance.uniform(0, calm.seconds))
    started.kill()
    started.join(TIMEOUT_S)
    return f"{PHASES[int(place[0])]} after step {int(place[1])}" if started.exitcode == -9 else ""


def killed(output: Path, kind: Kind, calm: Result, chance: random.Random) -> list[str]:
    """Where a training was killed, once at least and four times at most."""
    places: list[str] = []
    while len(places) < 4:
        hit = kill(output, kind, calm, chance)
        if hit:
            places.append(hit)
        elif places:
            break
        else:  # over before its time had come
            shutil.rmtree(output)
        if places and chance.random() > 1 / 3:
            break
    return places


def ended(output: Path, kind: Kind, calm: Result) -> tuple[str, float]:
    """What is wrong with a training once it is done, and how far its weights are off."""
    started, _ = process(output, kind)
    wrong = finish(started)
    if wrong:
        return wrong, math.nan
    result = Result.of(output)
    return result.wrong(calm), result.off(calm)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="by the Trainer alone, resume_from_checkpoint, to compare")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it as well")
    arguments = parser.parse_args()
    chance, begin = random.Random(arguments.seed), time.monotonic()
    kills, right, worst = 0, 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        kinds = {grouped: (grouped, arguments.plain) for grouped in (False, True)}
        calm = {grouped: undisturbed(Path(folder, f"calm{grouped}"), kind) for grouped, kind in kinds.items()}
        for number in range(arguments.runs):
            grouped, output = number % 2 == 1, Path(folder, f"run{number}")
            places = killed(output, kinds[grouped], calm[grouped], chance)
            wrong, off = ended(output, kinds[grouped], calm[grouped])
            kills, right, worst = kills + len(places), right + (not wrong), max(worst, off)
            order = "by length" if grouped else "at random"
            print(f"{number + 1:>3} {order}: killed in {', then in '.join(places)}: {wrong or 'right'}", flush=True)
    print(f"{kills} kills of {arguments.runs} trainings of {STEPS} steps, in {time.monotonic() - begin:.0f} s")
    print(
        f"{right} of {arguments.runs} ended with the weights of the undisturbed one (worst difference {worst:.1g}, aim "
        f"{AIM:.0e}) and every clip once an epoch, in the same order"
    )
    if arguments.json:
        name = "killed_trainer" if arguments.plain else "killed"
        arguments.json.write_text(json.dumps({name: f"{right} of {arguments.runs}"}))
    if right < arguments.runs and not arguments.plain:
        sys.exit("every one must")


if __name__ == "__main__":
    main()
