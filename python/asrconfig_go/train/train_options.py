"""The options of ``manager.train``: their checks, and the callbacks that carry out ``save_by`` and ``profile``.

``save_by`` is the moment before which a training saves and stops, such as the end of a notebook's session; ``profile``
is the number of optimizer steps that PyTorch's profiler records.
"""

from __future__ import annotations

import inspect
import os
import re
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, time as time_of_day, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import TrainerCallback

from .._core.checks import check_keywords, checked
from .._core.output import logger
from .._core.render import plural
from ..errors import InvalidArgumentError
from ..guard.process_group import ProcessGroup
from .checkpoints import checkpoint_bytes

if TYPE_CHECKING:
    from torch.profiler import profile
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import TrainerControl, TrainerState

_OPTIONS = ("resume", "max_retries", "preflight", "save_by", "profile", "verbose")
_MAX_RETRIES = 100  # the library's limit
_FORMS = 'pass "11h30m" from now, "17:45" today, or "2026-03-01T06:30"; without a zone by the clock of this machine'
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CLOCK = re.compile(r"\d\d:\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_NEWEST = 20  # durations of each kind: the longest of them counts, and the first steps' are forgotten
_CAUTION = 1.3  # times the longest, as the next one may take longer
_BYTES_S = 50e6  # written to a slow disk, where nothing was written yet
_FILES_S = 2.0  # of a checkpoint whatever its size
TRACE = "asrconfig_profile.pt.trace.json"
_WAIT, _WARM_UP = 2, 1  # the first steps allocate, choose kernels, and are measured by the guard
_MAX_STEPS = 20  # steps: one of wav2vec2-base is 6 MB, with accumulation a multiple of it
_ROWS = 40  # of the table


def check_options(trainer: Trainer, resume: object, max_retries: object, arguments: dict[str, Any]) -> None:
    """Raise ``InvalidArgumentError`` for options and Trainers that a guarded training cannot take."""
    if isinstance(max_retries, bool) or not isinstance(max_retries, int) or not 0 <= max_retries <= _MAX_RETRIES:
        raise InvalidArgumentError(f"max_retries = {max_retries!r} is not a whole number from 0 to 100", "3 is usual")
    if not isinstance(resume, bool | str | os.PathLike) or resume == "":
        raise InvalidArgumentError(f"resume = {resume!r} is not True, False or a path", "True takes the newest one")
    from transformers import Trainer

    parameters = inspect.signature(trainer.train).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
    if len(names) == len(parameters) or type(trainer).train is Trainer.train:  # older ones take more, and refuse later
        check_keywords(arguments, [*_OPTIONS, *names], "manager.train")
    if "resume_from_checkpoint" in arguments:
        raise InvalidArgumentError("resume_from_checkpoint is the Trainer's", "pass resume=True, or resume=a path")
    if arguments.get("trial") is not None:
        raise InvalidArgumentError(
            "a trial of a hyperparameter search makes a model and a folder of its own, and is no run to resume",
            "call manager.attach(trainer), then trainer.hyperparameter_search(): its trials are guarded",
        )
    if trainer.args.auto_find_batch_size:
        raise InvalidArgumentError(
            "auto_find_batch_size loses the effective batch, and would keep errors from being seen here",
            "set auto_find_batch_size=False: the guard finds a fitting micro-batch itself",
        )


def deadline_of(save_by: str, now: datetime | None = None) -> datetime:
    """The moment that ``save_by`` names. Raises ``InvalidArgumentError`` for another form and for one that has passed.

    >>> deadline_of("1h30m", datetime.fromisoformat("2026-03-01T06:30+00:00")).isoformat()
    '2026-03-01T08:00:00+00:00'
    """
    now = now or datetime.now().astimezone()
    moment = _moment(save_by, now)
    if moment > now:
        return moment
    tomorrow = moment + timedelta(days=1)
    hint = f'pass "{tomorrow:%Y-%m-%dT%H:%M}" for tomorrow' if _CLOCK.fullmatch(save_by) else _FORMS
    raise InvalidArgumentError(f"save_by = {save_by!r} has passed: it is {now:%Y-%m-%d %H:%M %Z}", hint)


def _moment(save_by: str, now: datetime) -> datetime:
    if not isinstance(save_by, str):
        raise InvalidArgumentError(f"save_by = {save_by!r} is not a text", _FORMS)
    parts = _DURATION.fullmatch(save_by)
    try:
        if save_by and parts is not None:
            hours, minutes, seconds = (int(part or 0) for part in parts.groups())
            return now + timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if _CLOCK.fullmatch(save_by):
            return datetime.combine(now.date(), time_of_day.fromisoformat(save_by), now.tzinfo)
        if _MOMENT.fullmatch(save_by):
            moment = datetime.fromisoformat(re.sub("Z$", "+00:00", save_by))
            return moment if moment.tzinfo is not None else moment.astimezone()
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"save_by = {save_by!r} is not a time or duration: {error}", _FORMS) from error
    raise InvalidArgumentError(f"save_by = {save_by!r} is neither a duration nor a moment", _FORMS)


class DeadlineCallback(TrainerCallback):  # type: ignore[misc]
    """Saves a checkpoint and stops the training after the last step that leaves time for it before ``deadline``.

    The remaining time must suffice for one more step, an evaluation where that step has one, and the checkpoint, each
    as long as the longest of the newest ones. ``bytes_s`` returns the disk's write speed, None where it is unknown:
    until a checkpoint was saved, its time is estimated from its size. All processes stop after the same step. Add it
    last: other callbacks decide on evaluations and add to checkpoints.
    """

    def __init__(self, trainer: Trainer, deadline: datetime, bytes_s: Callable[[], float | None]) -> None:
        self._trainer, self._deadline, self._bytes_s = trainer, deadline, bytes_s
        self._ranks = ProcessGroup(trainer)
        self._took: dict[str, deque[float]] = {kind: deque(maxlen=_NEWEST) for kind in ("step", "evaluation", "save")}
        self._since = time.time()
        self._stopped = self._saved = False

    def summary(self, output: Path) -> str:
        """What was done; "" where the training did not stop for the deadline."""
        if not self._stopped:
            return ""
        where = output / f"checkpoint-{self._trainer.state.global_step}"
        return f"saved {where} and stopped for save_by, {self._deadline:%Y-%m-%d %H:%M %Z}"

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Begin to measure."""
        self._since = time.time()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Save and stop where one more step would be too many."""
        self._measured("step")
        last = state.global_step >= state.max_steps > 0
        if self._ranks.any(not last and self._late(args, state, control)):
            self._stopped = True
            control.should_save = control.should_training_stop = True

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Know how long an evaluation takes."""
        self._measured("evaluation")

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Know how long a checkpoint takes."""
        self._measured("save")
        self._saved = self._stopped

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Save where an evaluation has decided against it (``save_strategy="best"``)."""
        control.should_save = control.should_save or (self._stopped and not self._saved)

    def _measured(self, kind: str) -> None:
        now = time.time()
        self._took[kind].append(now - self._since)
        self._since = now

    def _late(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> bool:
        """Whether the checkpoint would be too late after one more step."""
        evaluations = int(control.should_evaluate or _evaluates(args, state, 0)) + int(_evaluates(args, state, 1))
        needed = self._longest("step") + evaluations * self._longest("evaluation")
        size = checkpoint_bytes(self._trainer.model, self._trainer.optimizer)
        estimate = _FILES_S + size / (self._bytes_s() or _BYTES_S)
        needed += (1 + int(control.should_save)) * (self._longest("save") or estimate)
        return bool(time.time() + _CAUTION * needed > self._deadline.timestamp())

    def _longest(self, kind: str) -> float:
        return max(self._took[kind], default=0.0)


def _evaluates(args: TrainingArguments, state: TrainerState, ahead: int) -> bool:
    """Whether the Trainer evaluates after the step that is ``ahead`` of the newest."""
    strategy = getattr(args.eval_strategy, "value", args.eval_strategy)
    step: int = state.global_step + ahead
    if strategy == "steps":
        return step % max(1, int(state.eval_steps or 1)) == 0
    if strategy != "epoch" or not state.global_step:
        return False
    epochs = float(state.epoch or 0) / state.global_step  # of a step
    return int(step * epochs + 1e-6) > int((step - 1) * epochs + 1e-6)


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
