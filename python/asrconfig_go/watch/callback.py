"""A ``TrainerCallback`` that watches memory while training runs: warns, cleans up, and draws curves."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from transformers.trainer_callback import CallbackHandler, TrainerCallback

from .._core.checks import check_keywords
from .._core.training_session import attached
from .alerts import BestEffort, attach_hint, say
from .memory_monitor import MemoryMonitor
from .telemetry import MemorySnapshot
from .watch import Watch, WatchOptions, WatchSettings

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import TrainerState, TrainingArguments
    from typing_extensions import Unpack

    from ..plan.plan_record import PlanRecord
    from .memory_summary import MemorySummary, RankFiles, RankPeaks
    from .step_times import StepTimes

Figures = dict[str, float]
_FRAMES_TO_HANDLER = 5  # subclasses that call super() put their own frames in between
_NOT_GATHERED = "peaks of the processes are not gathered"
_NEVER, _ELSEWHERE = "no training has begun", "another process of this node watches memory"


def lead(handler: CallbackHandler | None, callback: TrainerCallback) -> None:
    """Move ``callback`` to the front. While the handler walks the list, this neither skips nor repeats anyone."""
    if handler is not None:
        handler.callbacks.remove(callback)
        handler.callbacks.insert(0, callback)


def handler_of(frame: FrameType | None, callback: TrainerCallback) -> CallbackHandler | None:
    """The handler that is calling ``callback``: it is not passed to the callback, so it is read from the frame."""
    for _ in range(_FRAMES_TO_HANDLER):
        if frame is None:
            break
        caller = frame.f_locals.get("self")
        if isinstance(caller, CallbackHandler) and any(member is callback for member in caller.callbacks):
            return caller
        frame = frame.f_back
    return None


class AdaptiveMemoryCallback(TrainerCallback):  # type: ignore[misc]
    """Watches GPU memory while training runs, host memory where there is no GPU. See docs/watching.md.

    - Memory that fills up is warned of, and freed where garbage and PyTorch's cache hold it. Shares of memory are 0 to
      1; what PyTorch's cache holds unused counts as free.
    - What the monitor forecasts is logged as a warning with what to do about it.
    - Without a guard, a batch that is predicted not to fit is warned of before it runs.
    - The Trainer's own reporters (TensorBoard, …) get ``asrconfig/gpu0_memory_used_gib`` and so on with every logged
      training loss; nothing is added to evaluation metrics. Reporters run before other callbacks, so this one moves
      itself to the front.

    On several nodes each node's first process watches all its GPUs; the other processes report their peaks at the end.
    A monitor that cannot start, or fails, is reported and never stops the training.

    Sampling ends with the training. The Trainer does not report exceptions to callbacks: after one (Ctrl-C included)
    ``manager.train`` and a ``with callback:`` block stop the sampler, else it ends with the next training, the
    callback's collection or the process.

    Args:
        config: The plan, whose ``cudnn_benchmark`` and ``deterministic`` are set while training runs and restored
            afterwards (see ``backends``). Arguments of the Trainer that differ from it are warned of. None without one.
        monitor: Returns the monitor to read, for tests; None for a new ``MemoryMonitor``.
        warn_at: The share of a GPU's memory at which a warning is logged, 0.90 by default. It is logged once per
            crossing: again only after the share fell by ``hysteresis``, and not within two minutes.
        clean_at: The share at which garbage is collected and PyTorch's cache is returned to the driver; above
            ``warn_at``, 0.95 by default.
        hysteresis: How far the share must fall below ``warn_at``, 0.05 by default.
        cooldown_s: The least seconds between two clean-ups, 60 by default; twice as many after each that did not help.
        interval_ms: The sample interval in milliseconds, 1 to 60 000. Steps check memory no more often than that.
        progress: Whether the Trainer's progress bar ends with a line about memory, True by default.
        panel: Whether a live panel is shown; None, the default, shows one in notebooks.
        run_file: Whether the run log is written to ``asrconfig_monitor.json`` in the Trainer's ``output_dir``, True by
            default.
        memory: A ``MemoryModel`` traced for the GPU, which predicts whether a batch fits. None for the plan's lengths.

    Attributes:
        options: The options, with their defaults.

    Raises:
        InvalidArgumentError: An option is unknown, of the wrong type or out of range (0 < warn_at < clean_at ≤ 1,
            0 ≤ hysteresis < warn_at, cooldown_s ≥ 0), or ``memory`` has no GPU.

    Example:
        >>> callback = AdaptiveMemoryCallback(warn_at=0.80, panel=False)
        >>> callback.options.clean_at
        0.95
    """

    samples_memory = True  # a guarded training stops what samples, when it ends

    def __init__(
        self,
        config: PlanRecord | None = None,
        *,
        monitor: Callable[[], MemoryMonitor] | None = None,
        **options: Unpack[WatchSettings],
    ) -> None:
        from ..plan.argument_check import PlannedTraining
        from ..plan.environment import TrainingSwitches

        check_keywords(options, WatchSettings.__annotations__, "AdaptiveMemoryCallback")
        self.options: WatchOptions = WatchOptions(**options)
        self.managed = False
        """Whether a manager made the callback; warnings then name it as what attaches the guard."""
        self.times: StepTimes | None = None
        """Times of the first steps, which are compared with the estimate; None before the first training."""
        self.planned = None if config is None else PlannedTraining(config)
        """What the arguments of a Trainer are compared with when it begins; a manager adds to it."""
        self._config, self._switches = config, TrainingSwitches(config)
        self._make = monitor
        self._watch: Watch | None = None
        self._undo = ExitStack()
        self._problem = _NEVER
        self._ranks: tuple[RankPeaks, ...] = ()
        self._rank_files: RankFiles | None = None
        self._gathering = BestEffort(_NOT_GATHERED)
        self._warned_metrics: set[str] = set()  # of evaluations in which some were not finite

    def summary(self) -> MemorySummary:
        """Return the memory peaks of the running or the last training.

        Returns:
            The peaks, with the number of warnings and clean-ups.
        """
        from .memory_summary import summarised

        watch, nothing = self._watch, MemorySnapshot(None, 0, 0, None, None, None, ())
        if watch is None:
            return summarised(nothing, 0, 0, self._problem, self._ranks)
        shot = nothing if watch.problem else watch.monitor.read()
        return summarised(shot, watch.checked.warnings, watch.checked.clean_ups, watch.problem, self._ranks)

    def stop(self) -> None:
        """Stop sampling, and leave model, Trainer and torch's switches as they were. Harmless when nothing runs."""
        if self._watch is not None:
            self._watch.stop()
        if self.times is not None:
            self.times.stop()
        self._undo.close()
        self._switches.put_back()

    def __enter__(self) -> AdaptiveMemoryCallback:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __getstate__(self) -> dict[str, object]:
        # A copy has no training: two owners of one monitor, or of one model's hooks, would end them twice.
        return {**vars(self), "_watch": None, "_undo": ExitStack(), "times": None, "_problem": _NEVER}

    # Events of the Trainer.

    def on_init_end(self, args: object, state: object, control: object, **kwargs: object) -> None:
        """Move this callback before the Trainer's reporters."""
        lead(handler_of(sys._getframe(1), self), self)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: object,
        model: Module | None = None,
        **kwargs: object,
    ) -> None:
        """Start sampling. A second begin without an end, as after a restart, continues with the same monitor."""
        from .memory_summary import RankFiles
        from .step_times import StepTimes
        from .watch_setup import equip

        handler = handler_of(sys._getframe(1), self)
        lead(handler, self)
        self._switches.set()
        if model is not None and state.is_world_process_zero:
            self.times = self.times or StepTimes()
            self.times.begin(args, model)
            self._warn(args, model, handler)
        self._ranks, self._warned_metrics = (), set()
        folder = Path(getattr(args, "output_dir", None) or ".") / ".asrconfig"
        processes = getattr(args, "process_index", 0), getattr(args, "world_size", 1)
        self._rank_files = RankFiles(folder, *processes)
        self._gathering = BestEffort(_NOT_GATHERED)
        self._gathering(self._rank_files.begin)
        if not state.is_local_process_zero:
            self._problem = _ELSEWHERE
            return
        if self._watch is None or not self._watch.active:
            self._start()
        if self._watch is not None and self._watch.active:
            self._undo.close()
            equip(self._watch, self.options, self._config, self.managed, args, state, handler, model, self._undo)
            self._watch.begin(state.global_step, state.max_steps)

    def on_step_begin(self, *_: object, **__: object) -> None:
        """Record the time at which each of the first steps begins."""
        if self.times is not None and self.times.noting:
            self.times.step_begins()

    def on_step_end(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        """Report the step, and check memory."""
        if self.times is not None and self.times.noting:
            self.times.step_ends()
        if self._watch is not None:
            self._watch.step(state.global_step, state.max_steps)

    def on_prediction_step(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        """Report a batch of an evaluation or a prediction, and check memory."""
        if self._watch is not None:
            self._watch.evaluated_batch(state.global_step, state.max_steps)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: object,
        metrics: dict[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        """Record the end of an evaluation, and name metrics that are not finite where no guard does."""
        from ..guard.evaluation import not_finite

        if self._watch is not None:
            self._watch.tell("training", f"evaluation after step {state.global_step}")
        if not state.is_world_process_zero:
            return
        new = {name: value for name, value in (metrics or {}).items() if name not in self._warned_metrics}
        handler = handler_of(sys._getframe(1), self)
        if (text := not_finite(new, args, state.global_step)) and not attached(handler, "guard"):
            self._warned_metrics.update(new)
            say(f"{text}; with a guard the clips are named → {attach_hint(self.managed)}")

    def on_save(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        """Record a checkpoint, and write the run log next to it."""
        if self._watch is not None:
            self._watch.saved(state.global_step)

    def on_log(
        self, args: object, state: TrainerState, control: object, logs: Figures | None = None, **kwargs: object
    ) -> None:
        """Add the memory figures to the training losses that the Trainer is about to report."""
        if self._watch is not None and state.is_world_process_zero and logs and "loss" in logs:
            logs.update(self._watch.scalars())

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: object, **kwargs: object) -> None:
        """Gather the peaks of all processes, stop sampling, and compare the first steps with the estimate."""
        if self._rank_files is not None:
            self._ranks = self._gathering(self._rank_files.end, self._monitor) or ()
        if self._watch is not None:
            self._watch.end(state.global_step, [str(peaks) for peaks in self._ranks])
        if self.times is not None:
            self.times.end(args)  # after the monitor: what a trace takes is not the training's
        self.stop()
        if self._ranks:
            say(str(self.summary()), logging.INFO)

    # How.

    @property
    def _monitor(self) -> MemoryMonitor | None:
        return None if self._watch is None else self._watch.monitor

    def _start(self) -> None:
        self._watch = None
        try:
            monitor = self._make() if self._make else MemoryMonitor(self.options.interval_ms)
        except Exception as error:  # a training run is worth more than its curves
            self._problem = str(error)
            say(f"memory is not watched: {error}")
        else:
            self._watch = Watch(monitor, self.options)

    def _warn(self, args: TrainingArguments, model: Module, handler: CallbackHandler | None) -> None:
        from .watch_setup import say_missing_guard, say_unplanned

        if self.planned is not None and not attached(handler, "arguments"):
            say_unplanned(self.planned, args, model)
        if not attached(handler, "guard"):
            say_missing_guard(args, model, self._config, self.managed)
