"""Times of a Trainer's steps by phase: waiting for batches, forward, backward, optimizer, other.

On a GPU, events in its queue separate the phases, so that a kernel's time counts where it runs and nothing is
synchronised; waiting for batches is measured on the CPU. The CPU's time for queueing forward and backward is measured
too: where it is nearly as long as the GPU's, the GPU waits for its next kernel.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from transformers.trainer_callback import TrainerCallback

from .._core.training_session import override
from ..watch.batch_shapes import BatchShapes
from ..watch.step_times import CPUMoments, Moments, moments_of
from .measurements import Block, StepParts

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import Trainer, TrainerState, TrainingArguments

T = TypeVar("T")
_FIELDS_BEFORE = 11  # of /proc/PID/stat, between the name and utime


def cpu_seconds() -> float:
    """Since each began, user and system. Where there is no /proc, workers count when they have ended."""
    ended = os.times()
    spent = time.process_time() + ended.children_user + ended.children_system
    return spent + sum(_of_child(child.pid) for child in multiprocessing.active_children())


def _of_child(pid: int | None) -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[_FIELDS_BEFORE]) + int(fields[_FIELDS_BEFORE + 1])) / os.sysconf("SC_CLK_TCK")
    return 0.0


@dataclass
class _Marks:
    came_s: float = 0.0  # since the end of the step before, by the clock
    begin: Any = None
    end: Any = None
    forward: list[tuple[Any, Any]] = field(default_factory=list)
    backward: list[tuple[Any, Any]] = field(default_factory=list)
    queued_s: float = 0.0
    spent_s: float = 0.0


class Phases(TrainerCallback):  # type: ignore[misc]
    """Measures ``steps`` steps of ``trainer`` behind the first ``warm_up``.

    Added to the Trainer before a guard is: what is measured as forward is then the model's own. ``on_step`` is called
    at the end of each step with its number.
    """

    def __init__(
        self, trainer: Trainer, warm_up: int, steps: int, on_step: Callable[[int], None] = lambda n: None
    ) -> None:
        self._trainer, self._warm_up, self._steps, self._on_step = trainer, warm_up, steps, on_step
        self._step = _Marks()
        self._done: list[_Marks] = []
        self._moments: Moments = CPUMoments()
        self._inputs: BatchShapes | None = None
        self._ended = self._begun = self._cpu = self._begun_unix = 0.0
        self.block: Block | None = None
        """What was measured, when that is done."""
        override(trainer, "compute_loss", self._timed(trainer.compute_loss, "forward"))
        trainer.add_callback(self)

    def on_train_begin(
        self, args: TrainingArguments, state: object, control: object, model: Module, **kwargs: object
    ) -> None:
        """The model is on its device."""
        self._moments = moments_of(model)
        accelerator = self._trainer.accelerator  # a guard has made another one by now
        override(accelerator, "backward", self._timed(accelerator.backward, "backward"))
        if not args.torch_compile:  # a hook would be compiled, too
            self._inputs = BatchShapes(model)
        self._ended = time.perf_counter()

    def on_step_begin(self, *_: object, **__: object) -> None:
        """The batches of the step are there."""
        self._step = _Marks(time.perf_counter() - self._ended, self._moments.mark())

    def on_step_end(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        """The optimizer's step has been taken, or is in the GPU's queue."""
        number = state.global_step
        self._step.end = self._moments.mark()
        if number in (self._warm_up, self._warm_up + self._steps):
            self._moments.wait(self._step.end)
        now = time.perf_counter()
        self._step.spent_s, self._ended = now - self._ended, now
        if number == self._warm_up:
            self._begin(now)
        elif number > self._warm_up:
            self._done.append(self._step)
        if number == self._warm_up + self._steps:
            self._finish(now)
        self._on_step(number)

    def _begin(self, now: float) -> None:
        self._begun, self._begun_unix, self._cpu = now, time.time(), cpu_seconds()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        if self._inputs is not None:
            self._inputs.take()

    def _finish(self, now: float) -> None:
        shapes = {} if self._inputs is None else self._inputs.take()
        on_gpu = torch.cuda.is_available()
        if self._inputs is not None:
            self._inputs.leave()
        self.block = Block(
            seconds=now - self._begun,
            cpu_s=cpu_seconds() - self._cpu,
            steps=tuple(self._parts(step) for step in self._done),
            padded_s=shapes.get("padded_s"),
            audio_s=shapes.get("audio_s"),
            longest_s=shapes.get("longest_s"),
            peak_allocated_bytes=torch.cuda.max_memory_allocated() if on_gpu else None,
            peak_reserved_bytes=torch.cuda.max_memory_reserved() if on_gpu else None,
            begun_unix_s=self._begun_unix,
            out_of_memory=0,
        )

    def _parts(self, step: _Marks) -> StepParts:
        forward, backward = self._sum(step.forward), self._sum(step.backward)
        optimizer = self._moments.between(step.backward[-1][1], step.end) if step.backward else 0.0
        other = step.spent_s - step.came_s - forward - backward - optimizer
        on_gpu = not isinstance(self._moments, CPUMoments)
        return StepParts(
            step.spent_s, step.came_s, forward, backward, optimizer, max(0.0, other), len(step.forward),
            step.queued_s if on_gpu else None,
        )  # fmt: skip

    def _sum(self, pairs: list[tuple[Any, Any]]) -> float:
        return float(sum(self._moments.between(begin, end) for begin, end in pairs))

    def _timed(self, original: Callable[..., T], name: str) -> Callable[..., T]:
        @functools.wraps(original)
        def timed(*args: object, **kwargs: object) -> T:
            began, begin = time.perf_counter(), self._moments.mark()
            result = original(*args, **kwargs)
            getattr(self._step, name).append((begin, self._moments.mark()))
            self._step.queued_s += time.perf_counter() - began
            return result

        return timed
