"""Watches one training: its steps, and a check about once a second."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from .._core.checks import at_least, checked
from .._core.declared import StepKind
from .._core.settings import INTERVAL_MS
from ..errors import InvalidArgumentError
from .alerts import BestEffort, say, say_messages
from .watch_records import MemoryCheck

if TYPE_CHECKING:
    from ..guard.training_report import GuardEvent
    from ..predict.memory_model import MemoryModel
    from .batch_shapes import BatchShapes, LoaderWait
    from .display import Panel, RunFile
    from .memory_monitor import MemoryMonitor
    from .watch_records import Activity


class WatchSettings(TypedDict, total=False):
    """What ``AdaptiveMemoryCallback`` takes by keyword."""

    warn_at: float
    clean_at: float
    hysteresis: float
    cooldown_s: float
    interval_ms: float
    progress: bool
    panel: bool | None
    run_file: bool
    memory: MemoryModel | None


@dataclass(frozen=True)
class WatchOptions:
    """See ``AdaptiveMemoryCallback``. Raises ``InvalidArgumentError`` for what makes no sense."""

    warn_at: float = 0.90
    clean_at: float = 0.95
    hysteresis: float = 0.05
    cooldown_s: float = 60.0
    interval_ms: float = INTERVAL_MS
    progress: bool = True
    panel: bool | None = None
    run_file: bool = True
    memory: MemoryModel | None = None

    def __post_init__(self) -> None:
        for name in ("warn_at", "clean_at", "hysteresis", "cooldown_s", "interval_ms"):
            object.__setattr__(self, name, checked(name, getattr(self, name), float))
        for name, hint in (("progress", bool), ("run_file", bool), ("panel", bool | None)):
            checked(name, getattr(self, name), hint)
        if not 0 < self.warn_at < self.clean_at <= 1 or not 0 <= self.hysteresis < self.warn_at:
            raise InvalidArgumentError(
                f"warn_at = {self.warn_at}, clean_at = {self.clean_at}, hysteresis = {self.hysteresis} are no shares "
                "in that order",
                "0 < warn_at < clean_at <= 1 and 0 <= hysteresis < warn_at; the defaults are 0.90, 0.95 and 0.05",
            )
        at_least("cooldown_s", self.cooldown_s, 0, "pass seconds; the default is 60", float)
        if self.memory is not None:
            from .batch_shapes import by_memory

            by_memory(self.memory)

    @property
    def limits(self) -> dict[str, float]:
        """The arguments of ``MemoryMonitor.check``."""
        return {name: getattr(self, name) for name in ("warn_at", "hysteresis", "clean_at", "cooldown_s")}


_EVERY_S = 1.0
_POINTS = 240  # of the panel's curve of memory


class TimeShare:
    """The share of each second since the last call by which ``spent`` grew; None where unknown."""

    def __init__(self, spent: Callable[[], float | None], clock: Callable[[], float] = time.perf_counter) -> None:
        self._spent, self._clock = spent, clock
        self._at, self._before = clock(), spent() or 0.0

    def __call__(self) -> float | None:
        """Ask, and begin again."""
        now, spent = self._clock(), self._spent()
        passed = now - self._at
        if spent is None or passed <= 0:
            return None
        share = (spent - self._before) / passed
        self._at, self._before = now, spent
        return share


class Watch:
    """Reports the training to ``monitor``, warns at thresholds and of forecasts, cleans up, and draws.

    A monitor that fails is logged once, and the training continues unwatched; a part that fails is switched off.
    ``file``, ``line``, ``panel`` and ``guard_events`` (the guard's growing list) are set from outside.
    """

    def __init__(
        self, monitor: MemoryMonitor, options: WatchOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.monitor, self._clock = monitor, clock
        self.file: RunFile | None = None
        self.line: Callable[..., None] | None = None
        self.panel: Panel | None = None
        self.guard_events: Sequence[GuardEvent] = ()
        self.problem = ""
        self.checked = MemoryCheck(None, False, (), 0, 0)
        """The newest check."""
        self._limits, self._interval_s, self._looking = options.limits, options.interval_ms / 1000, clock()
        self._saving, self._showing = BestEffort("the run log is not written"), BestEffort("memory is not shown")
        self._scaling = BestEffort("memory is not logged")
        self._next, self._begun, self._first, self._reported_events = clock(), clock(), 0, 0
        self._activity: tuple[float, Activity] | None = None
        self._at: tuple[int, int] | None = None  # step of steps, while it trains
        self.follow(None, None)

    def follow(self, wait: LoaderWait | None, inputs: BatchShapes | None) -> None:
        """Report the time spent waiting for the loader, the batches and their useful work, as far as given."""
        self._wait, self.inputs = wait, inputs
        self._logged, self._shown = (
            (
                TimeShare(lambda: None if wait is None else wait.known()),
                TimeShare(lambda: None if inputs is None else inputs.arithmetic_s),
            )
            for _ in range(2)
        )

    @property
    def active(self) -> bool:
        """Whether the monitor works and samples."""
        return not self.problem and self.monitor.running

    def begin(self, step: int, steps: int) -> None:
        """Training begins after ``step`` of ``steps``."""
        self._begun, self._first, self._reported_events = self._clock(), step, len(self.guard_events)
        self._at = step, steps
        self.tell("training", f"training begins after step {step} of {steps}")

    def step(self, number: int, steps: int) -> None:
        """An optimizer step has ended."""
        self._at = number, steps
        if self._tell(self._step, number) and self._clock() >= self._looking:  # else there is no newer sample
            self._look(number, steps)

    def evaluated_batch(self, number: int, steps: int) -> None:
        """A batch of an evaluation or a prediction has ended."""
        if self._tell(self._other, "evaluation") and self._clock() >= self._looking:
            self._look(number, steps)

    def saved(self, number: int) -> None:
        """A checkpoint has been written."""
        self._tell(self._other, "checkpoint", number)
        self.tell("training", f"checkpoint after step {number}")
        self.write()

    def tell(self, kind: str, text: str) -> None:
        """Note an event."""
        self._tell(self.monitor.event, kind, text)

    def end(self, number: int, peaks: Sequence[str] = ()) -> None:
        """Training has come to its end; ``peaks`` are those of its processes."""
        self._at = None
        for text in (*peaks, f"training ends after step {number}"):
            self.tell("training", text)
        if self.active:
            self._showing(self._show, number, number, self._clock())

    def stop(self) -> None:
        """Stop sampling, and keep the run log."""
        was_running = self.monitor.running
        if was_running and self._at is not None:  # by an exception
            self._showing(self._show, *self._at, self._clock(), True)
            self._at = None
        with contextlib.suppress(Exception):
            self.monitor.stop()
        if was_running:
            self.write()

    def write(self) -> None:
        """Bring the run's file up to date."""
        if self.file is not None and not self.problem:
            self._saving(self.file.write)

    def scalars(self) -> dict[str, float]:
        """The newest figures for reporters; empty when they are not available."""
        return (self._scaling(self._scalars) or {}) if self.active else {}

    def _scalars(self) -> dict[str, float]:
        from .display import scalars

        return scalars(self.monitor.read(), self._newest_activity(), *(share() for share in self._logged))

    def _newest_activity(self) -> Activity:
        if self._activity is None or self._clock() >= self._activity[0]:
            self._activity = self._clock() + _EVERY_S, self.monitor.activity()  # the monitor reads no faster
        return self._activity[1]

    def _tell(self, function: Callable[..., None], *arguments: object) -> bool:
        if not self.active:
            return False
        try:
            function(*arguments)
        except Exception as error:  # a training run is worth more than its curves
            self.problem = str(error) or type(error).__name__
            say(f"memory is not watched: {self.problem}")
            with contextlib.suppress(Exception):
                self.monitor.stop()
        return not self.problem

    def _step(self, number: int) -> None:
        totals: dict[str, float] = {} if self.inputs is None else self.inputs.take()
        if self._reported_events != len(self.guard_events):  # what was computed again would count twice
            totals = {}
            for event in self.guard_events[self._reported_events :]:
                self.monitor.event("out_of_memory", str(event))
            self._reported_events = len(self.guard_events)
        self.monitor.step(number, kind="train", waited_s=None if self._wait is None else self._wait.last, **totals)

    def _other(self, kind: StepKind, number: int | None = None) -> None:
        totals: dict[str, float] = {} if self.inputs is None else self.inputs.take()
        self.monitor.step(number, kind=kind, **totals)

    def _look(self, number: int, steps: int) -> None:
        now = self._clock()
        self._looking = now + self._interval_s
        self._tell(self._check)
        if now >= self._next:
            self._next = now + _EVERY_S
            self._showing(self._show, number, steps, now)
            if self.file is not None and self.file.due:
                self.write()

    def _check(self) -> None:
        self.checked = self.monitor.check(self._limits)
        say_messages(self.checked)
        if self.checked.clean_up:
            give_back_memory()

    def _show(self, number: int, steps: int, now: float, stopped: bool = False) -> None:
        from .display import PanelState

        if self.line is None and self.panel is None:
            return
        waited, useful = (share() for share in self._shown)
        if self.line is not None:
            self.line(self.checked.fullest, self._newest_activity(), waited, useful)
        if self.panel is not None:
            done = number - self._first
            going_on = not stopped and done > 0 and steps > number
            remaining = (now - self._begun) / done * (steps - number) if going_on else None
            monitor = self.monitor
            readings = monitor.read(), monitor.activity(), monitor.history(_POINTS), monitor.alerts()
            self.panel.show(PanelState(number, steps, remaining, waited, useful, *readings, stopped))


def give_back_memory() -> None:
    """Collect garbage, and return the GPU's cached memory to the driver."""
    if "torch" not in sys.modules:  # where it was never imported, it holds nothing
        gc.collect()
        return
    from .._core.out_of_memory import free_memory

    free_memory()
