"""``guarded_step``: optimizer steps of a loop of one's own that recover from out-of-memory errors."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from .._base.checks import checked
from .._base.choices import BadClipPolicy, TooLong
from .._base.errors import InvalidArgumentError
from .._base.files import user_path
from ..bad_clips.bad_clip_record import BadBatch
from ..bad_clips.detection import BadClips
from ..bad_clips.gradient_norms import GradientNorms
from ..bad_clips.oversized_clips import OversizedClips
from ..losses.loss_rule import GivenRule, LossRule, weighted
from .accumulation_window import Call
from .attempts import Attempts
from .engine import Engine
from .guard_checks import check_options
from .loop import Loop
from .micro_batch_budget import Budget
from .optimizer_step import OptimizerSteps
from .training_report import GuardEvent

logger: logging.Logger = logging.getLogger("asrconfig_go")

LossFunction = Callable[[Any, Any], torch.Tensor]


class OwnLoop(Loop):
    """Forward and backward as such loops are written: autocast in the loss, a scaler, accumulation."""

    name = "guarded_step"

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any,
        loss_fn: LossFunction,
        scaler: Any,
        accumulation: int,
        accelerator: Any,
        labels: str,
        output: Path | None,
    ) -> None:
        self._model, self._optimizer, self._loss_fn, self._scaler = model, optimizer, loss_fn, scaler
        self.accumulation, self._accelerator, self.labels, self._output = accumulation, accelerator, labels, output
        self.steps, self._mixed = 0, False
        self.notes: tuple[str, ...] = ()

    def is_complete(self, batches: int) -> bool:
        """Whether so many batches make up an optimizer step."""
        if self._accelerator is not None:
            return bool(self._accelerator.sync_gradients)
        return batches >= self.accumulation

    @property
    def model(self) -> torch.nn.Module:
        """As it was passed, without accelerate's wrapper."""
        return self._accelerator.unwrap_model(self._model) if self._accelerator is not None else self._model

    @property
    def optimizer(self) -> Any:
        """As it was passed."""
        return self._optimizer

    @property
    def step_number(self) -> int:
        """Optimizer steps that this object has made."""
        return self.steps

    @property
    def is_coarse(self) -> bool:
        """Whether a scaler scales losses of 16 bits, or autocast was on in the model's forward when it was measured."""
        return self._mixed or self._scaler is not None

    @property
    def output(self) -> Path | None:
        """The ``output_dir`` that was passed."""
        return self._output

    def roots(self) -> Mapping[str, Any]:
        """The model and what the loss function holds."""
        return {type(self.model).__name__: self.model, "loss_fn": self._loss_fn}

    def uncleared(self) -> list[torch.Tensor]:
        """The model's that the optimizer does not have: those of the optimizer are cleared behind its step."""
        own = {id(p) for group in self._optimizer.param_groups for p in group["params"]}
        return [p for p in self.parameters() if id(p) not in own]

    def prepare(self) -> None:
        """The loop has chosen the mode."""

    def say(self, text: str) -> None:
        """Keep it in ``notes``, and log it."""
        if text not in self.notes:
            self.notes += (text,)
            logger.warning(text)

    def compute(self, call: Call, part: Any, weight: Any, *, whole_window: bool) -> Any:
        """Of the loss divided by the accumulation steps."""
        loss = self._checked(self._loss_fn(self._model, part))
        share = loss if weight is None else loss * weight
        if self._accelerator is not None:
            self._accelerator.backward(share)  # divides by its own accumulation steps
        else:
            share = share / self.accumulation
            (share if self._scaler is None else self._scaler.scale(share)).backward()
        return loss.detach() if weight is None else weighted(loss, weight)

    def _checked(self, loss: Any) -> torch.Tensor:
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise InvalidArgumentError(
                f"loss_fn returns {what}", "return one number as a tensor: the batch's mean loss"
            )
        return loss.reshape(()) if loss.dim() else loss

    def gradient(self, call: Call, part: Any, scale: float) -> None:
        """Without the scaler."""

        def note(*_: Any) -> None:
            self._mixed = torch.is_autocast_enabled(next(self.model.parameters()).device.type)

        hook = self.model.register_forward_pre_hook(note)
        try:
            loss = self._checked(self._loss_fn(self._model, part))
        finally:
            hook.remove()
        (loss * scale).backward()

    def loss(self, call: Call, part: Any) -> Any:
        """By the loss function."""
        return self._checked(self._loss_fn(self._model, part))

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Such a loop logs what ``step`` returns, and nothing in between."""
        yield


class GuardedStep:
    """``step(batch)``: forward, backward, and the optimizer's step where a window of accumulated batches is complete.

    Made by ``guarded_step``. Attributes:
        bad_batches: Batches that went wrong, with the clips to blame.
        skipped: Clips that were left out because they do not fit alone, or are bad.
    """

    def __init__(
        self, loop: OwnLoop, engine: Engine, bad: BadClips, left_out: OversizedClips, take: Callable[[], None]
    ):
        self._loop, self._engine, self._bad, self._left_out, self._take = loop, engine, bad, left_out, take
        engine.begin()
        bad.begin()

    def __call__(self, batch: Any) -> torch.Tensor:
        """The loss of ``batch``, detached.

        Raises ``InfeasiblePlanError`` when no smaller micro-batch is left, ``BadClipError`` where that was asked for,
        and what the loss function raises.
        """
        window, loop = self._engine.window, self._loop
        if not window.calls:
            self._bad.step_over()
            window.begin([batch])
        call = window.call(batch)
        complete = loop.is_complete(len(window.calls))
        window.planned = len(window.calls) if complete else max(loop.accumulation, len(window.calls) + 1)
        self._engine.run(call)
        self._bad.look(call)
        loss: torch.Tensor = call.loss
        if complete:
            self.finish()
        return loss

    def finish(self) -> None:
        """Take the optimizer step of batches that are fewer than ``accumulation``, at the end of an epoch."""
        if self._engine.window.calls:
            self._take()
            self._loop.steps += 1
            self._engine.budget.step_done()
            self._engine.window.begin(())

    @property
    def events(self) -> list[GuardEvent]:
        """What did not fit, and what was done about it."""
        return self._engine.attempts.events

    @property
    def notes(self) -> tuple[str, ...]:
        """What cannot be kept exact; each was logged once."""
        return self._loop.notes

    @property
    def rule(self) -> str | None:
        """What the loss divides by, as given or as measured; None while it is unknown."""
        return self._engine.rule.name

    @property
    def bad_batches(self) -> list[BadBatch]:
        """Batches that went wrong, or of which a clip does not fit alone, with the clips to blame."""
        return self._bad.batches

    @property
    def skipped(self) -> int:
        """Clips that were left out: too long to fit alone, or bad."""
        return self._left_out.count + self._bad.count

    def __repr__(self) -> str:
        return "\n".join([f"guarded_step after {self._loop.steps} steps", *(f"  {event}" for event in self.events)])


def guarded_step(
    model: torch.nn.Module,
    optimizer: Any,
    loss_fn: LossFunction,
    *,
    scaler: Any = None,
    scheduler: Any = None,
    accumulation: int = 1,
    max_grad_norm: float | None = None,
    accelerator: Any = None,
    rule: GivenRule | None = None,
    labels: str = "labels",
    split: Callable[[Any, int], list[Any]] | None = None,
    micro_batch: int | None = None,
    max_halvings: int | None = None,
    too_long: TooLong | Callable[[Any], list[Any]] = "raise",
    bad_clips: BadClipPolicy = "report",
    split_batch_statistics: bool = False,
    monitor: Any = None,
    output_dir: str | os.PathLike[str] | None = None,
) -> GuardedStep:
    """Optimizer steps of a loop of your own that recover from out-of-memory errors without changing the result.

    While nothing fails, ``step(batch)`` does what such loops do: ``loss_fn``, backward of the loss divided by
    ``accumulation``, and after so many batches clipping, ``optimizer.step()``, ``scheduler.step()`` and
    ``zero_grad()``. When memory runs out, the batches since the last optimizer step are computed again, in
    micro-batches of half the size, with the same random numbers.

    Args:
        model: The model, in the mode that you have chosen.
        optimizer: Of its parameters, and any others.
        loss_fn: ``loss_fn(model, batch)`` returns the loss of a batch as a tensor; use ``torch.autocast`` in it.
        scaler: A ``torch.amp.GradScaler``, for float16.
        scheduler: Its ``step()`` is called after each optimizer step.
        accumulation: Batches of an optimizer step.
        max_grad_norm: Gradients are clipped to this norm, if given.
        accelerator: accelerate's, for ``with accelerator.accumulate(model): step(batch)``; it then decides when
            gradients are complete, and its backward and clipping are used.
        rule: What the loss of a batch divides by: ``"mean"`` (clips), ``"token_mean"``, ``"sum"`` or a function from a
            batch to a number; measured once memory has run out if not given.
        labels: The entry of a batch that ``"token_mean"`` counts.
        split: For batches of an unknown kind, a function from a batch and a size to a list of batches.
        micro_batch: The most clips of a micro-batch, from the first step on; requires ``rule``.
        max_halvings: Retries of each step, 3 if not given.
        too_long: What happens to a clip that does not fit alone: ``"raise"``, ``"skip"``, or a function that gets it as
            a batch of one and returns a list of shorter batches.
        bad_clips: What happens to clips that raise an error or whose loss or gradient is not finite: see ``Guard``.
        split_batch_statistics: Whether batches may be split in spite of batch normalisation.
        monitor: A ``MemoryMonitor``, which is told of each optimizer step.
        output_dir: Where a bad batch is saved, for ``replay_batch``.

    Returns:
        The step, to be called with each batch; call its ``finish()`` at the end of an epoch whose batches are no
        multiple of ``accumulation``.

    Raises:
        InvalidArgumentError: For options that do not go together.

    >>> import torch
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> step = guarded_step(model, optimizer, lambda model, batch: model(batch["x"]).square().mean())
    >>> loss = step({"x": torch.ones(8, 4)})
    >>> step.events
    []
    """
    check_options(max_halvings, micro_batch, None, rule, too_long, False)
    checked("bad_clips", bad_clips, BadClipPolicy)
    if checked("accumulation", accumulation, int) < 1:
        raise InvalidArgumentError(f"accumulation = {accumulation} is below 1", "1 steps after each batch")
    if micro_batch is not None and rule is None:
        raise InvalidArgumentError(
            f"micro_batch = {micro_batch} requires to know what the loss divides by", 'pass rule="mean", for example'
        )
    if isinstance(model, DistributedDataParallel) or getattr(accelerator, "num_processes", 1) > 1:
        raise InvalidArgumentError(
            "guarded_step is for one process: several would wait for each other in a batch that one computes again",
            "train with a transformers.Trainer and manager.attach(trainer), which handles DDP",
        )
    output = None if output_dir is None else user_path(output_dir, "output_dir")
    loop = OwnLoop(model, optimizer, loss_fn, scaler, accumulation, accelerator, labels, output)
    loss_rule, budget, norms = LossRule(labels, rule), Budget(micro_batch), GradientNorms()
    halvings = max_halvings if max_halvings is not None else 3 if too_long == "raise" else 20
    attempts = Attempts(halvings, lambda: loop.steps)
    engine = Engine(
        loop, loss_rule, budget, attempts, split=split, cut_statistics=split_batch_statistics, weights_windows=False,
        requested=f"micro_batch = {micro_batch}" if micro_batch else "",
    )  # fmt: skip
    bad = BadClips(loop, bad_clips, engine, norms, split, lambda: budget.samples)
    engine.other = bad.raised
    engine.left_out = OversizedClips(
        too_long, budget, engine.window, loss_rule, lambda call: bad.does_not_fit(call, "left out")
    )
    norms.scaled = scaler is not None
    steps = OptimizerSteps(lambda place, text, saved: attempts.note(place, 0, 0, text), lambda *_: "")
    take = _Step(loop, scaler, scheduler, max_grad_norm, accelerator, norms, steps, monitor)
    return GuardedStep(loop, engine, bad, engine.left_out, take)


class _Step:
    """The optimizer's step, with what belongs to it."""

    def __init__(
        self,
        loop: OwnLoop,
        scaler: Any,
        scheduler: Any,
        max_grad_norm: float | None,
        accelerator: Any,
        norms: GradientNorms,
        steps: OptimizerSteps,
        monitor: Any,
    ) -> None:
        self._loop, self._scaler, self._scheduler, self._max_norm = loop, scaler, scheduler, max_grad_norm
        self._accelerator, self._norms, self._steps, self._monitor = accelerator, norms, steps, monitor

    def __call__(self) -> None:
        optimizer = self._loop.optimizer
        self._clip(optimizer)
        self._steps.follow(optimizer)
        try:
            optimizer.step() if self._scaler is None else self._scaler.step(optimizer)
        finally:
            self._steps.remove()
        if self._scaler is not None:
            self._scaler.update()
        if self._scheduler is not None:
            self._scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        if self._monitor is not None:
            self._monitor.step()

    def _clip(self, optimizer: Any) -> None:
        if self._max_norm is None:
            return
        parameters = self._loop.parameters()
        if self._accelerator is not None:
            norm = self._accelerator.clip_grad_norm_(parameters, self._max_norm)
        else:
            if self._scaler is not None:
                self._scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(parameters, self._max_norm)
        self._norms.note(norm)
