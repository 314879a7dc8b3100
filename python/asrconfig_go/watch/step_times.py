"""Times of a Trainer's first optimizer steps, compared with the estimate when the training has ended.

Between the beginning of a step and its end the batches are already there: what the loader takes, logging, evaluation
and saving are outside. On a GPU two events in its own queue mark a step, so that nothing waits for anything. They are
read after the last step, and the estimate, which may have to trace the model, is made there too: a training that runs
well is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .._core.declared import SHORTEST_S
from .._core.output import logger
from ..errors import AsrConfigError
from .batch_shapes import BatchShapes

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import TrainingArguments

    from ..plan.step_calibrations import MeasuredStep, StepRecord
    from ..predict.memory_settings import MemorySettings


class CPUMoments:
    """Moments by the clock of the CPU."""

    mark = staticmethod(time.perf_counter)

    def between(self, begin: float, end: float) -> float:
        """Seconds from one to the other."""
        return end - begin

    def wait(self, end: float) -> None:
        """Nothing to wait for: the CPU's moments are in the past."""


class GPUMoments:
    """Moments in the queue of the GPU: what was queued between two of them has run when the second one has passed."""

    def mark(self) -> torch.cuda.Event:
        """Record an event now."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Seconds from one to the other; both must have passed."""
        return float(begin.elapsed_time(end)) / 1000

    def wait(self, end: torch.cuda.Event) -> None:
        """Until ``end`` has passed."""
        end.synchronize()


def moments_of(model: Module) -> Moments:
    """The timer for the device that ``model`` computes on."""
    on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    return GPUMoments() if on_gpu else CPUMoments()


Moments = CPUMoments | GPUMoments

SKIPPED, NOTED, ENOUGH = 5, 50, 10
"""Steps before the first that counts, steps that do, and how many of them a shorter training must have."""


@dataclass
class _Step:
    begin: Any
    end: Any = None
    micro_batches: list[tuple[int, float]] = field(default_factory=list)  # clips, and seconds of the longest


class StepTimes:
    """Notes the first steps of a training, calibrates the time model by them at its end, and stores the factor.

    Costs some microseconds for each of the first 55 steps, and nothing while the others run or on a CPU, whose rates
    the time model does not know. For models, cards and settings that it does not, steps are noted and nothing is
    stored; ``problem`` has the reason. Of a training that did not reach its end nothing is.
    """

    def __init__(self, clock: Any = None, gpu: Callable[[], str] | None = None) -> None:
        """``clock`` and ``gpu``, the name of the GPU, replace the real ones in tests."""
        self._test_clock, self._gpu = clock, gpu or _gpu_name
        self.steps: tuple[MeasuredStep, ...] = ()
        """What was measured, when that is done."""
        self.record: StepRecord | None = None
        """The message to log, if any."""
        self.problem = ""
        self.noting = False
        """Whether it is to be told of steps."""
        self._shapes: BatchShapes | None = None
        self._model: Module | None = None
        self._clock: Any = None  # whose moments are its own
        self._step: _Step | None = None
        self._noted: list[_Step] = []
        self._steps_begun = 0

    def begin(self, args: TrainingArguments, model: Module) -> None:
        """Begin to note, with the first training of a Trainer with these arguments."""
        self.stop()
        if self.steps:
            return
        self.problem = _not_measured(args, model) if self._gpu() else "the time model has no rates for CPUs"
        if self.problem:
            return
        self._clock = self._test_clock or moments_of(model)
        self._model = model
        self._shapes = BatchShapes(model, self._note)
        self.noting = True

    def step_begins(self) -> None:
        """The batches of the step are there."""
        self._steps_begun += 1
        self._step = _Step(self._clock.mark()) if self._steps_begun > SKIPPED else None

    def step_ends(self) -> None:
        """The optimizer's step has been taken, or is in the GPU's queue."""
        step = self._step
        if step is None:
            return
        step.end, self._step = self._clock.mark(), None
        if step.micro_batches:
            self._noted.append(step)
        if len(self._noted) == NOTED:
            self._leave()

    def end(self, args: TrainingArguments) -> None:
        """The training is over: hold its steps against the estimate. A short training counts if it had some steps."""
        if len(self._noted) >= ENOUGH:
            self._finish(args)
        self.stop()

    def stop(self) -> None:
        """Note no more; what was noted is forgotten."""
        self._leave()
        self._model = self._clock = None
        self._steps_begun, self._noted = 0, []

    def _leave(self) -> None:
        if self._shapes is not None:
            self._shapes.leave()
        self._shapes, self._step, self.noting = None, None, False

    def _note(self, clips: int, seconds: float) -> None:
        """Before each forward of the model in training mode."""
        if self._step is not None and torch.is_grad_enabled():
            self._step.micro_batches.append((clips, max(SHORTEST_S, round(seconds, 1))))

    def _finish(self, args: TrainingArguments) -> None:
        from ..plan.step_calibrations import MeasuredStep

        model, clock, noted = self._model, self._clock, self._noted
        clock.wait(noted[-1].end)
        self._leave()
        try:
            self.steps = tuple(
                MeasuredStep(tuple(step.micro_batches), clock.between(step.begin, step.end)) for step in noted
            )
            self.record = self._calibrated(args, model)
        except AsrConfigError as error:
            self.problem = f"{error.message}; {error.hint}"
        except Exception as error:  # a training is worth more than its times
            self.problem = f"{type(error).__name__}: {error}"
        if self.record is not None:
            logger.info(
                "%d optimizer steps took %.2f times the estimate for %s (%.2f to %.2f); kept for later comparisons",
                self.record.steps, self.record.factor, self.record.gpu, self.record.low, self.record.high,
            )  # fmt: skip

    def _calibrated(self, args: TrainingArguments, model: Module) -> StepRecord:
        from ..plan.step_calibrations import calibrate_steps, store_step_calibration
        from ..predict.model_profile import profile_model

        record = calibrate_steps(model, self._gpu(), _settings(args, model), self.steps, devices=args.world_size)
        if not store_step_calibration(profile_model(model), record):
            self.problem = f"{record.factor:.3g} times the estimate was not kept"
        return record


def _not_measured(args: TrainingArguments, model: Module) -> str:
    if getattr(args, "torch_compile", False) or hasattr(model, "_orig_mod"):
        return "compiled models are not what is estimated"
    if args.n_gpu > 1:
        return "several GPUs in one process share each batch"
    if getattr(args, "deepspeed", None) or getattr(args, "fsdp", None):
        return "sharded models are not what is estimated"
    return ""


def _settings(args: TrainingArguments, model: Module) -> MemorySettings:
    from .._core.modules import lora_rank
    from ..predict.memory_settings import MemorySettings
    from ..predict.trainer_settings import training_settings

    settings = training_settings(args, model)
    names = ("precision", "gradient_checkpointing", "every_n_layers", "offload_checkpoints", "optimizer")
    return MemorySettings(**{name: settings[name] for name in names}, lora_rank=lora_rank(model))


def _gpu_name() -> str:
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else ""
