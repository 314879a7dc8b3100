"""Training that runs out of memory and goes on in three ways, against a run in which nothing happened; and the cost.

    python benchmarks/guard_exactness.py [--seeds 2]

Small speech models on the CPU, dropout off, SGD (AdamW hides gradients of the wrong size). Memory "runs out" as soon as
a batch holds more than four samples, in the forward or in the middle of the backward. Shown is how far the final
weights are from those of the undisturbed run of one large batch, relative to how far training moved them, the worst of
some seeds; and the optimizer steps taken, of those that there should be. The others are what people use: the Trainer's
auto_find_batch_size, and halving the batch in training_step and trying that batch again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as hf_logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests"))
from asrconfig_go.guard import attach
from asrconfig_go.guard.split import split
from speech_models import MODELS, Clips
from tiny_training import tiny_trainer

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB"
KINDS = {"ctc mean": 1e-2, "ctc sum": 1e-4, "whisper": 1e-2, "w2v-bert": 1e-2}  # and their learning rates
FITS = 4  # samples
AIM = 1e-5


class Meter:
    """Notes what a model trained on, and runs out of memory at one place when a batch is too large."""

    def __init__(self, model: Any, place: str) -> None:
        self.size, self.place = 0, place
        model.register_forward_pre_hook(self._begin, with_kwargs=True)
        if place == "forward":
            model.register_forward_hook(lambda *_: self._fail(model))
        if place == "backward":
            parameters = [p for p in model.parameters() if p.requires_grad]
            parameters[len(parameters) // 2].register_hook(lambda _: self._fail(model))

    def _begin(self, model: Any, args: Any, kwargs: Any) -> None:
        self.size = len(kwargs["labels"])

    def _fail(self, model: Any) -> None:
        if model.training and self.size > FITS:
            raise torch.cuda.OutOfMemoryError(OOM)


class NaiveHalving(Trainer):  # type: ignore[misc]
    """Halves the batch that failed and tries it again, as loops found in the wild do."""

    micro: int | None = None

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        while True:
            size = self.micro or len(inputs["labels"])
            try:
                return sum(
                    Trainer.training_step(self, model, part, *args, **kwargs) for part in split(dict(inputs), size)
                )
            except torch.cuda.OutOfMemoryError:
                self.micro = max(1, size // 2)


def run(kind: str, way: str, place: str, batch: int, accumulation: int, seed: int, folder: str) -> tuple[Any, Any, Any]:
    torch.manual_seed(seed)
    model = MODELS[kind]()
    start = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    Meter(model, place)
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        num_train_epochs=3,
        learning_rate=KINDS[kind],
        optim="sgd",
        max_grad_norm=0.0,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
        auto_find_batch_size=way == "auto_find_batch_size",
        seed=seed,
    )
    trainer = (NaiveHalving if way == "naive halving" else Trainer)(
        model, arguments, train_dataset=Clips(kind, unequal=True)
    )
    trainer.remove_callback(PrinterCallback)
    if way == "guard":
        attach(trainer)
    trainer.train()
    return start, torch.cat([p.detach().flatten() for p in model.parameters()]), trainer.state.global_step


def exactness(seeds: int, folder: str) -> bool:
    print(
        "| model | memory runs out in | batch × accumulation | guard | naive halving | auto_find_batch_size | steps |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    good = True
    for kind in KINDS:
        for place, batch, accumulation in (
            ("forward", 16, 1),
            ("backward", 16, 1),
            ("forward", 8, 2),
            ("backward", 8, 2),
        ):
            cells, steps = [], []
            for way in ("guard", "naive halving", "auto_find_batch_size"):
                worst = 0.0
                for seed in range(seeds):
                    start, calm, wanted = run(kind, "guard", "nowhere", 16, 1, seed, folder)
                    _, got, taken = run(kind, way, place, batch, accumulation, seed, folder)
                    worst = max(worst, float((got - calm).norm() / (calm - start).norm()))
                cells.append(f"{worst:.1e}")
                steps.append(f"{taken}/{wanted}")
                good &= way != "guard" or (worst <= AIM and taken == wanted)
            print(f"| {kind} | {place} | {batch} × {accumulation} | {' | '.join(cells)} | {', '.join(steps)} |")
    print(f"\nguard within {AIM:.0e} with all its steps: {'reached' if good else 'MISSED'}")
    return good


def cost(folder: str) -> None:
    """The guard's own time for a step of one batch, in which nothing happens: the Trainer's step is left out."""
    trainer = tiny_trainer(Path(folder))
    guard = attach(trainer, rule="mean")

    def nothing(*_: Any) -> None:
        guard._losses._raw = torch.tensor(1.0)

    guard._train_step = nothing
    batch = {"x": torch.zeros(4, 6), "labels": torch.zeros(4, 1), "index": torch.arange(4)}
    took = []
    for _ in range(3000):
        begin = time.perf_counter()
        trainer.get_batch_samples(iter([batch]), 1, "cpu")
        trainer.training_step(trainer.model, batch)
        took.append(time.perf_counter() - begin)
    added = statistics.median(took)
    print(f"\nthe guard's own time a step: {added * 1e6:.0f} µs, {added / 0.1:.2%} of a step of 100 ms, aim 1 %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    hf_logging.set_verbosity_error()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        good = exactness(arguments.seeds, folder)
        cost(folder)
    sys.exit(not good)


if __name__ == "__main__":
    main()
