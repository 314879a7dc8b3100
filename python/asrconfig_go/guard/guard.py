"""``Guard``: recovers the training of one Trainer from out-of-memory errors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from .._core.checks import check_keywords
from .._core.output import SHOWN, first_of
from .._core.render import plural
from .._core.training_session import attached, session_of
from ..errors import InvalidArgumentError
from .bad_clips import Guarded
from .guard_options import GuardOptions, GuardSettings
from .guarded_trainer import GuardedTrainer

if TYPE_CHECKING:
    from transformers import Trainer
    from typing_extensions import Unpack

    from ..predict.worst_batch import PreflightReport

logger: logging.Logger = logging.getLogger("asrconfig_go")


class Guard(Guarded):
    """Keeps a Trainer's optimizer steps what they are, however small the micro-batches must be.

    While nothing fails it does nothing: it notes random states and references to the batches of the accumulation
    window, and calls none of the user's code. When a training step runs out of GPU memory, it frees what that holds,
    clears the window's gradients, puts the random numbers and all else that can be put back, and computes the window
    again in micro-batches of half the size. Half of what failed stays the limit, in clips × padded length. Steps,
    clips, their order, the schedule, checkpoints and logged losses are those of a run in which nothing happened;
    gradients are, up to rounding, where nothing random is drawn. What could not be put back is named in the event.

    Args:
        trainer: The ``transformers.Trainer``.
        max_halvings: Retries of each step: 3, or down to one clip where clips may be left out.
        micro_batch: The most clips of a micro-batch, from the first step on. It requires a known ``rule``.
        memory: A ``MemoryModel``, by whose predictions batches are split from the first step on, in the way that costs
            least, where the rule is known.
        memory_limit_bytes: What the allocator may reserve, for ``memory``.
        overhead_s: What a micro-batch costs besides its padded length, in seconds of audio, 4 by default. Without
            ``memory`` batches are split wherever that saves more padding.
        host_s: What a micro-batch costs at least, likewise: that long the CPU launches its kernels.
        rule: What the loss of a batch divides by, where it is none of the table in docs/guard.md: ``"mean"`` (clips),
            ``"token_mean"``, ``"shifted_token_mean"``, ``"sum"``, or a function from a batch to a number. Without one,
            the loss is measured once memory has run out.
        split: For batches of an unknown kind, a function from inputs and a size to a list of inputs.
        too_long: What happens to a clip that does not fit alone: ``"raise"``, ``"skip"``, or a function that gets it as
            a batch of one and returns a list of shorter batches.
        preflight: Whether the optimizer's states and the worst batches are tried before the first step; a number is
            the longest clip's seconds.
        split_batch_statistics: Whether batches may be split whose clips the model sees together (batch normalisation),
            by the statistics of smaller micro-batches.
        oom_snapshot: What is written to ``output_dir`` when GPU memory runs out, for pytorch.org/memory_viz: the
            allocator's blocks (``"blocks"``), with them the newest 50 000 allocations and frees (``"history"``, for
            which PyTorch records each with its stack), or nothing (``"off"``).
        bad_clips: What happens to clips on which the model raises an error or whose loss or gradient is not finite,
            once they are named and their batch is saved: ``"report"`` continues as the Trainer does, ``"raise"`` raises
            ``BadClipError`` before weights change, ``"skip"`` leaves them out of the step. See ``bad_batches``.

    Where the rule is of the table or given, micro-batches that the Trainer accumulates are weighted, too: 16 × 1, 8 × 2
    and 1 × 16 then follow the same gradient, which the Trainer alone multiplies for most speech models. With several
    processes (DDP) each computes its window by itself, and then averages. With DeepSpeed, FSDP and several GPUs in one
    process out of memory is explained and raised.

    Attributes:
        budgets: The limits of micro-batches, in ``"training"`` and in ``"evaluation"``.
    """

    def __init__(self, trainer: Trainer, **options: Unpack[GuardSettings]) -> None:
        check_keywords(options, GuardSettings.__annotations__, "Guard")
        self.trainer = trainer
        self._guarded = GuardedTrainer(trainer, GuardOptions(**options))
        super().__init__(self._guarded.bad)
        self.budgets = self._guarded.budgets
        self._undo: list[Callable[[], None]] = []

    def attach(self) -> Guard:
        """Take effect, until ``detach``; a second time does nothing."""
        if not self._undo:
            from ..audio.collators import make_readable

            trainer, guarded = self.trainer, self._guarded
            make_readable(trainer)  # stays: nothing here could read its datasets as they were
            self._wrapped = guarded.methods()
            self._undo = [session_of(trainer).add("guard", self, {**self._wrapped, **guarded.followed_events()})]
            self._undo += guarded.undo()
            for text in self.notes:
                logger.warning(text)
        return self

    def on_detach(self, undo: Callable[[], None]) -> None:
        """Call ``undo`` when the guard is detached, before all others."""
        self._undo.append(undo)

    def detach(self) -> None:
        """Leave the Trainer as it was found.

        Raises ``InvalidArgumentError``, with nothing changed, when something else has wrapped its methods since.
        """
        own = self._wrapped.items() if self._undo else ()
        over = [name for name, function in own if self.trainer.__dict__.get(name) is not function]
        if over:
            raise InvalidArgumentError(f"something has wrapped {', '.join(over)} after the guard", "undo that first")
        for undo in reversed(self._undo):
            undo()
        self._undo = []

    def release(self) -> None:
        """Release what a failed attempt to train holds; the next one is followed when it begins."""
        self._guarded.release()

    # What is known of the training.

    @property
    def knows_rule(self) -> bool:
        """Whether the rule is of the table or given, so that batches may be split before memory runs out."""
        return self._engine.rule.is_certain

    @property
    def unfit(self) -> str:
        """Why batches of this training cannot be split, once that was measured; "" before, and where they can."""
        return self._engine.rule.unfit

    @property
    def skipped(self) -> int:
        """Clips that were left out, or replaced by ``too_long``, each time that they came."""
        return self._engine.left_out.count

    @property
    def bad_clips(self) -> int:
        """Clips that were left out because of an error, or as loss or gradient was not finite, each time they came."""
        return self._bad.count

    @property
    def preflight(self) -> PreflightReport | None:
        """What was tried before the first step, if it was."""
        return self._guarded.preflight

    def __repr__(self) -> str:
        rule = f"the loss divides by {self.rule}; " if self.rule else ""
        times = plural(len(self.events), "time")
        fitted = f"did not fit {times}" if self.events else "nothing ran out of memory so far"
        lines = [
            f"Guard of {self._engine.loop.name}: {rule}{fitted}",
            *(f"  {line}" for line in first_of(self.events)),
        ]
        lines += [f"  {self.skipped} clips were too long and left out or replaced"] * bool(self.skipped)
        lines += [f"  {self.bad_clips} clips were bad and left out"] * bool(self.bad_clips)
        lines += [f"  {line}" for line in first_of(self.bad_batches, SHOWN)]
        return "\n".join([*lines, *(f"  note: {text}" for text in self.notes)])


def guard_of(trainer: Trainer) -> Guard | None:
    """The guard that a Trainer has, if it has one.

    >>> from transformers import Trainer, TrainingArguments
    >>> from asrconfig_go.recipe.model_building import small_model
    >>> args = TrainingArguments("out", use_cpu=True, report_to=[], per_device_train_batch_size=8)
    >>> trainer = Trainer(small_model(tokens=12, seed=0), args, train_dataset=[{"input_values": [0.0]}] * 16)
    >>> guard_of(trainer) is None
    True
    """
    return cast("Guard | None", attached(trainer, "guard"))


def attach(trainer: Trainer, **options: Unpack[GuardSettings]) -> Guard:
    """The guard of ``trainer``, made if there is none; an existing one accepts no options.

    >>> from transformers import Trainer, TrainingArguments
    >>> from asrconfig_go.recipe.model_building import small_model
    >>> args = TrainingArguments("out", use_cpu=True, report_to=[], per_device_train_batch_size=8)
    >>> trainer = Trainer(small_model(tokens=12, seed=0), args, train_dataset=[{"input_values": [0.0]}] * 16)
    >>> guard = attach(trainer, micro_batch=4)
    >>> guard.detach()
    """
    check_keywords(options, GuardSettings.__annotations__, "attach")
    existing = guard_of(trainer)
    if existing is None:
        return Guard(trainer, **options).attach()
    if options:
        raise InvalidArgumentError("the trainer is guarded already", "call detach() of its guard to change options")
    return existing
