"""Clips whose loss or gradient is not finite, or that make the gradient norm jump: found, saved, named, left out.

While all is finite an optimizer step costs one look at its loss, where the Trainer looks too, and one at the gradient
norm of the step before. Clips are computed alone only once something went wrong.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable
from typing import Any

import torch

from .._base.choices import BadClipPolicy
from .._base.errors import AsrConfigError
from .._base.out_of_memory import clear_frames, first_line, note
from ..batching.batch_lengths import extent, spoken_lengths
from ..batching.collated_batch import batch_size
from .accumulation_window import Call, Window
from .bad_clip_record import BadBatch
from .clip_measurement import ClipAlone, ClipMeasurement, broken, probes
from .clip_rows import ClipRows
from .gradient_norms import RECENT, GradientNorms
from .saved_batch_writing import BatchWriter

logger: logging.Logger = logging.getLogger("asrconfig_go")

_MOST_REPORTS = 20  # of a run, and as many times that clips are measured to be reported only
_ROUNDS = 4  # times that a step is computed again without clips
_FEW = 3  # clips of a batch: where all of so many fail, the model or its settings are at fault
_STANDS_OUT = 3.0  # times the median gradient norm of the window's clips


class BadClipError(AsrConfigError):
    """A clip's loss or gradient is not finite, and ``bad_clips="raise"`` was asked for."""


class BadClips:
    """Looks at the steps of one Trainer."""

    def __init__(
        self,
        trainer: Any,
        policy: BadClipPolicy,
        window: Window,
        rows: ClipRows,
        split: Callable[[Any, int], list[Any]] | None,
        limit: Callable[[], int | None],
    ) -> None:
        self._trainer, self._policy, self._window, self._rows = trainer, policy, window, rows
        self._measure = ClipMeasurement(trainer, window, split)
        self._norms, self._write = GradientNorms(trainer), BatchWriter(trainer, window, rows, limit)
        self.batches: list[BadBatch] = []
        """What was met; grows."""
        self.count = 0
        """Clips that were left out."""
        self._probes: list[Any] = []
        self._model: Any = None
        self._items: Any = None
        self._told = self._lost = False  # in this step; weights that are not finite, for good

    def begin(self) -> None:
        """Training begins: the Trainer has made its accelerator."""
        self._probes, self._told, self._lost = list(probes(self._trainer.model)), False, False
        self._norms.follow()

    def remove(self) -> None:
        """Leave the Trainer as it was found."""
        self._norms.remove()
        self._probes, self._model, self._items = [], None, None

    def fetching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The Trainer's way to fetch a window's batches: the last one is over."""

        def get_batch_samples(*args: Any, **kwargs: Any) -> Any:
            self.step_over()
            found = original(*args, **kwargs)
            self._rows.fetched(len(found[0]))
            self._told = False
            return found

        return get_batch_samples

    def look(self, model: Any, items: Any, again: Callable[[], Any]) -> None:
        """The newest batch of the window was computed: whether it, or the whole window, is finite.

        ``again`` computes the window again, without what was left out. Raises ``BadClipError``.
        """
        skips, complete = self._policy == "skip", self._window.complete
        self._model, self._items = model, items
        for _ in range(_ROUNDS if (skips or complete) and not self._lost else 0):
            calls = self._window.calls if complete else self._window.calls[-1:]
            what = self._wrong(calls, complete)
            if not what or not self._leaves_out(what, calls):
                return
            again()

    def _wrong(self, calls: list[Call], complete: bool) -> str:
        """``"loss"``, ``"gradient"`` or ""."""
        losses = [call.loss for call in calls]
        probes = self._probes if complete and not self._norms.scaled else ()
        gradients = [p.grad.sum() for p in probes if p.grad is not None]
        if _finite([*losses, *gradients]):
            return ""
        return "gradient" if _finite(losses) else "loss"

    def _leaves_out(self, what: str, calls: list[Call]) -> bool:
        """Name the clips to blame; whether they were left out, so that the step is to be computed again."""
        if self._policy != "skip" and len(self.batches) >= _MOST_REPORTS:
            return False
        if name := broken(self._model):
            self._weights_lost(name, self._trainer.state.global_step)
            return False
        calls = [call for call in calls if what != "loss" or not _finite([call.loss])]
        found = self._alone(what, calls)
        named = [clip for clip in found if clip.fails()]
        left = self._window.totals.samples - self._window.left_out.samples
        some = 0 < len(named) < (left if len(found) < _FEW else len(found))
        done = "raised" if self._policy == "raise" else "left out" if some and self._policy == "skip" else "reported"
        said = f"the {what} is not finite" + (": every clip's alone is not" if named and not some else "")
        batch = self._report(what, said, calls, found, named, done)
        if done == "raised":
            raise BadClipError(str(batch), 'leave the clip out of the dataset, or attach(bad_clips="skip")')
        if done == "left out":
            self._take_out(named)
        return done == "left out"

    def _take_out(self, named: list[ClipAlone]) -> None:
        for clip in sorted(named, key=lambda clip: -clip.number):
            inputs = clip.call.inputs
            lengths = spoken_lengths(inputs) or [extent(inputs).length] * batch_size(inputs)
            self._window.leave_out(clip.call.take_out(clip.number, lengths))
            self.count += 1

    def _alone(self, what: str, calls: list[Call]) -> list[ClipAlone]:
        """Each clip's loss, and its gradient norm unless a loss is to blame; what cannot be measured is left out."""
        found: list[ClipAlone] = []
        try:
            found = self._measure.losses(self._model, calls, self._items)
            if what == "loss" and not any(clip.fails() for clip in found):
                found = self._measure.losses(self._model, calls, self._items, training=True)
            if what != "loss":
                self._measure.gradients(self._model, found, self._items)
        except Exception as error:  # of memory, before the first clip: the training is not to end by a look at it
            logger.warning("cannot compute the clips of a batch alone: %s", first_line(error))
            clear_frames(error)
        return found

    def step_over(self) -> None:
        """The optimizer's step was made; the window's batches are still there."""
        found = self._norms.look()
        if found is None or self._told or self._lost or self._model is None or not self._window.calls:
            return
        if len(self.batches) >= _MOST_REPORTS:
            return
        (norm, usual), step = found, self._trainer.state.global_step - 1
        if name := broken(self._model):
            self._weights_lost(name, step)
            return
        calls = [call for call in self._window.calls if call.inputs is not None]
        clips = self._alone("jump", calls)
        named = [clip for clip in clips if clip.fails()] or _standing_out(clips, usual)
        what, said = "jump", f"the gradient norm is {norm:.3g}, {norm / usual:.0f} times the median of {RECENT} steps"
        if not math.isfinite(norm):
            what, said = "gradient", f"the gradient norm is {norm}"
        self._report(what, said, calls, clips, named, "reported", step)

    def _weights_lost(self, name: str, step: int) -> None:
        self._lost = True
        said = f"{name} has values that are not finite, from an earlier step: continue from a checkpoint"
        self.batches.append(BadBatch(step, "weights", said, (), "reported", ""))
        logger.warning("%s", self.batches[-1])

    def does_not_fit(self, call: Call, done: str, error: Exception | None = None) -> None:
        """A micro-batch of one clip ran out of memory for good: its batch is saved, and the longest clip named."""
        if call.inputs is None or not self._window.planned:  # of a rehearsal
            return
        lengths = spoken_lengths(call.inputs) or [0] * batch_size(call.inputs)
        clips = [ClipAlone(call, i) for i in range(len(lengths))]
        longest = max(clips, key=lambda clip: lengths[clip.number])
        batch = self._report("memory", "a clip does not fit alone", [call], clips, [longest], done, error=error)
        if error is not None:
            note(error, str(batch))

    def _report(
        self,
        what: str,
        said: str,
        calls: list[Call],
        clips: list[ClipAlone],
        named: list[ClipAlone],
        done: str,
        step: int | None = None,
        error: Exception | None = None,
    ) -> BadBatch:
        """Save the batch, and keep what was met and log it."""
        step = self._trainer.state.global_step if step is None else step
        usual = statistics.median([clip.gradient_norm or 0.0 for clip in clips] or [0.0])
        why = {(id(clip.call), clip.number): _why(what, clip, usual) for clip in named}
        told = first_line(error) if error is not None else ""
        self._told = self._told or what != "memory"
        model = self._trainer.model if self._model is None else self._model
        batch = self._write(BadBatch(step, what, said, (), done, ""), model, calls, clips, why, told)
        self.batches.append(batch)
        logger.warning("%s", batch)
        return batch


def _finite(values: list[Any]) -> bool:
    """Of the tensors of one device; with one look at a GPU's."""
    if any(isinstance(value, torch.Tensor) and value.is_cuda for value in values):
        values = [torch.stack([value.detach().float() for value in values]).sum()]
    return all(math.isfinite(float(value)) for value in values)


def _standing_out(clips: list[ClipAlone], least: float) -> list[ClipAlone]:
    """Those whose gradient norm is far above the others', and above ``least``, that of usual steps."""
    measured = [(clip.gradient_norm, clip) for clip in clips if clip.gradient_norm is not None]
    usual = statistics.median([norm for norm, _ in measured] or [0.0])
    return [clip for norm, clip in measured if len(measured) > 1 and norm > max(_STANDS_OUT * usual, least)]


def _why(what: str, clip: ClipAlone, usual: float) -> str:
    if what == "memory":
        return "the longest clip of a batch that does not fit one by one"
    if clip.loss is not None and not math.isfinite(clip.loss):
        return f"its loss is {clip.loss}"
    if clip.gradient_norm is not None and not math.isfinite(clip.gradient_norm):
        return f"its gradient norm is {clip.gradient_norm}"
    return f"its gradient norm is {clip.gradient_norm:.3g}, the median clip's {usual:.3g}"
