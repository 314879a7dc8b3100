"""Checkpoints and random numbers of a run, from which it is restarted or resumed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.trainer_callback import TrainerCallback
from transformers.trainer_utils import has_length

from .._core.output import listed, logger
from .._core.random_state import cpu_state, set_cpu_state
from .._core.training_session import session_of
from ..guard.training_report import FINISHED
from .checkpoints import checkpoints, incomplete, step_of, warn_of_little_space, write_checksums
from .resume import StartPoint, changes_schedule
from .run_record import RunFolder
from .trainer_reset import CallbackStates

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import TrainerControl, TrainerState

_STREAM_BEGINS_AGAIN = (
    "the stream had ended and begun again by step %d: at step %d the Trainer begins it once more, with clips that this "
    "epoch has seen; train_dataset=config.stream(dataset) or StreamBatches(dataset) continues at its place"
)
_LOOKS = 2  # steps before which callbacks are looked at: some make their tensors at the end of the first


class AllStepsMade(Exception):
    """Raised where training begins, when the checkpoint it continues from has all the steps."""


class RunCheckpoints(TrainerCallback):  # type: ignore[misc]
    """Saves, while a run lasts, what a resume needs and the Trainer does not keep; in the run's record, too.

    - which checkpoints are this run's: ``output_dir`` may hold those of earlier ones;
    - the random numbers at the start of each epoch: length-grouped orders are drawn from them, and a resumed Trainer
      would draw another order for the epoch in which it continues;
    - the state of callbacks at each checkpoint, see ``CallbackStates``, and checksums of its files;
    - what ``changed``, called after every step, reports for a new record.
    """

    def __init__(self, trainer: Trainer, start: StartPoint, folder: RunFolder, changed: Callable[[], bool]) -> None:
        self._trainer, self._folder, self._changed = trainer, folder, changed
        self._start, self._record = start, start.record
        self._begin = start.begin or cpu_state()
        self._epochs = dict(start.epochs)  # by the global step at which they begin
        self._checkpoints: list[Path] = []
        self.states = CallbackStates(trainer)
        self.nothing_left = False
        """Whether the run had made all its steps before this process began."""
        self._lost, self._looks = list[str](), 0
        self._source = start.checkpoint  # what the Trainer loads
        self._resuming = start.checkpoint is not None
        self._has_begun = False

    def install(self) -> Callable[[], None]:
        """Take effect; returns the function that undoes it."""
        if self._start.checkpoint is not None:
            self.states.resume(self._start.checkpoint)
        self.states.keep(None)
        if self._start.has_record:
            set_cpu_state(self._begin)  # the order of the samples starts from its seed
        if self._writes():  # the others write when training begins
            self._folder.drop_leftovers()
            if not self._start.has_record and self._start.checkpoint is None:
                self._folder.clear()
                self._folder.write(self._record)
        trainer = self._trainer
        trainer.callback_handler.callbacks.insert(0, self)  # others may look at the random numbers of an epoch
        session = session_of(trainer)
        session.add("run", self, {"_load_rng_state": partial(self._load, trainer._load_rng_state)})
        session.wrap_loader("run", self._repeatable_loader)

        def remove() -> None:
            session.remove("run")
            trainer.remove_callback(self)

        return remove

    def _repeatable_loader(self, make: Callable[[], Any]) -> Any:
        """A training loader that can be made again alike.

        Its batch size is that of ``args``, where some versions take the checkpoint's. Lasting workers get their seed
        from a generator of their own: the global one, which orders are drawn from, would be asked for it once in a run,
        and again in each that continues.
        """
        self._trainer._train_batch_size = self._trainer.args.train_batch_size
        loader = make()
        if getattr(loader, "persistent_workers", False) and loader.generator is None:
            for part in (loader, getattr(loader, "base_dataloader", loader)):
                part.generator = torch.Generator().manual_seed(torch.initial_seed())
        return loader

    def latest(self) -> Path | None:
        """This run's newest complete checkpoint that is still there."""
        return next((c for c in reversed(self._checkpoints) if not incomplete(c, self._record.processes)), None)

    def rewind(self, checkpoint: Path | None) -> int:
        """Prepare for a retry from ``checkpoint``, or from where this process began (None); returns its step."""
        self.states.restore(checkpoint)
        self._source = checkpoint or self._start.checkpoint
        self._resuming = self._source is not None
        if self._source is None:
            self._epochs.clear()
            self._folder.drop_epochs()
            return 0
        return step_of(self._source)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        optimizer: torch.optim.Optimizer | None = None,
        lr_scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
        **_: object,
    ) -> None:
        """Begin the record; let later checkpoints hold the batch size really used.

        Here all processes have read what there was.
        """
        state.train_batch_size = args.train_batch_size
        if not self._has_begun:
            self._has_begun = True
            self.nothing_left = self._resuming and 0 < state.max_steps <= state.global_step
            if self._trainer.is_world_process_zero():
                if self.nothing_left:
                    logger.warning("nothing is left to train in %s: %s", args.output_dir, FINISHED)
                for change in self._start.changes:
                    logger.warning("%s", f"{change.difference}: without effect" if self.nothing_left else change)
                warn_of_little_space(self._trainer)
            self._go_by(args, state, optimizer, lr_scheduler)
            if not self.nothing_left:
                self._record.settings |= {change.name: change.now for change in self._start.changes if change.in_force}
            self._record.max_steps = max(state.max_steps, state.global_step)
            self._folder.write_state(self._begin)
            self._folder.drop_epochs(self._epochs)
            for step, epoch in self._epochs.items():
                self._folder.write_state(epoch, step)
        self._write()
        if self._resuming and 0 < state.max_steps <= state.global_step and not _between_epochs(state):
            raise AllStepsMade  # within an epoch the Trainer would make one step more before it looks

    def _go_by(
        self,
        args: TrainingArguments,
        state: TrainerState,
        optimizer: torch.optim.Optimizer | None,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None,
    ) -> None:
        """Let the first step have the new schedule's learning rate, too, where the schedule is another now.

        The Trainer loads the old schedule's rate with the optimizer, and asks the new schedule from the second step on.
        """
        planned = self._record.max_steps if self._start.has_record else 0
        if self.nothing_left or not (planned not in (0, state.max_steps) or changes_schedule(self._start.changes)):
            return
        rates = _rates_of_schedule(scheduler)
        groups = optimizer.param_groups if optimizer is not None and self._resuming and rates else []
        before = [float(group["lr"]) for group in groups]
        for group, rate in zip(groups, rates, strict=False):
            group["lr"] = torch.as_tensor(rate).to(group["lr"]) if isinstance(group["lr"], torch.Tensor) else rate
        if groups and scheduler is not None:
            getattr(scheduler, "scheduler", scheduler)._last_lr = rates  # which the Trainer logs
        if self._trainer.is_world_process_zero():
            logger.warning(
                "%d optimizer steps are planned, %d when the run began: from step %d on the learning rate follows the "
                "%s schedule of %d steps%s",
                state.max_steps,
                planned or state.max_steps,
                state.global_step,
                getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type),
                state.max_steps,
                f", {rates[0]:.3g} there instead of {before[0]:.3g}" if before else "",
            )

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Name callbacks that no restart could put back, as soon as they hold something."""
        if self._looks == _LOOKS:
            return
        self._looks += 1
        lost = [name for name in self.states.lost() if name not in self._lost]
        if lost and self._trainer.is_world_process_zero():
            self._lost += lost
            logger.warning(
                "%s: tensors that no checkpoint holds. A resumed run begins them again, and training that runs out of "
                "memory outside of its steps ends instead of restarting. With state_dict and load_state_dict the "
                "callback is saved in each checkpoint and put back",
                listed(lost),
            )

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, train_dataloader: Any = None,
        **_: object,
    ) -> None:  # fmt: skip
        """Keep the epoch's random numbers, or restore those of the epoch in which training continues."""
        if not self._resuming:
            self._keep_epoch(state.global_step)
            return
        self._resuming = False
        if _between_epochs(state):
            self._trainer._load_rng_state(str(self._source))  # as the Trainer will again
            return
        if begun := [step for step in self._epochs if step <= state.global_step]:
            set_cpu_state(self._epochs[max(begun)])
            if max(begun) and not has_length(train_dataloader):
                logger.warning(_STREAM_BEGINS_AGAIN, max(begun), state.global_step)
        else:
            self._keep_epoch(state.global_step)

    def _load(self, original: Callable[[str | None], None], checkpoint: str | None) -> None:
        with _numpy_allowed():
            original(checkpoint)
        # An epoch that begins here may have begun after an evaluation, which draws numbers, too.
        state = self._trainer.state
        if checkpoint is not None and _between_epochs(state):
            if state.global_step in self._epochs:
                set_cpu_state(self._epochs[state.global_step])
            else:
                self._keep_epoch(state.global_step)

    def _keep_epoch(self, step: int) -> None:
        self._epochs[step] = cpu_state()
        self._folder.write_state(self._epochs[step], step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Write the record where it has changed."""
        if self._changed():
            self._write()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Remember a checkpoint that was written whole; forget the epochs that none goes back to."""
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self._checkpoints = [c for c in self._checkpoints if c != checkpoint] + [checkpoint]
        try:  # without these, the checkpoint is as good as one of the Trainer's
            self.states.keep(checkpoint)
            if self._writes():
                write_checksums(checkpoint)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            logger.warning("cannot add callbacks' states and checksums to %s: %s", checkpoint, error)
        if checkpoint.name in self._record.foreign:
            self._record.foreign.remove(checkpoint.name)
            self._write()
        own = [c for c in checkpoints(Path(args.output_dir)) if c.name not in self._record.foreign]
        begun = self._start.checkpoint
        steps = [step_of(c) for c in [*own, *([begun] if begun and begun.is_dir() else [])]]
        needed = {max((e for e in self._epochs if e <= step), default=0) for step in steps}
        needed.add(max(self._epochs, default=0))
        self._epochs = {step: state for step, state in self._epochs.items() if step in needed}
        self._folder.drop_epochs(needed)

    def _writes(self) -> bool:
        return bool(self._trainer.args.should_save)

    def _write(self) -> None:
        if self._writes():
            self._folder.write(self._record)


def _rates_of_schedule(scheduler: torch.optim.lr_scheduler.LRScheduler | None) -> list[float]:
    """The learning rates of the current step; none for schedules that depend on more than the step."""
    scheduler = getattr(scheduler, "scheduler", scheduler)  # in accelerate's
    if not isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR):
        return []
    step = scheduler.last_epoch
    return [float(base * rule(step)) for base, rule in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)]


def _between_epochs(state: TrainerState) -> bool:
    """Whether a checkpoint was saved at the end of an epoch."""
    return state.global_step > 0 and float(state.epoch or 0).is_integer()


@contextlib.contextmanager
def _numpy_allowed() -> Iterator[None]:
    """Allow numpy's generator in checkpoints, where the Trainer is older than torch's refusal of it."""
    serialization = torch.serialization
    if not hasattr(serialization, "safe_globals"):
        yield
        return
    core = np._core if hasattr(np, "_core") else np.core
    with serialization.safe_globals([core.multiarray._reconstruct, np.ndarray, np.dtype, type(np.dtype(np.uint32))]):
        yield
