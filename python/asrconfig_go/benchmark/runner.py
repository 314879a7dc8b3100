"""Runs the parts of a benchmark in order; Ctrl-C and the end of its time keep the results so far."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .._base.errors import InternalError, InvalidArgumentError
from .._base.progress import ProgressBar
from ..monitor.run_log import RunLog
from ..report.diagnosis import Finding
from .benchmark_result import BenchmarkResult, Setting
from .blocks import Bench, BlockFailed, run_block
from .bottleneck import bottleneck, next_change
from .interleaving import BenchmarkRun, interleave, turn
from .loader_grid import default_collator, measure_loading
from .measurements import Block, LoaderResult, OptionResult, SideResult, Turn
from .monitor_figures import Watch, readings
from .plan_diagnosis import seen
from .single_changes import Change, Place, changes
from .time_budget import OutOfTime, TimeBudget
from .torch_profile import profile_side
from .variants import Side

LEARNING_STEPS = 8
"""In which a guard tries what may be done with padding: of the plan's first block, which does not count."""


@dataclass(frozen=True)
class BenchmarkOptions:
    """What is to be measured. ``sweep`` None: what may help against what holds the plan back."""

    loader: bool
    sweep: Sequence[str] | None
    profile: Path | None
    progress: bool
    time: TimeBudget


@dataclass
class _Found:
    """What has been measured so far, besides the sides."""

    loader: tuple[LoaderResult, ...] = ()
    changes: list[tuple[Change, BenchmarkRun | None]] = field(default_factory=list)
    finding: Finding | None = None
    profile: list[str] = field(default_factory=list)
    stopped: bool = False
    unfinished: tuple[str, ...] = ()


class Benchmark:
    """``run`` it once. ``original`` is None where nothing is compared."""

    def __init__(
        self, bench: Bench, plan: Side, original: Side | None, setting: Setting, place: Place, choices: BenchmarkOptions
    ) -> None:
        self._bench, self._setting, self._place, self._choices = bench, setting, place, choices
        self._plan = BenchmarkRun(plan)
        self._original = None if original is None else BenchmarkRun(original)
        self._found = _Found()
        if plan.plan is None:
            raise InternalError("the plan's side has no plan")
        self._config = plan.plan

    def run(self) -> BenchmarkResult:
        """Measure. Ctrl-C and the end of the time end it with what there is, if the plan's side has been measured."""
        watch = Watch()
        try:
            self._measure()
        except KeyboardInterrupt:
            if not self._plan.blocks:
                raise
            self._found.stopped = True
        except OutOfTime:
            self._check_measured()
        finally:
            run_log = watch.stop()
        return self._result(run_log, watch.problem)

    def _check_measured(self) -> None:
        if not self._plan.blocks:
            raise InvalidArgumentError(
                f"minutes = {self._setting.minutes:g} are over before a block of the plan was measured",
                "allow more time, or fewer steps in a block",
            )

    def _measure(self) -> None:
        parts = {
            "both sides" if self._original else "the plan": self._compare,
            "loading data": self._load if self._choices.loader else None,
            "single changes": self._try_changes,
            "the profile": self._profile if self._choices.profile else None,
        }
        asked = [(name, run) for name, run in parts.items() if run is not None]
        for number, (_, run) in enumerate(asked):
            self._found.unfinished = tuple(name for name, _ in asked[number:])
            self._choices.time.check()
            run()
        self._found.unfinished = ()

    def _compare(self) -> None:
        """Behind a block that does not count: for what is made when it is first used, and for files from disk."""
        learning = max(self._bench.warm_up, LEARNING_STEPS - self._setting.steps)
        self._turns(self._plan, [self._original] if self._original else [], "Comparing", learning)
        if self._original and self._original.problem:
            self._turns(self._plan, [], "Measuring the plan")

    def _rounds(self, course: BenchmarkRun) -> tuple[Turn, ...]:
        """Those that count: of the plan, its times beside the baseline where there is one."""
        if course is not self._plan:
            return tuple(course.rounds)
        beside = self._original.beside if self._original else []
        return tuple(beside or map(turn, course.blocks))

    def _try_changes(self) -> None:
        names = self._find_bottleneck() if self._choices.sweep is None else tuple(self._choices.sweep)
        for change in changes(names, self._config, self._place, self._attention):
            self._found.changes.append((change, None if change.why_not else self._course(change)))
        courses = [course for _, course in self._found.changes if course is not None]
        if courses:
            self._turns(BenchmarkRun(self._plan.side), courses, "Trying changes")

    @property
    def _attention(self) -> str:
        return getattr(getattr(self._bench.model, "config", None), "_attn_implementation", None) or ""

    def _course(self, change: Change) -> BenchmarkRun:
        return BenchmarkRun(Side(change.words, self._plan.side.settings, change.of(self._config)))

    def _find_bottleneck(self) -> tuple[str, ...]:
        side = self._side(self._plan, None)
        checkpointing = self._config.gradient_checkpointing
        self._found.finding, tries = bottleneck(side, checkpointing=checkpointing, gpu=self._place.gpu)
        return tries

    def _load(self) -> None:
        plan, sample = self._config, self._bench.sample
        whole = plan.micro_batching == "memory"  # the plan's steps come as one batch each
        batch = sample.effective_batch if whole else plan.per_device_train_batch_size
        planned = (plan.dataloader_num_workers, plan.dataloader_prefetch_factor)
        collator = default_collator(self._bench.collator)
        with self._bar("Loading data", "pass", None) as advance:

            def passed(done: int, total: int) -> None:
                advance(done, total)
                self._choices.time.check()

            self._found.loader = measure_loading(
                sample, collator, batch, self._place.cores, planned=planned, rounds=self._setting.rounds, on_pass=passed
            )

    def _bar(self, what: str, unit: str, total: int | None) -> ProgressBar:
        return ProgressBar(what, unit, total, self._choices.progress, lambda: self._choices.time.words)

    def _turns(self, plan: BenchmarkRun, others: Sequence[BenchmarkRun], what: str, learning: int = 0) -> None:
        """Blocks in turns; where there are steps for ``learning``, behind a block of the plan that does not count."""
        total = self._setting.rounds * max(1, 2 * len(others)) + bool(others) + bool(learning)
        numbers = itertools.count(1)
        with self._bar(what, "block", total) as advance:

            def run(course: BenchmarkRun, warm_up: int = self._bench.warm_up) -> Block | None:
                block = self._run(course, warm_up)
                advance(next(numbers), total)
                return block

            if learning:
                run(plan, learning)
            interleave(plan, others, self._setting.rounds, run)

    def _run(self, course: BenchmarkRun, warm_up: int) -> Block | None:
        """One block; None where it fails, for want of memory or as a change that is only tried."""
        steps = self._setting.steps
        if course.side.plan is not None and course.side.plan.torch_compile:
            warm_up += steps  # every shape is compiled before it counts
        try:
            done = run_block(
                self._bench, course.side, steps, warm_up=warm_up, on_step=lambda _: self._choices.time.check()
            )
        except BlockFailed as failed:
            smaller = course.side.halved() if failed.memory and not course.blocks else None
            if smaller is not None:
                course.side = smaller
                return self._run(course, warm_up)
            self._failed(course, failed)
            return None
        course.settings, course.notes = done.settings, tuple(dict.fromkeys((*course.notes, *done.notes)))
        return done.block

    def _failed(self, course: BenchmarkRun, failed: BlockFailed) -> None:
        course.problem = failed.text
        if failed.memory:
            course.settings = course.side.shown()
        tried = any(course is each for _, each in self._found.changes)
        if tried or (failed.memory and course is self._original):
            return
        side = "the plan" if course.side is self._plan.side else course.side.name
        raise InvalidArgumentError(
            f"a training step failed with {side}: {failed.text}",
            failed.hint if failed.hint else "try trainer.train() with the same model, data and collator",
        ) from failed

    def _profile(self) -> None:
        for course in filter(None, (self._plan, self._original)):
            if not course.problem and self._choices.profile is not None:
                self._found.profile.append(profile_side(self._bench, course.side, self._choices.profile))

    def _side(self, course: BenchmarkRun, run_log: RunLog | None) -> SideResult:
        sample, blocks = self._bench.sample, tuple(course.blocks)
        return SideResult(
            course.side.name, course.settings, sample.clips, sample.audio_s, sample.longest_s, self._place.cores,
            blocks, self._rounds(course), readings(run_log, blocks), course.problem, course.side.adapted,
        )  # fmt: skip

    def _option(self, change: Change, course: BenchmarkRun | None, run_log: RunLog | None) -> OptionResult:
        if course is None:
            return OptionResult(change.option, change.value, change.words, why_not=change.why_not)
        problem = course.problem or ("" if course.blocks else "not reached")
        side = self._side(course, run_log) if course.blocks else None
        return OptionResult(change.option, change.value, change.words, side, course.gain, course.cpu_gain, problem)

    def _result(self, run_log: RunLog | None, problem: str) -> BenchmarkResult:
        found, original = self._found, self._original
        if found.finding is None:
            self._find_bottleneck()
        options = tuple(self._option(change, course, run_log) for change, course in found.changes)
        plan, kind = self._side(self._plan, run_log), "" if found.finding is None else found.finding.kind
        return BenchmarkResult(
            setting=self._setting,
            plan=plan,
            original=None if original is None else self._side(original, run_log),
            loader=found.loader,
            options=options,
            bottleneck=found.finding,
            next_change="" if found.finding is None else next_change(found.finding, options),
            findings=seen(run_log, plan.blocks, plan.settings, kind),
            profile=tuple(found.profile),
            notes=self._notes(problem),
            stopped=found.stopped,
            unfinished=found.unfinished,
        )

    def _notes(self, problem: str) -> tuple[str, ...]:
        told = [problem] if problem else []
        for course in filter(None, (self._plan, self._original)):
            told += [f"{course.side.name}: {note}" for note in course.notes]
            made_again = sum(block.out_of_memory for block in course.blocks)
            if made_again:
                told.append(f"{course.side.name}: memory ran out in {made_again} steps, which the guard made again")
        return tuple(told)
