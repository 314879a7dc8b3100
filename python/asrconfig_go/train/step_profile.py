"""Optimizer steps of a training, recorded by PyTorch's profiler."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import TrainerCallback

from .._core.checks import checked
from .._core.render import plural
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from torch.profiler import profile
    from transformers import TrainingArguments
    from transformers.trainer_callback import TrainerControl, TrainerState

logger: logging.Logger = logging.getLogger("asrconfig_go")

TRACE = "asrconfig_profile.pt.trace.json"
_WAIT, _WARM_UP = 2, 1  # the first steps allocate, choose kernels, and are measured by the guard
_MAX_STEPS = 20  # steps: one of wav2vec2-base is 6 MB, with accumulation a multiple of it
_ROWS = 40  # of the table


def check_profile(steps: int) -> int:
    """``steps`` if it is a number of steps to record, else ``InvalidArgumentError``."""
    if not 1 <= checked("profile", steps, int) <= _MAX_STEPS:
        raise InvalidArgumentError(
            f"profile = {steps} is not 1 to {_MAX_STEPS} optimizer steps", "3 steps show what repeats"
        )
    return int(steps)


def step_profiler(wait: int, steps: int, ready: Callable[[Any], Any]) -> Any:
    """A profiler that leaves out ``wait`` steps and one to warm up, records ``steps`` and hands itself to ``ready``."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    gpu = torch.cuda.is_available()
    if not gpu:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it prints that it found no GPU, as an error
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * gpu
    timing = schedule(wait=wait, warmup=_WARM_UP, active=steps, repeat=1)
    return profile(activities=activities, schedule=timing, on_trace_ready=ready, record_shapes=True)


def write_profile(profiler: profile, trace: Path) -> tuple[str, str]:
    """Write a Chrome trace, and beside it a table of operators by their own time; their paths. Raises ``OSError``."""
    import torch

    order = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    table = trace.with_name(trace.name.removesuffix(".pt.trace.json") + ".txt")
    table.write_text(profiler.key_averages().table(sort_by=order, row_limit=_ROWS), encoding="utf-8")
    profiler.export_chrome_trace(str(trace))
    return str(trace), str(table)


class StepProfile(TrainerCallback):  # type: ignore[misc]
    """Records ``steps`` optimizer steps of the first process once training is warm, in the Trainer's ``output_dir``."""

    def __init__(self, steps: int) -> None:
        self.steps = check_profile(steps)
        self.files: tuple[str, ...] = ()
        """The trace and the table, once they are written."""
        self._trace = Path()
        self._profiler: profile | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Begin; a restarted training begins again. Raises ``InvalidArgumentError`` where too few steps are left."""
        if self.files:
            return
        restarted = self._profiler is not None
        self.close()
        remaining, needed = state.max_steps - state.global_step, _WAIT + _WARM_UP + self.steps
        if remaining <= 0 or (needed > remaining and restarted):
            return
        if needed > remaining:
            raise InvalidArgumentError(
                f"profile = {self.steps} needs {plural(needed, 'optimizer step')}, the first {_WAIT + _WARM_UP} to "
                f"warm up, and {remaining} are left",
                "record fewer steps, or train for more of them (max_steps)",
            )
        if state.is_world_process_zero:
            self.files = ()  # ending the recording before has written some
            self._trace = Path(args.output_dir) / TRACE
            self._profiler = step_profiler(_WAIT, self.steps, self._write)
            self._profiler.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """One more step."""
        if self._profiler is not None:
            self._profiler.step()
            if self.files:
                self.close()

    def close(self) -> None:
        """End the recording. Steps that were recorded before a training was interrupted are written."""
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None

    def _write(self, profiler: profile) -> None:
        try:
            self.files = write_profile(profiler, self._trace)
        except OSError as error:  # a full disk: the training goes on
            logger.warning("the profile was not written: %s", error)
