"""Runs the parts of a benchmark in order, and makes its result; Ctrl-C and a time limit keep what was measured so far.

``benchmark_training`` checks its arguments, draws the clips, and calls ``Benchmark.run`` once. Trainings run on copies
of the model, in ``run_block``; files are written for a profile only.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .._core.checks import checked
from .._core.output import ProgressBar
from ..errors import AsrConfigError, InternalError, InvalidArgumentError
from ..watch.memory_monitor import MemoryMonitor
from ..watch.telemetry import RunLog
from ..watch.watch_records import Finding
from .benchmark_clips import measure_loading
from .benchmark_result import BenchmarkResult, Setting, bottleneck, seen
from .blocks import Bench, BlockFailed, profile_side, run_block
from .measurements import Block, LoaderResult, OptionResult, SideResult, Turn
from .sides import BenchmarkRun, Change, Place, Side, changes, interleave, mean_turn

LEARNING_STEPS = 8
"""Steps of the plan's first, unmeasured block, in which a guard tests what padding changes."""


class OutOfTime(BaseException):
    """The time is up. It is no ``Exception``, so that code that reports a training's errors does not catch it."""


@dataclass(frozen=True)
class TimeBudget:
    """A limit in minutes from its creation on; None for no limit."""

    minutes: float | None = None
    _began: float = field(default_factory=lambda: time.monotonic())

    def __post_init__(self) -> None:
        minutes = checked("minutes", self.minutes, float | None)
        if minutes is not None and minutes <= 0:
            raise InvalidArgumentError(f"minutes = {minutes:g} is not above 0", "leave it out for no limit")

    def check(self) -> None:
        """Raise ``OutOfTime`` once the time is up."""
        if self.minutes is not None and self._remaining_s() <= 0:
            raise OutOfTime

    @property
    def time_left(self) -> str:
        """The time left in words, for a progress bar; empty without a limit."""
        return "" if self.minutes is None else f"at most {max(0.0, self._remaining_s()):.0f} s left"

    def _remaining_s(self) -> float:
        return 60 * (self.minutes or 0.0) - (time.monotonic() - self._began)


@dataclass(frozen=True)
class BenchmarkOptions:
    """The parts to measure.

    Attributes:
        loader: Whether to measure the loader alone.
        sweep: The settings of which changes are tried; None for those that may help against the bottleneck.
        profile: The folder for traces by PyTorch's profiler; None to write none.
        progress: Whether to show progress bars.
        time: The time limit.
    """

    loader: bool
    sweep: Sequence[str] | None
    profile: Path | None
    progress: bool
    time: TimeBudget


class Benchmark:
    """One benchmark of ``plan``, compared with ``original`` if there is one, which is run once."""

    def __init__(
        self, bench: Bench, plan: Side, original: Side | None, setting: Setting, place: Place, choices: BenchmarkOptions
    ) -> None:
        self._bench, self._setting, self._place, self._choices = bench, setting, place, choices
        self._plan = BenchmarkRun(plan)
        self._original = None if original is None else BenchmarkRun(original)
        # What was measured so far beside the two sides, and which parts were not finished.
        self._loader: tuple[LoaderResult, ...] = ()
        self._changes: list[tuple[Change, BenchmarkRun | None]] = []
        self._profiles: list[str] = []
        self._unfinished: tuple[str, ...] = ()
        self._stopped = False
        if plan.plan is None:
            raise InternalError("the plan's side has no plan")
        self._config = plan.plan

    def run(self) -> BenchmarkResult:
        """Measure all parts, or as many as the time and Ctrl-C allow.

        Raises ``KeyboardInterrupt`` at Ctrl-C before a block of the plan was measured, ``InvalidArgumentError`` where
        the time was up before that, and where a training step fails.
        """
        monitor, problem = None, ""
        try:
            monitor = MemoryMonitor()
        except AsrConfigError as error:
            problem = f"memory was not watched: {error.message}"
        try:
            self._measure()
        except KeyboardInterrupt:
            if not self._plan.blocks:
                raise
            self._stopped = True
        except OutOfTime as error:
            if not self._plan.blocks:
                raise InvalidArgumentError(
                    f"minutes = {self._setting.minutes:g} are over before a block of the plan was measured",
                    "allow more time, or fewer steps in a block",
                ) from error
        finally:
            if monitor is not None:
                monitor.stop()
        return self._result(None if monitor is None else monitor.run_log(), problem)

    def _measure(self) -> None:
        """Run the parts in order; the names of those that are not finished stay in ``unfinished``."""
        parts = {
            "both sides" if self._original else "the plan": self._compare,
            "loading data": self._load if self._choices.loader else None,
            "single changes": self._try_changes,
            "the profile": self._profile if self._choices.profile else None,
        }
        stages = [(name, run) for name, run in parts.items() if run is not None]
        for number, (_, run) in enumerate(stages):
            self._unfinished = tuple(name for name, _ in stages[number:])
            self._choices.time.check()
            run()
        self._unfinished = ()

    def _compare(self) -> None:
        """Compare both sides after an unmeasured block, which pays for first use and for reading files from disk."""
        learning = max(self._bench.warm_up, LEARNING_STEPS - self._setting.steps)
        self._turns(self._plan, [self._original] if self._original else [], "Comparing", learning)
        if self._original and self._original.problem:
            self._turns(self._plan, [], "Measuring the plan")

    def _rounds(self, side_run: BenchmarkRun) -> tuple[Turn, ...]:
        """The times of a side's rounds; of the plan those beside the original side, or its blocks without one."""
        if side_run is not self._plan:
            return tuple(side_run.rounds)
        beside = self._original.beside if self._original else []
        return tuple(beside or map(mean_turn, side_run.blocks))

    def _try_changes(self) -> None:
        """Measure single changes to the plan, each against the plan."""
        names = self._bottleneck()[1] if self._choices.sweep is None else tuple(self._choices.sweep)
        attention = getattr(getattr(self._bench.model, "config", None), "_attn_implementation", None) or ""
        for change in changes(names, self._config, self._place, attention):
            side = Side(change.words, self._plan.side.settings, change.of(self._config))
            self._changes.append((change, None if change.why_not else BenchmarkRun(side)))
        runs = [side_run for _, side_run in self._changes if side_run is not None]
        if runs:
            self._turns(BenchmarkRun(self._plan.side), runs, "Trying changes")

    def _bottleneck(self, options: Sequence[OptionResult] = ()) -> tuple[Finding, tuple[str, ...], str]:
        checkpointing = self._config.gradient_checkpointing
        return bottleneck(self._side(self._plan, None), options, checkpointing=checkpointing, gpu=self._place.gpu)

    def _load(self) -> None:
        """Measure the loader alone, with the plan's and other numbers of workers."""
        from transformers import default_data_collator

        plan, sample = self._config, self._bench.sample
        whole_steps = plan.micro_batching == "memory"  # the plan's steps come as one batch each
        batch = sample.effective_batch if whole_steps else plan.per_device_train_batch_size
        planned = (plan.dataloader_num_workers, plan.dataloader_prefetch_factor)
        collator = self._bench.collator or default_data_collator
        with self._bar("Loading data", "pass", None) as advance:

            def passed(done: int, total: int) -> None:
                advance(done, total)
                self._choices.time.check()

            self._loader = measure_loading(
                sample, collator, batch, self._place.cores, planned=planned, rounds=self._setting.rounds, on_pass=passed
            )

    def _bar(self, label: str, unit: str, total: int | None) -> ProgressBar:
        return ProgressBar(label, unit, total, self._choices.progress, lambda: self._choices.time.time_left)

    def _turns(self, plan: BenchmarkRun, others: Sequence[BenchmarkRun], label: str, learning: int = 0) -> None:
        """Run blocks in turns; with ``learning``, after an unmeasured block of the plan with as many warm-up steps."""
        total = self._setting.rounds * max(1, 2 * len(others)) + bool(others) + bool(learning)
        numbers = itertools.count(1)
        with self._bar(label, "block", total) as advance:

            def run(side_run: BenchmarkRun, warm_up: int = self._bench.warm_up) -> Block | None:
                block = self._run(side_run, warm_up)
                advance(next(numbers), total)
                return block

            if learning:
                run(plan, learning)
            interleave(plan, others, self._setting.rounds, run)

    def _run(self, side_run: BenchmarkRun, warm_up: int) -> Block | None:
        """Run one block; None where it fails, out of memory or as a change that is only tried."""
        steps = self._setting.steps
        if side_run.side.plan is not None and side_run.side.plan.torch_compile:
            warm_up += steps  # every shape is compiled before it counts
        try:
            done = run_block(
                self._bench, side_run.side, steps, warm_up=warm_up, on_step=lambda _: self._choices.time.check()
            )
        except BlockFailed as failed:
            smaller = side_run.side.halved() if failed.memory and not side_run.blocks else None
            if smaller is not None:
                side_run.side = smaller
                return self._run(side_run, warm_up)
            self._failed(side_run, failed)
            return None
        side_run.settings, side_run.notes = done.settings, tuple(dict.fromkeys((*side_run.notes, *done.notes)))
        return done.block

    def _failed(self, side_run: BenchmarkRun, failed: BlockFailed) -> None:
        """Note why a side failed. Raises ``InvalidArgumentError`` where the benchmark makes no sense without it."""
        side_run.problem = failed.text
        if failed.memory:
            side_run.settings = side_run.side.shown()
        tried = any(side_run is run for _, run in self._changes)
        if tried or (failed.memory and side_run is self._original):
            return
        side = "the plan" if side_run.side is self._plan.side else side_run.side.name
        raise InvalidArgumentError(
            f"a training step failed with {side}: {failed.text}",
            failed.hint if failed.hint else "try trainer.train() with the same model, data and collator",
        ) from failed

    def _profile(self) -> None:
        for side_run in filter(None, (self._plan, self._original)):
            if not side_run.problem and self._choices.profile is not None:
                self._profiles.append(profile_side(self._bench, side_run.side, self._choices.profile))

    def _side(self, side_run: BenchmarkRun, run_log: RunLog | None) -> SideResult:
        sample, blocks = self._bench.sample, tuple(side_run.blocks)
        readings, _ = seen(run_log, blocks, side_run.settings)
        return SideResult(
            side_run.side.name, side_run.settings, sample.clips, sample.audio_s, sample.longest_s, self._place.cores,
            blocks, self._rounds(side_run), readings, side_run.problem, side_run.side.adapted,
        )  # fmt: skip

    def _option(self, change: Change, side_run: BenchmarkRun | None, run_log: RunLog | None) -> OptionResult:
        if side_run is None:
            return OptionResult(change.option, change.value, change.words, why_not=change.why_not)
        problem = side_run.problem or ("" if side_run.blocks else "not reached")
        side = self._side(side_run, run_log) if side_run.blocks else None
        return OptionResult(change.option, change.value, change.words, side, side_run.gain, side_run.cpu_gain, problem)

    def _result(self, run_log: RunLog | None, problem: str) -> BenchmarkResult:
        options = tuple(self._option(change, side_run, run_log) for change, side_run in self._changes)
        plan = self._side(self._plan, run_log)
        finding, _, next_change = self._bottleneck(options)
        _, findings = seen(run_log, plan.blocks, plan.settings)
        return BenchmarkResult(
            setting=self._setting,
            plan=plan,
            original=None if self._original is None else self._side(self._original, run_log),
            loader=self._loader,
            options=options,
            bottleneck=finding,
            next_change=next_change,
            findings=tuple(other for other in findings if other.kind != finding.kind),
            profile=tuple(self._profiles),
            notes=self._notes(problem),
            stopped=self._stopped,
            unfinished=self._unfinished,
        )

    def _notes(self, problem: str) -> tuple[str, ...]:
        """The notes of the result: ``problem`` with the monitor, and the notes of both sides."""
        notes = [problem] if problem else []
        for side_run in filter(None, (self._plan, self._original)):
            notes += [f"{side_run.side.name}: {note}" for note in side_run.notes]
            retried = sum(block.out_of_memory for block in side_run.blocks)
            if retried:
                notes.append(f"{side_run.side.name}: memory ran out in {retried} steps, which the guard made again")
        return tuple(notes)
