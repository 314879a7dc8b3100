"""Clips that a model raises an error on, whose loss or gradient is not finite, or that make the gradient norm jump.

They are named, saved and left out. While all is finite an optimizer step costs one look at its loss, where the Trainer
looks too, and one at the gradient norm of the step before. Clips are computed alone only once something went wrong.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable
from typing import Any

import torch

from .._core.batches import UnsplittableBatchError, batch_size, extent, spoken_lengths
from .._core.checks import BadClipPolicy
from .._core.out_of_memory import add_note, clear_frames, first_line
from ..errors import AsrConfigError, InfeasiblePlanError
from .clip_findings import ClipAlone, ClipMeasurement, broken, probes
from .engine import Engine
from .loading import ClipRows
from .loop import Call
from .optimizer_step import RECENT, GradientNorms
from .training_report import BadBatch

logger: logging.Logger = logging.getLogger("asrconfig_go")

_RAISED = (IndexError, ValueError, RuntimeError)  # what models raise on a clip's labels and lengths
_MAX_REPORTS = 20  # of a run, and as many times that clips are measured to be reported only
_ROUNDS = 4  # times that a step is computed again without clips
_FEW = 3  # clips of a batch: where all of so many fail, the model or its settings are at fault
_STANDS_OUT = 3.0  # times the median gradient norm of the window's clips


class BadClipError(AsrConfigError):
    """A clip raises an error, or its loss or gradient is not finite, and ``bad_clips="raise"`` was asked for."""


class BadClips:
    """Has the batches of one loop computed, and looks at what comes of them.

    Attributes:
        norms: Of the gradients of each optimizer step.
        batches: What was met; grows.
        count: Clips that were left out.
    """

    def __init__(self, engine: Engine, policy: BadClipPolicy, rows: ClipRows | None = None) -> None:
        self._engine, self._policy, self._rows = engine, policy, rows
        self._loop, self._window = engine.loop, engine.window
        self._measure = ClipMeasurement(engine.loop, engine.state, engine.splitting.split)
        self.norms = GradientNorms()
        engine.resolve_error, self.norms.not_finite = self._raised, self._clipped
        engine.left_out.report = lambda call: self.does_not_fit(call, "left out")
        self.batches: list[BadBatch] = []
        self.count = 0
        self._probes: list[Any] = []
        self._reported: object = None  # the batches of the window of which something was reported
        self._lost = False  # weights are not finite, for good

    def begin(self) -> None:
        """A training begins."""
        self._probes, self._reported, self._lost = list(probes(self._loop.model)), None, False

    def remove(self) -> None:
        """Release the weights."""
        self._probes = []

    def compute(self, call: Call) -> None:
        """Compute the newest batch of the window; a clip that is bad or does not fit alone is named."""
        try:
            self._engine.run(call)
            self.look(call)
        except InfeasiblePlanError as error:
            piece = self._engine.attempts.piece()
            if piece is not None and piece.is_one_clip:
                self.does_not_fit(call, "raised", error)
            raise

    def look(self, call: Call) -> None:
        """The newest batch of the window, ``call``, was computed: whether it, or the whole window, is finite.

        The window is computed again without what is left out. Raises ``BadClipError``.
        """
        window = self._window
        complete = len(window.calls) >= window.planned
        if not complete and self._policy != "skip":
            return
        # On a CPU the norm that clipping returns shows the gradient, in time for a report.
        clips = self.norms.clips_on_cpu and self._policy == "report"
        if clips and len(window.calls) == 1 and math.isfinite(float(call.loss)):
            return  # what most steps are
        calls = window.calls if complete else [call]
        probes = self._probes if complete and not self.norms.scaled and not clips else ()
        for _ in range(_ROUNDS):
            losses = [call.loss for call in calls]
            if _finite([*losses, *(p.grad.sum() for p in probes if p.grad is not None)]) or self._lost:
                return
            if not self._leaves_out("gradient" if _finite(losses) else "loss", calls):
                return
            self._engine.replay_window(call)

    def _clipped(self) -> None:
        """The gradient norm is not finite, and weights are about to change."""
        is_reported = self._reported is self._window.batches  # what follows from what was reported is not news
        if not is_reported and not self._lost and self._policy == "report" and self._window.calls:
            self._leaves_out("gradient", self._window.calls)

    def _leaves_out(self, problem: str, calls: list[Call]) -> bool:
        """Name the clips to blame; returns whether they were left out, so that the step is computed again."""
        if (self._policy != "skip" and len(self.batches) >= _MAX_REPORTS) or self._has_lost_weights():
            return False
        calls = [call for call in calls if problem != "loss" or not _finite([call.loss])]
        clips = self._alone(problem, calls)
        return self._blame(problem, f"the {problem} is not finite", calls, clips)

    def _raised(self, call: Call, error: Exception) -> bool:
        """A batch raised an error that is not of memory: whether the clips that raise one alone were left out.

        It is named in the error. Raises ``BadClipError`` from it where that was asked for.
        """
        if not isinstance(error, _RAISED) or isinstance(error, AsrConfigError) or call.inputs is None:
            return False
        try:
            clips = self._raising(call)
        except UnsplittableBatchError:
            return False
        text = f"{type(error).__name__}: {first_line(error)}".rstrip(".")
        try:
            return self._blame("error", text, [call], clips, error)
        except BadClipError as named:
            raise named from error

    def _raising(self, call: Call) -> list[ClipAlone]:
        """The clips of a batch with the error that each raises alone, in evaluation mode or as in the step.

        Where every clip raises one, its padding may: a text that is too long for a decoder makes all of them too long.
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
        """Report the batch and apply the policy; returns whether clips were left out."""
        named = [clip for clip in clips if (clip.error if problem == "error" else clip.fails())]
        is_part = 0 < len(named) < (self._clips_left() if len(clips) < _FEW else len(clips))
        ends = problem == "error" or self._policy == "raise"
        done = "left out" if is_part and self._policy == "skip" else "raised" if ends else "reported"
        text += ": every clip alone does so" if named and not is_part else ""
        batch = self._report(problem, text, calls, clips, named, done, error=error)
        if error is not None and done == "raised":
            add_note(error, str(batch))
        if done == "raised" and self._policy == "raise":
            raise BadClipError(str(batch), 'leave the clip out of the dataset, or pass bad_clips="skip"')
        if done == "left out":
            self._take_out(named)
        return done == "left out"

    def _clips_left(self) -> int:
        window = self._window
        to_come = max(0, window.planned - len(window.calls))  # one at least of each batch
        return to_come + sum(call.size()[0] for call in window.calls if call.inputs is not None)

    def _take_out(self, named: list[ClipAlone]) -> None:
        for clip in sorted(named, key=lambda clip: -clip.number):
            inputs = clip.call.inputs
            lengths = spoken_lengths(inputs) or [extent(inputs).length] * batch_size(inputs)
            self._window.leave_out(self._engine.rule.count(clip.call.take_out(clip.number, lengths)))
            self.count += 1

    def _alone(self, problem: str, calls: list[Call]) -> list[ClipAlone]:
        """Each clip's loss, and its gradient norm unless a loss is to blame; without what cannot be measured."""
        clips: list[ClipAlone] = []
        try:
            clips = self._measure.losses(calls)
            if problem == "loss" and not any(clip.fails() for clip in clips):
                clips = self._measure.losses(calls, training=True)
            if problem not in ("loss", "evaluation"):
                self._measure.gradients(clips)
        except Exception as error:  # of memory, before the first clip: the training is not to end by a look at it
            logger.warning("cannot compute the clips of a batch alone: %s", first_line(error))
            clear_frames(error)
        return clips

    def step_over(self) -> None:
        """The optimizer's step was made; the window's batches are still there."""
        unusual = self.norms.look()
        is_reported = self._reported is self._window.batches or len(self.batches) >= _MAX_REPORTS
        if unusual is None or is_reported or self._lost or not self._window.calls:
            return
        (norm, usual), step = unusual, self._loop.step_number - 1
        if self._has_lost_weights(step):
            return
        calls = [call for call in self._window.calls if call.inputs is not None]
        clips = self._alone("jump", calls)
        named = [clip for clip in clips if clip.fails()] or _standing_out(clips, usual)
        if math.isfinite(norm):
            text = f"the gradient norm is {norm:.3g}, {norm / usual:.0f} times the median of {RECENT} steps"
            self._report("jump", text, calls, clips, named, "reported", step)
        else:
            self._report("gradient", f"the gradient norm is {norm}", calls, clips, named, "reported", step)

    def in_evaluation(self, call: Call, text: str, rows: ClipRows, saved: bool) -> None:
        """The loss of an evaluation's batch, the last that the loader of ``rows`` has delivered, is not finite."""
        if self._lost or self._has_lost_weights():
            return
        clips = self._alone("evaluation", [call])
        named = [clip for clip in clips if clip.fails()]
        text += ": every clip alone does so" if len(named) == len(clips) > 1 else ""
        from .saved_batch import BatchWriter

        write = BatchWriter(self._loop, lambda _: -1, self._engine.budget, rows, saved)
        self._report("evaluation", text, [call], clips, named, "reported", write=write)

    def _has_lost_weights(self, step: int | None = None) -> bool:
        """Whether weights are not finite, so that no clip is to blame; reports it."""
        if name := broken(self._loop.model):
            self._lost = True
            text = f"{name} has values that are not finite, from an earlier step: continue from a checkpoint"
            step = self._loop.step_number if step is None else step
            self.batches.append(BadBatch(step, "weights", text, (), "reported", ""))
            logger.warning("%s", self.batches[-1])
        return self._lost

    def does_not_fit(self, call: Call, done: str, error: Exception | None = None) -> None:
        """A micro-batch of one clip ran out of memory for good: its batch is saved, and the longest clip named."""
        if call.inputs is None or not self._window.planned:  # of a rehearsal
            return
        lengths = spoken_lengths(call.inputs) or [0] * batch_size(call.inputs)
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
        named: list[ClipAlone],
        done: str,
        step: int | None = None,
        error: Exception | None = None,
        write: Callable[..., BadBatch] | None = None,
    ) -> BadBatch:
        """Save the batch, then record and log it."""
        step = self._loop.step_number if step is None else step
        usual = statistics.median([clip.gradient_norm or 0.0 for clip in clips] or [0.0])
        reasons = {(id(clip.call), clip.number): _why(problem, clip, usual) for clip in named}
        self._reported = self._reported if problem in ("memory", "evaluation") else self._window.batches
        from .saved_batch import BatchWriter  # what reads datasets and texts waits until something is wrong

        write = write or BatchWriter(self._loop, self._window.loader_position, self._engine.budget, self._rows)
        text = first_line(error) if error is not None else ""
        batch = write(BadBatch(step, problem, description, (), done, ""), calls, clips, reasons, text)
        self.batches.append(batch)
        logger.warning("%s", batch)
        return batch


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


def _why(problem: str, clip: ClipAlone, usual: float) -> str:
    if clip.error:
        return f"it raises {clip.error}"
    if problem == "memory":
        return "the longest clip of a batch that does not fit one by one"
    if clip.loss is not None and not math.isfinite(clip.loss):
        return f"its loss is {clip.loss}"
    if clip.gradient_norm is not None and not math.isfinite(clip.gradient_norm):
        return f"its gradient norm is {clip.gradient_norm}"
    return f"its gradient norm is {clip.gradient_norm:.3g}, the median clip's {usual:.3g}"
