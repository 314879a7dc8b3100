"""Finds clips on which a model raises an error, whose loss or gradient is not finite, or whose gradient norm jumps.

They are named, saved and left out. While all is finite, an optimizer step costs one read of its loss, where the
Trainer reads it, too, and one of the gradient norm of the step before. Clips are computed alone only after something
went wrong.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import torch

from .._core.batches import UnsplittableBatchError, clip_lengths
from .._core.out_of_memory import add_note, clear_frames, first_line
from .._core.output import logger
from .._core.settings import BadClipPolicy
from ..errors import AsrConfigError, InfeasiblePlanError
from .clip_findings import ClipAlone, ClipMeasurement, broken, probes
from .engine import Engine
from .loading import ClipRows
from .loop import Call
from .optimizer_step import RECENT, GradientNorms
from .training_report import BadBatch, GuardEvent

_MODEL_ERRORS = (IndexError, ValueError, RuntimeError)  # raised for labels and lengths that a model cannot take
_MAX_REPORTS = 20  # of a run; after as many, clips that are only reported are not measured any more
_MAX_REPLAYS = 4  # of a step, each without the clips that were left out
_ENOUGH_CLIPS = 3  # where all of at least as many clips of a batch fail, the model or its settings are at fault
_STANDS_OUT = 3.0  # times the median gradient norm of the window's clips


class BadClipError(AsrConfigError):
    """A clip raises an error, or its loss or gradient is not finite, and ``bad_clips="raise"`` was passed."""


class BadClips:
    """Has the engine compute the batches of one loop, and checks the losses and gradients.

    Attributes:
        engine: Computes the batches.
        norms: The gradient norms of optimizer steps.
        batches: The batches that went wrong so far.
        count: The clips that were left out so far.
    """

    def __init__(self, engine: Engine, policy: BadClipPolicy, rows: ClipRows | None = None) -> None:
        self.engine, self._policy, self._rows = engine, policy, rows
        self._loop, self._window = engine.loop, engine.window
        self._measure = ClipMeasurement(engine.loop, engine.state, engine.splitting.split)
        self.norms = GradientNorms()
        engine.resolve_error, self.norms.not_finite = self._error_raised, self._norm_not_finite
        engine.left_out.report = lambda call: self.does_not_fit(call, "left out")
        self.batches: list[BadBatch] = []
        self.count = 0
        self._probes: list[Any] = []
        self._reported: object = None  # the batches of the window for which something was reported
        self._lost = False  # whether weights are not finite, which no later step repairs

    def begin(self) -> None:
        """Called when a training begins."""
        self._probes, self._reported, self._lost = list(probes(self._loop.model)), None, False

    def remove(self) -> None:
        """Release the weights."""
        self._probes = []

    def compute(self, call: Call) -> None:
        """Compute the newest batch of the window; a clip that is bad or does not fit alone is named."""
        try:
            self.engine.run(call)
            self.check(call)
        except InfeasiblePlanError as error:
            piece = self.engine.attempts.piece()
            if piece is not None and piece.samples == 1 and not (piece.cannot_split or piece.of_replacement):
                self.does_not_fit(call, "raised", error)
            raise

    def check(self, call: Call) -> None:
        """Check that the newest batch of the window, or the whole window once it is complete, is finite.

        The window is computed again without the clips that are left out. Raises ``BadClipError`` for a bad clip where
        ``bad_clips="raise"`` was passed.
        """
        window = self._window
        complete = len(window.calls) >= window.planned
        if not complete and self._policy != "skip":
            return
        # On a CPU the norm that clipping returns shows whether the gradient is finite, in time for a report.
        norm_suffices = self.norms.clips_on_cpu and self._policy == "report"
        if norm_suffices and len(window.calls) == 1 and math.isfinite(float(call.loss)):
            return  # most steps end here
        calls = window.calls if complete else [call]
        probes = self._probes if complete and not self.norms.scaled and not norm_suffices else ()
        for _ in range(_MAX_REPLAYS):
            losses = [call.loss for call in calls]
            if _finite([*losses, *(p.grad.sum() for p in probes if p.grad is not None)]) or self._lost:
                return
            if not self._leave_bad_clips_out("gradient" if _finite(losses) else "loss", calls):
                return
            self.engine.replay_window(call)

    def _norm_not_finite(self) -> None:
        """Called before weights change, where the gradient norm is not finite."""
        is_reported = self._reported is self._window.batches
        if not is_reported and not self._lost and self._policy == "report" and self._window.calls:
            self._leave_bad_clips_out("gradient", self._window.calls)

    def _leave_bad_clips_out(self, problem: str, calls: list[Call]) -> bool:
        """Name the bad clips of ``calls``; returns whether they were left out, so that the step is computed again."""
        if (self._policy != "skip" and len(self.batches) >= _MAX_REPORTS) or self._has_lost_weights():
            return False
        calls = [call for call in calls if problem != "loss" or not _finite([call.loss])]
        clips = self._measured_alone(problem, calls)
        return self._blame(problem, f"the {problem} is not finite", calls, clips)

    def _error_raised(self, call: Call, error: Exception) -> bool:
        """Name the clips of a batch on which the model raised ``error``, which is not about memory.

        Returns whether the clips that raise an error alone were left out. Otherwise their names are added to ``error``;
        with ``bad_clips="raise"`` a ``BadClipError`` is raised from it.
        """
        if not isinstance(error, _MODEL_ERRORS) or isinstance(error, AsrConfigError) or call.inputs is None:
            return False
        try:
            clips = self._failing_alone(call)
        except UnsplittableBatchError:
            return False
        text = f"{type(error).__name__}: {first_line(error)}".rstrip(".")
        try:
            return self._blame("error", text, [call], clips, error)
        except BadClipError as bad_clip:
            raise bad_clip from error

    def _failing_alone(self, call: Call) -> list[ClipAlone]:
        """The clips of a batch with the error that each raises alone, in evaluation mode or else as in the step.

        Where every clip raises one, the padding may be the cause, as one text that is too long for a decoder makes all
        of them too long. Each is then computed without padding.
        """
        clips = self._measure.losses([call])
        if not any(clip.error for clip in clips):
            return self._measure.losses([call], training=True)
        if len(clips) > 1 and all(clip.error for clip in clips):
            unpadded = self._measure.losses([call], own_padding=True)
            return unpadded if any(clip.error for clip in unpadded) else clips
        return clips

    def _blame(
        self, problem: str, text: str, calls: list[Call], clips: list[ClipAlone], error: Exception | None = None
    ) -> bool:
        """Report the batch and apply the policy to its bad clips; returns whether they were left out."""
        blamed = [clip for clip in clips if (clip.error if problem == "error" else clip.fails())]
        window, most = self._window, len(clips)
        if blamed and most < _ENOUGH_CLIPS:  # there are others in the window, at least one in each batch to come
            most = max(0, window.planned - len(window.calls))
            most += sum(call.size()[0] for call in window.calls if call.inputs is not None)
        is_part = 0 < len(blamed) < most
        ends = problem == "error" or self._policy == "raise"
        done = "left out" if is_part and self._policy == "skip" else "raised" if ends else "reported"
        if blamed and not is_part:
            text += ": every clip alone does so"
            if len(blamed) >= _ENOUGH_CLIPS:  # model or settings are at fault
                blamed = []
        batch = self._report(problem, text, calls, clips, blamed, done, error=error)
        if error is not None and done == "raised":
            add_note(error, str(batch))
        if done == "raised" and self._policy == "raise":
            hint = 'leave the clip out of the dataset, or pass bad_clips="skip"'
            raise BadClipError(str(batch), hint if blamed else "correct the model, the collator or the settings")
        for clip in sorted(blamed, key=lambda clip: -clip.number) if done == "left out" else ():
            window.take_out(clip.call, clip.number)
            self.count += 1
        return done == "left out"

    def _measured_alone(self, problem: str, calls: list[Call]) -> list[ClipAlone]:
        """The clips of ``calls``, computed alone: their losses, and gradient norms where the loss is not the problem.

        What cannot be measured is None.
        """
        clips: list[ClipAlone] = []
        try:
            clips = self._measure.losses(calls)
            if problem == "loss" and not any(clip.fails() for clip in clips):
                clips = self._measure.losses(calls, training=True)
            if problem not in ("loss", "evaluation"):
                self._measure.gradients(clips)
        except Exception as error:  # such as out of memory: measuring clips must not end the training
            logger.warning("cannot compute the clips of a batch alone: %s", first_line(error))
            clear_frames(error)
        return clips

    def step_ended(self) -> None:
        """Called after the optimizer's step, while the window has its batches: report an unusual gradient norm."""
        unusual = self.norms.look()
        is_reported = self._reported is self._window.batches or len(self.batches) >= _MAX_REPORTS
        if unusual is None or is_reported or self._lost or not self._window.calls:
            return
        (norm, usual), step = unusual, self._loop.step_number - 1
        if self._has_lost_weights(step):
            return
        calls = [call for call in self._window.calls if call.inputs is not None]
        clips = self._measured_alone("jump", calls)
        blamed = [clip for clip in clips if clip.fails()] or _standing_out(clips, usual)
        problem, text = "gradient", f"the gradient norm is {norm}"
        if math.isfinite(norm):
            problem = "jump"
            text = f"the gradient norm is {norm:.3g}, {norm / usual:.0f} times the median of {RECENT} steps"
        self._report(problem, text, calls, clips, blamed, "reported", step)

    def report_evaluated(self, call: Call, text: str, rows: ClipRows, saved: bool) -> None:
        """Report a batch of an evaluation whose loss is not finite, the last that the loader of ``rows`` has delivered.

        ``text`` says what happened; the batch is written only where it is ``saved``.
        """
        if self._lost or self._has_lost_weights():
            return
        clips = self._measured_alone("evaluation", [call])
        blamed = [clip for clip in clips if clip.fails()]
        text += ": every clip alone does so" if len(blamed) == len(clips) > 1 else ""
        self._report("evaluation", text, [call], clips, blamed, "reported", rows=rows, saved=saved)

    def _has_lost_weights(self, step: int | None = None) -> bool:
        """Whether weights are not finite, so that no clip is the cause; reports it."""
        if name := broken(self._loop.model):
            self._lost = True
            text = f"{name} has values that are not finite, from an earlier step: continue from a checkpoint"
            step = self._loop.step_number if step is None else step
            self.batches.append(BadBatch(step, "weights", text, (), "reported", ""))
            logger.warning("%s", self.batches[-1])
        return self._lost

    def does_not_fit(self, call: Call, done: str, error: Exception | None = None) -> None:
        """Report a clip that does not fit alone: save its batch, and name the longest clip."""
        if call.inputs is None or not self._window.planned:  # of a rehearsal
            return
        lengths = clip_lengths(call.inputs)
        clips = [ClipAlone(call, i) for i in range(len(lengths))]
        longest = max(clips, key=lambda clip: lengths[clip.number])
        batch = self._report("memory", "a clip does not fit alone", [call], clips, [longest], done, error=error)
        if error is not None:
            add_note(error, str(batch))

    def _report(
        self,
        problem: str,
        description: str,
        calls: list[Call],
        clips: list[ClipAlone],
        blamed: list[ClipAlone],
        done: str,
        step: int | None = None,
        error: Exception | None = None,
        rows: ClipRows | None = None,
        saved: bool = True,
    ) -> BadBatch:
        """Save the batch, then record and log it; ``rows`` are those of an evaluation, whose newest batch it is."""
        step = self._loop.step_number if step is None else step
        usual = statistics.median([clip.gradient_norm or 0.0 for clip in clips] or [0.0])
        for clip in blamed:
            clip.why = _reason(problem, clip, usual)
        self._reported = self._reported if problem in ("memory", "evaluation") else self._window.batches
        from .saved_batch import BatchWriter  # imported only when something is wrong, as it imports what reads datasets

        place: Callable[[Call], int] = (lambda _: -1) if rows else self._window.loader_position
        write = BatchWriter(self._loop, place, self.engine.budget, rows or self._rows, saved)
        text = first_line(error) if error is not None else ""
        batch = write(BadBatch(step, problem, description, (), done, ""), calls, clips, text)
        self.batches.append(batch)
        logger.warning("%s", batch)
        return batch


class Guarded:
    """What happened in a training whose batches ``bad`` computes."""

    def __init__(self, bad: BadClips) -> None:
        self._bad, self._engine = bad, bad.engine

    @property
    def events(self) -> list[GuardEvent]:
        """The out-of-memory errors, and what was done about each."""
        return self._engine.attempts.events

    @property
    def notes(self) -> tuple[str, ...]:
        """What cannot stay exact in this training, in sentences that were logged once."""
        return self._engine.loop.notes

    @property
    def rule(self) -> str | None:
        """What the loss divides by: a rule of the table or measured, or ``"given"`` for a function; None if unknown."""
        return self._engine.rule.name

    @property
    def bad_batches(self) -> list[BadBatch]:
        """The batches that went wrong, or of which a clip does not fit alone, with the clips to blame."""
        return self._bad.batches


def _finite(values: list[Any]) -> bool:
    """Whether all values are finite; tensors of a GPU are read once, together."""
    if len(values) == 1:
        return math.isfinite(float(values[0]))
    if any(isinstance(value, torch.Tensor) and value.is_cuda for value in values):
        values = [torch.stack([value.detach().float() for value in values]).sum()]
    return all(math.isfinite(float(value)) for value in values)


def _standing_out(clips: list[ClipAlone], threshold: float) -> list[ClipAlone]:
    """The clips whose gradient norm is far above the others', and above that of usual steps."""
    measured = [(clip.gradient_norm, clip) for clip in clips if clip.gradient_norm is not None]
    usual = statistics.median([norm for norm, _ in measured] or [0.0])
    return [clip for norm, clip in measured if len(measured) > 1 and norm > max(_STANDS_OUT * usual, threshold)]


def _reason(problem: str, clip: ClipAlone, usual: float) -> str:
    if clip.error:
        return f"it raises {clip.error}"
    if problem == "memory":
        return "the longest clip of a batch that does not fit one by one"
    if clip.loss is not None and not math.isfinite(clip.loss):
        return f"its loss is {clip.loss}"
    if clip.gradient_norm is not None and not math.isfinite(clip.gradient_norm):
        return f"its gradient norm is {clip.gradient_norm}"
    return f"its gradient norm is {clip.gradient_norm:.3g}, the median clip's {usual:.3g}"
