"""The options of a guard, and what recovers the steps of a loop as they say: a Trainer's, or one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict, get_args

from .._core.checks import BadClipPolicy, OomSnapshot, TooLong, check_seconds, checked
from .._core.declared import WeightRule
from ..errors import InfeasiblePlanError, InvalidArgumentError
from .bad_clips import BadClips
from .clip_findings import ClipRows
from .clip_measurement import GradientNorms
from .engine import Engine
from .loop import Call, Loop, Split
from .loss_rule import GivenRule, LossRule
from .micro_batches import Attempts, Budget
from .splitting import OversizedClips

_HALVINGS = 3  # of a step
_MOST_HALVINGS = 20  # down to one clip, where clips may be left out
_MOST_CLIPS = 100_000


class GuardSettings(TypedDict, total=False):
    """What ``Guard`` takes by keyword."""

    max_halvings: int | None
    micro_batch: int | None
    memory: Any
    memory_limit_bytes: int | None
    overhead_s: float | None
    rule: GivenRule | None
    split: Split | None
    too_long: TooLong | Callable[[Any], list[Any]]
    preflight: bool | float
    split_batch_statistics: bool
    oom_snapshot: OomSnapshot
    bad_clips: BadClipPolicy


@dataclass(frozen=True)
class GuardOptions:
    """The same with their defaults. Raises ``InvalidArgumentError`` for values that mean nothing."""

    max_halvings: int | None = None
    micro_batch: int | None = None
    memory: Any = None
    memory_limit_bytes: int | None = None
    overhead_s: float | None = None
    rule: GivenRule | None = None
    split: Split | None = None
    too_long: TooLong | Callable[[Any], list[Any]] = "raise"
    preflight: bool | float = False
    split_batch_statistics: bool = False
    oom_snapshot: OomSnapshot = "blocks"
    bad_clips: BadClipPolicy = "report"

    def __post_init__(self) -> None:
        if self.overhead_s is not None and not 0 <= checked("overhead_s", self.overhead_s, float) <= 1e6:
            raise InvalidArgumentError(
                f"overhead_s = {self.overhead_s!r} is out of range", "pass seconds of audio, 4 is usual"
            )
        for name, value, minimum in (("max_halvings", self.max_halvings, 0), ("micro_batch", self.micro_batch, 1)):
            is_int = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (is_int and minimum <= value <= _MOST_CLIPS):
                problem = f"{name} = {value!r} is not a whole number from {minimum}"
                raise InvalidArgumentError(problem, "3 halvings are usual")
        if not callable(self.rule):
            checked("rule", self.rule, WeightRule | None)
        if self.too_long not in get_args(TooLong) and not callable(self.too_long):
            raise InvalidArgumentError(
                f"too_long = {self.too_long!r} is not known",
                '"raise", "skip", or a function from a batch of one to a list',
            )
        if not isinstance(self.preflight, bool):
            check_seconds("preflight", self.preflight)
        checked("split_batch_statistics", self.split_batch_statistics, bool)
        checked("oom_snapshot", self.oom_snapshot, OomSnapshot)
        checked("bad_clips", self.bad_clips, BadClipPolicy)

    @property
    def halvings(self) -> int:
        """The retries of each step."""
        if self.max_halvings is not None:
            return self.max_halvings
        return _HALVINGS if self.too_long == "raise" else _MOST_HALVINGS


class Recovery:
    """Computes the batches of a loop as ``GuardOptions`` say.

    Attributes:
        engine: Computes the batches of a window.
        bad: Looks at their losses.
        left_out: Takes out clips that do not fit alone.
        norms: Of the gradients of each optimizer step.
    """

    def __init__(
        self,
        loop: Loop,
        rule: LossRule,
        budget: Budget,
        attempts: Attempts,
        options: GuardOptions,
        rows: ClipRows | None = None,
        *,
        processes: int = 1,
        weights_windows: bool = True,
    ) -> None:
        engine = self.engine = Engine(
            loop, rule, budget, attempts, split=options.split, split_statistics=options.split_batch_statistics,
            processes=processes, weights_windows=weights_windows,
        )  # fmt: skip
        self.norms = GradientNorms()
        bad = self.bad = BadClips(options.bad_clips, engine, self.norms, rows)
        self.left_out = engine.left_out = OversizedClips(
            options.too_long, budget, engine.window, rule, lambda call: bad.does_not_fit(call, "left out")
        )

    def run(self, call: Call) -> None:
        """Compute the newest batch of the window, and name a clip that is bad or does not fit alone."""
        try:
            self.engine.run(call)
            self.bad.look(call)
        except InfeasiblePlanError as error:
            piece = self.engine.attempts.piece()
            if piece is not None and piece.is_one_clip:
                self.bad.does_not_fit(call, "raised", error)
            raise
