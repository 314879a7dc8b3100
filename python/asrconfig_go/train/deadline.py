"""``save_by``: the moment before which a training saves and stops, such as the end of a notebook's session."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, time as time_of_day, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from transformers.trainer_callback import TrainerCallback

from ..errors import InvalidArgumentError
from ..guard.process_group import ProcessGroup
from .checkpoints import checkpoint_bytes

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import TrainerControl, TrainerState

_FORMS = 'pass "11h30m" from now, "17:45" today, or "2026-03-01T06:30"; without a zone by the clock of this machine'
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CLOCK = re.compile(r"\d\d:\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_NEWEST = 20  # durations of each kind: the longest of them counts, and the first steps' are forgotten
_CAUTION = 1.3  # times the longest, as the next one may take longer
_BYTES_S = 50e6  # written to a slow disk, where nothing was written yet
_FILES_S = 2.0  # of a checkpoint whatever its size


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
        raise InvalidArgumentError(f"save_by = {save_by!r} is no moment: {error}", _FORMS) from error
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
