"""``guarded_step``: optimizer steps of a loop of one's own that recover from out-of-memory errors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .._core.batches import batch_size, entries
from .._core.checks import checked
from .._core.files import user_path
from .._core.out_of_memory import clear_frames, is_gpu_oom
from .._core.output import first_of
from .._core.random_state import rng_state, set_rng_state
from .._core.settings import BadClipPolicy, TooLong
from ..errors import AsrConfigError, InvalidArgumentError
from .bad_clips import BadClips, Guarded
from .engine import Engine
from .guard_options import GuardOptions, check_own_loop, steps_to_accumulate
from .loop import Batch, Call, Loop, Split, Weight
from .loss_rule import GivenRule, LossRule, check_gradient, factor, weighted
from .micro_batches import Attempts, Budget
from .optimizer_step import OptimizerSteps
from .rule_measurement import without_autocast

if TYPE_CHECKING:
    from accelerate import Accelerator

_FEWEST = 2  # clips that a measurement needs
LossFunction = Callable[[Any, Any], torch.Tensor]


class OwnLoop(Loop):
    """Forward and backward as such loops are written: autocast in the loss, a scaler, accumulation."""

    name = "guarded_step"
    model: torch.nn.Module = None  # as it was passed, without accelerate's wrapper
    optimizer: torch.optim.Optimizer = None
    step_number = 0
    output: Path | None = None
    is_in_16_bits = False
    """Whether a module was called with autocast on when the loss was measured, as it could not be without."""

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, loss_fn: LossFunction, *,
        scaler: torch.amp.GradScaler | None, scheduler: torch.optim.lr_scheduler.LRScheduler | None,
        accelerator: Accelerator | None, accumulation: int, max_grad_norm: float | None, labels: str,
        output: Path | None,
    ) -> None:  # fmt: skip
        self._wrapped, self.optimizer, self._loss_fn = model, optimizer, loss_fn
        self._scaler, self._scheduler, self.accelerator = scaler, scheduler, accelerator
        self.model = model if accelerator is None else accelerator.unwrap_model(model)
        self.accumulation, self._max_grad_norm, self.labels, self.output = accumulation, max_grad_norm, labels, output
        self._needs_autocast = False

    def settings(self) -> dict[str, Any]:
        """The name of the loss function, without which a batch cannot be computed."""
        return {"loss_fn": getattr(self._loss_fn, "__qualname__", type(self._loss_fn).__name__)}

    def roots(self) -> Mapping[str, Any]:
        """The model and what the loss function holds."""
        return {type(self.model).__name__: self.model, "loss_fn": self._loss_fn}

    def compute(self, call: Call, part: Batch, weight: Weight, *, whole_window: bool) -> Any:
        """Compute the gradient of the loss divided by the accumulation steps."""
        loss = self.loss(call, part)
        check_gradient(loss)
        share = loss if weight is None else loss * factor(weight, loss)
        if self.accelerator is not None:
            self.accelerator.backward(share)  # divides by its own accumulation steps
        else:
            share = share / self.accumulation
            (share if self._scaler is None else self._scaler.scale(share)).backward()
        if weight is None:
            return loss.detach()
        return weighted(loss.float() if loss.element_size() < 4 else loss, weight)  # shares are added up

    def gradient(self, call: Call, part: Batch, scale: float) -> None:
        """Without the scaler, and without autocast where that can be: rounding to 16 bits may hide the rule."""
        random = rng_state()
        if not self._needs_autocast:
            try:
                with without_autocast():
                    return self._backward(call, part, scale)
            except AsrConfigError:
                raise
            except Exception as error:
                is_memory = is_gpu_oom(error, maybe=True)
                self._needs_autocast = not is_memory or batch_size(part) <= _FEWEST  # as flash attention does
                if is_memory:
                    raise
                clear_frames(error)
        set_rng_state(random)
        for p in self.parameters():
            p.grad = None
        return self._backward(call, part, scale)

    def _backward(self, call: Call, part: Batch, scale: float) -> None:
        """Records whether modules are called with autocast on; that of accelerate is within the model's forward."""

        def note(*_: object) -> None:
            self.is_in_16_bits = self.is_in_16_bits or torch.is_autocast_enabled(device)

        device = self.parameters()[0].device.type
        hook = torch.nn.modules.module.register_module_forward_pre_hook(note)
        try:
            loss = self.loss(call, part)
        finally:
            hook.remove()
        (loss * scale).backward()

    def loss(self, call: Call, part: Batch) -> Any:
        """Call the loss function; raises ``InvalidArgumentError`` if it does not return one number."""
        loss: object = self._loss_fn(self._wrapped, part)
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            return loss.reshape(()) if loss.dim() else loss
        kind = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise InvalidArgumentError(f"loss_fn returns {kind}", "return the loss as a tensor of one number")

    def step(self, steps: OptimizerSteps, note_norm: Callable[[Any], None]) -> None:
        """Clip complete gradients, step by way of ``steps``, and clear them; ``note_norm`` gets the gradients' norm.

        A step that a scaler skips because gradients overflowed is not counted by the scheduler.
        """
        if self._max_grad_norm is not None:
            note_norm(self._clip(self._max_grad_norm))
        steps.follow(self.optimizer)
        try:
            is_skipped = self._step()
        finally:
            steps.remove()
        if self._scheduler is not None and not is_skipped:
            self._scheduler.step()
        self.optimizer.zero_grad()
        self.step_number += 1

    def _clip(self, norm: float) -> Any:
        own = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        parameters = [p for p in self.parameters() if id(p) in own]
        if self.accelerator is not None:
            return self.accelerator.clip_grad_norm_(parameters, norm)
        if self._scaler is not None:
            self._scaler.unscale_(self.optimizer)
        return torch.nn.utils.clip_grad_norm_(parameters, norm)

    def _step(self) -> bool:
        if self._scaler is None:
            self.optimizer.step()
            return bool(getattr(self.optimizer, "step_was_skipped", False))  # accelerate's
        before = self._scaler.get_scale() if self._scheduler is not None else 0.0
        self._scaler.step(self.optimizer)
        self._scaler.update()
        return self._scheduler is not None and bool(self._scaler.get_scale() < before)


class Monitor(Protocol):
    """What a loop of one's own tells of each optimizer step, such as a ``MemoryMonitor``."""

    def event(self, kind: str, text: str) -> object:
        """The loop begins."""

    def step(self) -> object:
        """An optimizer step was made."""


class GuardedStep(Guarded):
    """Computes the batches of a training loop and takes its optimizer steps: what ``guarded_step`` returns.

    ``step(batch)`` is forward, backward and, where the batch completes an accumulation window, the optimizer's step. It
    changes nothing of the model and the optimizer but what a step changes, and needs no clean-up.

    Args:
        loop: The loop whose batches are computed.
        bad: Computes them, and looks for bad clips.
        monitor: Where steps are reported; None for nowhere.
    """

    def __init__(self, loop: OwnLoop, bad: BadClips, monitor: Monitor | None) -> None:
        super().__init__(bad)
        self._loop, self._monitor, self._steps = loop, monitor, OptimizerSteps(bad.engine.attempts)
        self._is_over = True  # whether the window's optimizer step was taken: batches are kept until the next one comes
        self._engine.begin()
        self._bad.begin()
        if monitor is not None:
            monitor.event("training", "training begins")

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Compute one batch, and take the optimizer's step where it completes an accumulation window.

        What ``loss_fn`` raises is raised as it is. Gradients of the window are cleared then, and the next batch begins
        a new one.

        Args:
            batch: What ``loss_fn`` takes: a mapping, tuple, list or tensor with a row for each clip, or anything else,
                which is then not split.

        Returns:
            The loss of the whole batch, also where it was split, detached and not divided by ``accumulation``.

        Raises:
            InfeasiblePlanError: No smaller micro-batch is left.
            BadClipError: A clip is bad, and ``bad_clips="raise"`` was passed; weights have not changed.
            InvalidArgumentError: The loss is not one number with a gradient, or the labels to count are missing.
        """
        with self._cleared():
            call = self._add(batch)
            self._bad.compute(call)
            if len(self._engine.window.calls) == self._engine.window.planned:
                self._take_step()
        loss: torch.Tensor = call.loss
        return loss

    @contextlib.contextmanager
    def _cleared(self) -> Iterator[None]:
        """After an error, clear the gradients of the window; the next batch begins a new one."""
        try:
            yield
        except BaseException:
            if not self._is_over:
                self._engine.window.restore_gradients()
                self._engine.window.begin(())
                self._is_over = True
            raise

    def _add(self, batch: Batch) -> Call:
        window, loop, rule = self._engine.window, self._loop, self._engine.rule
        if rule.is_given and str(rule.name).endswith("token_mean") and loop.labels not in entries(batch):
            raise InvalidArgumentError(
                f"rule = {rule.name!r} counts the labels of a batch, which has no entry {loop.labels!r}",
                "name the entry, labels=…, or pass a function from a batch to what its loss divides by as rule",
            )
        if self._is_over:
            self._bad.step_ended()
            window.begin([batch])
            self._is_over = False
        call = window.add(batch)
        batches, accelerator = len(window.calls), loop.accelerator
        is_complete = batches >= loop.accumulation if accelerator is None else bool(accelerator.sync_gradients)
        window.planned = batches if is_complete else max(loop.accumulation, batches + 1)
        return call

    def _take_step(self) -> None:
        self._loop.step(self._steps, self._bad.norms.note)
        self._engine.budget.step_done()
        self._is_over = True
        if self._monitor is not None:
            self._monitor.step()

    def finish(self) -> None:
        """Take the optimizer's step of the last batches of an epoch, where they are fewer than ``accumulation``.

        Call it at the end of an epoch. The loss of these batches is divided by ``accumulation``, as that of all others.
        No step is taken where no batch is left.

        Raises:
            InfeasiblePlanError: No smaller micro-batch is left.
            BadClipError: A clip is bad, and ``bad_clips="raise"`` was passed; weights have not changed.
        """
        window = self._engine.window
        if not self._is_over:
            with self._cleared():
                window.planned = len(window.calls)
                self._bad.check(window.calls[-1])
                self._take_step()
        self._bad.step_ended()
        self._engine.rule.ask_again()
        window.begin(())

    @property
    def skipped(self) -> int:
        """The number of clips that were left out: too long to fit alone, or bad."""
        return self._engine.left_out.count + self._bad.count

    def __repr__(self) -> str:
        events, batches = first_of(self.events), first_of(self.bad_batches)
        lines = [*events, *batches, *(f"note: {text}" for text in self.notes)]
        return "\n".join([f"guarded_step after {self._loop.step_number} steps", *(f"  {line}" for line in lines)])


def guarded_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: LossFunction,
    *,
    scaler: torch.amp.GradScaler | None = None,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
    accumulation: int = 1,
    max_grad_norm: float | None = None,
    accelerator: Accelerator | None = None,
    rule: GivenRule | None = None,
    labels: str = "labels",
    split: Split | None = None,
    micro_batch: int | None = None,
    max_halvings: int | None = None,
    too_long: TooLong | Callable[[Any], list[Any]] = "raise",
    bad_clips: BadClipPolicy = "report",
    split_batch_statistics: bool = False,
    monitor: Monitor | None = None,
    output_dir: str | os.PathLike[str] | None = None,
) -> GuardedStep:
    """Make the optimizer steps of your own loop recover from out-of-memory errors, without changing the result.

    While nothing fails, ``step(batch)`` does what such loops do: ``loss_fn``, backward of the loss divided by
    ``accumulation``, and after so many batches clipping, ``optimizer.step()``, ``scheduler.step()`` and
    ``zero_grad()``. When memory runs out, the batches since the last optimizer step are computed again, in
    micro-batches of half the size, with the same random numbers. See docs/own-loop.md.

    Args:
        model: The model, in the mode that you have chosen (``train()`` or ``eval()``).
        optimizer: The optimizer of its parameters, and any others.
        loss_fn: ``loss_fn(model, batch)`` returns the loss of a batch as a tensor; use ``torch.autocast`` in it.
        scaler: A ``torch.amp.GradScaler``, for float16; None without one.
        scheduler: A learning rate scheduler, whose ``step()`` is called after each optimizer step, but for those that
            the scaler skips; None without one.
        accumulation: The number of batches of an optimizer step.
        max_grad_norm: The norm to which gradients of the optimizer's parameters are clipped; None clips none.
        accelerator: accelerate's, for ``with accelerator.accumulate(model): step(batch)``; it then decides when
            gradients are complete, and its backward, scaler and clipping are used.
        rule: What the loss of a batch divides by: ``"mean"`` (clips), ``"token_mean"``, ``"shifted_token_mean"``,
            ``"sum"`` or a function from a batch to a number. None measures it once memory has run out.
        labels: The entry of a batch that ``"token_mean"`` and ``"shifted_token_mean"`` count.
        split: For batches with entries that do not have a row for each clip, a function from a batch and a size to a
            list of batches.
        micro_batch: The most clips of a micro-batch, from the first step on; requires ``rule``. None for no limit.
        max_halvings: The largest number of retries of each step; None for 3, or down to one clip where ``too_long`` is
            not ``"raise"``.
        too_long: What happens to a clip that does not fit alone: ``"raise"``, ``"skip"``, or a function that gets it as
            a batch of one and returns a list of shorter batches.
        bad_clips: What happens to clips that raise an error or whose loss or gradient is not finite: see ``Guard``.
        split_batch_statistics: Whether batches may be split in spite of batch normalisation.
        monitor: A ``MemoryMonitor``, whose ``step()`` is called after each optimizer step; None without one.
        output_dir: The folder where a bad batch is saved, for ``replay_batch(folder, model, loss_fn=loss_fn)``; None
            saves none.

    Returns:
        The step, to be called with each batch; call its ``finish()`` at the end of an epoch whose batches are no
        multiple of ``accumulation``.

    Raises:
        InvalidArgumentError: An option is out of range, options do not go together, or there are several processes.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> step = guarded_step(model, optimizer, lambda model, batch: model(batch["x"]).square().mean())
        >>> loss = step({"x": torch.ones(8, 4)})
        >>> step.events
        []
    """
    options = GuardOptions(
        max_halvings=max_halvings, micro_batch=micro_batch, rule=rule, split=split, too_long=too_long,
        bad_clips=bad_clips, split_batch_statistics=split_batch_statistics,
    )  # fmt: skip
    checked("labels", labels, str)
    check_own_loop(model, optimizer, scheduler, options, max_grad_norm)
    batches = steps_to_accumulate(accumulation, scaler, accelerator, model)
    output = None if output_dir is None else user_path(output_dir, "output_dir")
    loop = OwnLoop(
        model, optimizer, loss_fn, scaler=scaler, scheduler=scheduler, accelerator=accelerator, accumulation=batches,
        max_grad_norm=max_grad_norm, labels=labels, output=output,
    )  # fmt: skip
    attempts = Attempts(options.halvings, lambda: loop.step_number)
    engine = Engine(loop, LossRule(labels, rule), Budget(micro_batch), attempts, options, weights_windows=False)
    bad = BadClips(engine, options.bad_clips)
    used = scaler if accelerator is None else accelerator.scaler
    bad.norms.scaled = used is not None and bool(used.is_enabled())
    return GuardedStep(loop, bad, monitor)
