"""Disturbed runs: a small training that runs out of memory where a test wants it, and what is compared of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.trainer_callback import TrainerCallback

from asrconfig_go.train.guarded_training import GuardedTraining
from tiny_training import OUT_OF_MEMORY, Regression, flat, tiny_trainer

OutOfMemory = torch.cuda.OutOfMemoryError
SAVING: dict[str, Any] = {"save_strategy": "steps", "save_steps": 3}


class Stopped(Exception):
    """Ends a process, as far as one test process can tell."""


class Observer(TrainerCallback):  # type: ignore[misc]
    """The schedule and the samples of every optimizer step; of a step done twice the later one."""

    def __init__(self) -> None:
        self.rates: dict[int, float] = {}
        self.samples: dict[int, list[int]] = {}
        self.begins = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begins += 1

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        model.seen.clear()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.rates[state.global_step] = kwargs["lr_scheduler"].get_last_lr()[0]
        self.samples[state.global_step] = [index for batch in kwargs["model"].seen for index in batch]


class Failing(TrainerCallback):  # type: ignore[misc]
    """An exception outside of the training step: in each event named ``event`` that ``fail`` asks for."""

    def __init__(self, event: str, fail: Any) -> None:
        self.fail = fail
        setattr(self, event, self._happen)

    def _happen(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.fail()


def once_at(time: int, error: Exception | None = None) -> Any:
    """An exception when asked for the ``time``-th time, once."""
    count = 0

    def fail(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == time:
            raise error or OutOfMemory(OUT_OF_MEMORY)

    return fail


def always(error: Exception | None = None) -> Any:
    """An exception whenever asked."""

    def fail(*_: Any) -> None:
        raise error or OutOfMemory(OUT_OF_MEMORY)

    return fail


def prepared(
    output: Path, fail: Any = None, *, event: str = "on_pre_optimizer_step", model: Any = None, **settings: Any
) -> Any:
    """A trainer with an observer at ``trainer.seen`` that asks ``fail`` at each ``event``."""
    if model is None:
        torch.manual_seed(0)
        model = Regression()
    observer = Observer()
    callbacks = [observer, *settings.pop("callbacks", []), *([Failing(event, fail)] if fail else [])]
    defaults = {"samples": 64, "per_device_train_batch_size": 16, "num_train_epochs": 3, "save_strategy": "no"}
    trainer = tiny_trainer(output, model=model, callbacks=callbacks, **{**defaults, **settings})
    trainer.seen = observer
    return trainer


def trained(output: Path, fail: Any = None, *, resume: Any = False, max_retries: int = 3, **settings: Any) -> Any:
    """One that has trained, with its report at ``trainer.report``."""
    trainer = prepared(output, fail, **settings)
    run = GuardedTraining(trainer, resume=resume, max_retries=max_retries)
    try:
        run.train()
    finally:
        trainer.report = run.report()
    return trainer


def interrupted(output: Path, step: int, **settings: Any) -> None:
    """A run that ends by an exception after so many steps, as far as checkpoints and the record go like a kill."""
    with pytest.raises(Stopped):
        trained(output, once_at(step, Stopped()), event="on_step_end", **{**SAVING, **settings})


def weights(trainer: Any) -> Any:
    return flat(trainer.model)


def assert_same_run(disturbed: Any, whole: Any) -> None:
    """Same samples in the same order at every step, same learning rates, logged steps and weights."""
    assert disturbed.seen.samples == whole.seen.samples
    assert disturbed.seen.rates == whole.seen.rates
    assert disturbed.state.global_step == whole.state.global_step
    assert disturbed.state.max_steps == whole.state.max_steps
    logged = [[entry["step"] for entry in t.state.log_history] for t in (disturbed, whole)]
    assert logged[0] == logged[1]
    assert torch.allclose(weights(disturbed), weights(whole), atol=1e-6)


def sizes(trainer: Any) -> tuple[int, int]:
    return trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps


def limits(trainer: Any) -> list[tuple[int, int]]:
    """Those of the micro-batch before and after each restart."""
    return [(restart.before, restart.after) for restart in trainer.report.restarts]
