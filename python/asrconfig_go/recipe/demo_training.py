"""Train the demo's model with the Hugging Face Trainer under a plan of this package, and measure what it learnt."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.errors import InvalidArgumentError
from .._base.output import show
from ..demo.digit_model import small_model, transcribe
from ..demo.digits import Collator, Vocabulary, load_split
from ..plan.plan_record import FILE
from .error_rates import word_error_rate
from .rank_output import quiet
from .trainer_settings import FROM_RANDOM_WEIGHTS, RANDOM_WEIGHTS_STEPS

if TYPE_CHECKING:
    import datasets
    from transformers import (
        Trainer,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
        Wav2Vec2ForCTC,
    )

    from ..config import TrainingConfig

TARGET_BATCH = 8  # clips an optimizer step: with so few clips, more and smaller steps learn faster than larger ones
SECONDS = 240.0


@dataclass(frozen=True)
class DemoResult:
    """What the demo did. Word error rates are shares of the reference words, on clips held out from training."""

    wer_before: float
    wer_after: float
    memory: str
    """Peaks and counts of the memory callback, as text."""
    train_seconds: float
    steps: int
    config: TrainingConfig = field(repr=False)
    output_dir: Path
    examples: tuple[tuple[str, str], ...] = field(repr=False)
    """(reference, transcript) of the first held-out clips."""

    def __str__(self) -> str:
        """A short report in plain text."""
        lines = [
            f"Word error rate on held-out clips: {self.wer_before:.0%} before, {self.wer_after:.1%} after "
            f"{self.steps} steps ({self.train_seconds:.0f} s)",
            *(f"  said: {reference:<24}  heard: {heard}" for reference, heard in self.examples),
            self.memory,
            f"Checkpoints and TensorBoard logs: {self.output_dir} (tensorboard --logdir {self.output_dir})",
        ]
        return "\n".join(lines)


def train_demo(
    output_dir: str | os.PathLike[str],
    *,
    seconds: float | None = SECONDS,
    max_steps: int | None = None,
    seed: int = 0,
    gpu: str | None = None,
    verbose: bool = True,
) -> DemoResult:
    """Plan, train and evaluate, printing every stage if `verbose`.

    `seconds` ends training early on a slow machine (None: never), `max_steps` is the number of optimizer steps
    (default 1000), `gpu` plans for a GPU of the catalogue instead of this machine. On one machine the result
    depends on `seed` alone, unless `seconds` ends it early. Raises an AsrConfigError when planning fails.
    """
    from ..optimal import create_optimal_config

    settings = training_settings(RANDOM_WEIGHTS_STEPS if max_steps is None else max_steps)
    train, test = load_split("train"), load_split("test")
    collator = Collator(Vocabulary.from_texts(train["text"]))
    model = small_model(len(collator.vocabulary), seed)
    config, manager = create_optimal_config(
        train, model, target_batch_size=TARGET_BATCH, seed=seed, gpu=gpu, verbose=verbose
    )
    args = config.to_training_arguments(output_dir, **settings, disable_tqdm=not verbose)
    Path(args.output_dir).mkdir(parents=True, exist_ok=True)
    manager.save_config(config, Path(args.output_dir) / FILE)

    if verbose:
        show(f"Random weights need other settings than the plan's, which are for fine-tuning: {said(settings)}")
    watch = manager.callback()
    with one_thread(), quiet(not verbose):
        before = transcribe(model, test, collator)
        trainer, elapsed = train_model(
            model, args, train, collator, [watch], partial(manager.train, verbose=verbose), seconds
        )
        after = transcribe(model, test, collator)
    return DemoResult(
        wer_before=word_error_rate(test["text"], before),
        wer_after=word_error_rate(test["text"], after),
        memory=str(watch.summary()),
        train_seconds=elapsed,
        steps=trainer.state.global_step,
        config=config,
        output_dir=Path(args.output_dir),
        examples=tuple(zip(test["text"][:5], after[:5], strict=True)),
    )


def training_settings(max_steps: int) -> dict[str, Any]:
    """Return the settings a tiny model with random weights needs in place of the plan's, which are for fine-tuning.

    Raises InvalidArgumentError when `max_steps` is less than 1.
    """
    if max_steps < 1:
        raise InvalidArgumentError(f"max_steps = {max_steps} trains nothing", "give a number of at least 1")
    return {
        **FROM_RANDOM_WEIGHTS,
        "max_steps": max_steps,
        "warmup_steps": max(1, max_steps // 10),
        "remove_unused_columns": False,  # the collator reads audio and text, which the model does not know
        "eval_strategy": "no",
        "save_strategy": "steps",
        "save_steps": max(1, max_steps // 2),
        "save_total_limit": 2,
        "logging_steps": max(1, min(25, max_steps // 10)),
        "report_to": ["tensorboard"] if find_spec("tensorboard") else [],
    }


def said(settings: dict[str, Any]) -> str:
    """Return the settings that decide how the model learns, as text."""
    return ", ".join(
        f"{name} {settings[name]:g}" for name in ("max_steps", "learning_rate", "warmup_steps", "adam_beta2")
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one CPU thread, and restore the number of threads at the end.

    The model is so small that a second thread saves a third of a step at best; where other programs want the same
    cores, two threads wait for each other, and a step takes ten times as long.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def train_model(
    model: Wav2Vec2ForCTC,
    args: TrainingArguments,
    dataset: datasets.Dataset,
    collator: Collator,
    callbacks: list[TrainerCallback],
    train: Callable[[Trainer], object],
    seconds: float | None = None,
) -> tuple[Trainer, float]:
    """Build a Trainer, run `train` on it, and return it with the wall-clock seconds that training took."""
    from transformers import PrinterCallback, Trainer

    if seconds is not None:
        callbacks = [*callbacks, time_limit(seconds)]
    trainer = Trainer(model=model, args=args, train_dataset=dataset, data_collator=collator, callbacks=callbacks)
    if args.disable_tqdm:
        trainer.remove_callback(PrinterCallback)  # it prints what the bar would
    start = time.monotonic()
    train(trainer)
    return trainer, time.monotonic() - start


def time_limit(seconds: float) -> TrainerCallback:
    """Return a callback that saves and stops `seconds` after training began. A restart does not reset the clock."""
    from transformers import TrainerCallback

    class TimeLimit(TrainerCallback):  # type: ignore[misc]
        deadline: float | None = None

        def on_train_begin(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
        ) -> None:
            if self.deadline is None:
                self.deadline = time.monotonic() + seconds

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
        ) -> None:
            if self.deadline is not None and time.monotonic() >= self.deadline:
                control.should_save = control.should_training_stop = True

    return TimeLimit()
