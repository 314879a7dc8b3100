"""Warnings of a training: arguments that differ from the plan, a missing guard, and batches predicted not to fit."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .._core.modules import IN_32_BIT, bare, half_weights, half_words
from .._core.render import GIB, plural
from .._core.training_session import attached, session_of
from ..errors import InvalidArgumentError
from ..predict.memory_limits import GRID_S, fits_in
from .alerts import BestEffort, say

if TYPE_CHECKING:
    import torch
    from transformers import Trainer, TrainingArguments

    from ..plan.argument_check import PlannedTraining
    from ..plan.plan_record import PlanRecord
    from ..predict.memory_model import MemoryModel
    from .batch_shapes import BeforeBatch


_BY_MANAGER = "in place of trainer.train(): manager.train(trainer)"
_BY_FUNCTION = "before trainer.train(): from asrconfig_go.guard import attach; attach(trainer)"


def say_unplanned(
    planned: PlannedTraining, args: TrainingArguments, model: torch.nn.Module, splits: bool = False
) -> None:
    """Log how a Trainer's arguments differ from the plan; ``splits``: whether a guard splits batches by memory."""
    if words := BestEffort("the arguments are not compared with the plan")(planned.check, args, model, splits):
        say(words)


def check_arguments(planned: PlannedTraining | None, trainer: Trainer) -> Callable[[], None]:
    """Log once how a Trainer's arguments differ from the plan; returns the function that forgets this."""
    if planned is None or attached(trainer, "arguments"):
        return lambda: None
    if trainer.is_world_process_zero():
        say_unplanned(planned, trainer.args, trainer.model, planned.config.micro_batching == "memory")
    return session_of(trainer).add("arguments", planned)


def attach_hint(managed: bool) -> str:
    """How to get a guard: by the manager that made the callback, or without one."""
    return _BY_MANAGER if managed else _BY_FUNCTION


def say_missing_guard(
    args: TrainingArguments, model: torch.nn.Module, config: PlanRecord | None, managed: bool
) -> None:
    """Log what the Trainer alone does otherwise, and with weights in 16 bits."""
    if stored := half_weights(model):
        say(f"{half_words(model, stored)} → {IN_32_BIT}")
    if lost := without_guard(args, model, config):
        say(f"no guard is attached: {'; '.join(lost)} → {attach_hint(managed)}")


def without_guard(args: TrainingArguments, model: torch.nn.Module, config: PlanRecord | None) -> list[str]:
    """How the Trainer alone differs from the plan, and from a step of one whole batch."""
    from ..plan.argument_check import differences

    losses = []
    processes = args.world_size if getattr(args, "average_tokens_across_devices", False) else 1
    factor = args.gradient_accumulation_steps * processes
    if factor > 1 and _is_multiplied(model):
        losses.append(
            f"the Trainer makes the gradients of {type(model).__name__} up to {factor} times too large "
            "(transformers issue 47688)"
        )
    if config is not None and config.micro_batching == "memory":
        batch = args.train_batch_size
        as_planned = batch <= config.micro_batch_size and not differences(config, args, model)
        fits = "take longer than planned" if as_planned else "may not fit"
        batches = f"{batch} × {args.gradient_accumulation_steps}"
        losses.append(
            f"the plan's micro-batches are sized by predicted memory, and the Trainer's batches of {batches} {fits}"
        )
    return losses


def _is_multiplied(model: torch.nn.Module) -> bool:
    """Whether a mean is taken for a loss divided by ``num_items_in_batch``; transformers 4.46 divides none at all."""
    from transformers import Trainer

    from ..guard.loss_table import loss_of

    loss = loss_of(model)
    if loss is None or loss.rule == "sum" or loss.takes_num_items:
        return False
    base = bare(model)
    named = inspect.signature(base.forward).parameters.values()
    accepts_kwargs = getattr(base, "accepts_loss_kwargs", any(p.kind is p.VAR_KEYWORD for p in named))
    return bool(accepts_kwargs) or "loss = loss / self." not in inspect.getsource(Trainer.training_step)


_WORSE = 1.05  # times the last warning, for another one


class Excess(NamedTuple):
    """By how many times a batch exceeds what fits, and a description."""

    times: float
    words: str


Predictor = Callable[[int, float], Excess | None]
"""Returns the warning for a number of clips and seconds; None when they fit."""


class NextBatch:
    """Calls ``predict`` for each size that is not known to fit, and warns by ``say`` of batches that will not.

    Lengths are rounded up to half a second. A batch not much worse than one that was warned of is passed over.
    """

    def __init__(self, predict: Predictor, say: Callable[[str], None]) -> None:
        self._predict, self._say = predict, say
        self._fits: dict[int, int] = {}
        self._warned: set[tuple[int, int]] = set()
        self._worst = 0.0

    def __call__(self, clips: int, seconds: float) -> None:
        """Look at the batch that is about to run."""
        step = max(1, math.ceil(seconds / GRID_S - 1e-9))
        if clips <= self._fits.get(step, 0) or (clips, step) in self._warned:
            return
        excess = self._predict(clips, step * GRID_S)
        if excess is None:
            self._fits[step] = clips
            return
        self._warned.add((clips, step))
        if excess.times > _WORSE * self._worst:
            self._worst = excess.times
            self._say(f"the next batch, {clips} × {seconds:.1f} s, {excess.words}")


def by_memory(memory: MemoryModel) -> Predictor:
    """By a ``MemoryModel`` that was traced for a GPU: a simulation of some milliseconds."""
    from ..predict.shape_traces import by_formulas

    if not hasattr(memory, "estimate"):
        raise InvalidArgumentError(
            f"memory = {type(memory).__name__} is not a memory model", "pass what MemoryModel.trace(…) returns"
        )
    target = memory.target
    if (limit := target.limit_bytes) is None:
        raise InvalidArgumentError("the memory model has no GPU given", 'trace it with gpu="L4"')

    def predict(clips: int, seconds: float) -> Excess | None:
        with by_formulas(memory):
            estimate = memory.estimate(clips, seconds, timeline=0)
        if estimate.fits is not False:
            return None
        peak, available = (estimate.peak_device or 0) / GIB, (target.available_bytes or limit) / GIB
        words = f"is predicted to take {peak:.1f} of {available:.1f} GiB"
        return Excess(estimate.peak_reserved / max(1, limit), words)

    return predict


def by_table(table: Sequence[tuple[float, int]]) -> Predictor:
    """By rows of seconds and the largest micro-batch, as plans and ``memory_table`` have them."""
    longest = table[-1][0]

    def predict(clips: int, seconds: float) -> Excess | None:
        fits = fits_in(table, min(seconds, longest))
        if clips <= fits:
            return None
        words = f"is more than the {plural(fits, 'clip')} of that length that the plan found to fit"
        return Excess(clips / max(1, fits), words)

    return predict


def next_batch_check(
    memory: MemoryModel | None, config: PlanRecord | None, managed: bool, tell: Callable[[str, str], None]
) -> BeforeBatch | None:
    """Looks at batches by ``memory``, or by the plan's lengths, and calls ``tell`` with an event; None without both."""
    buckets = config.length_buckets if config is not None else ()
    table = [(bucket.up_to_s, bucket.micro_batch) for bucket in buckets if bucket.micro_batch is not None]
    if memory is None and not table:
        return None
    advice = f"use smaller batches, leave out the longest clips, or let the guard split them, {attach_hint(managed)}"

    def warn(words: str) -> None:
        say(f"memory: {words} → {advice}")
        tell("next_batch", f"{words} → {advice}")

    careful = BestEffort("batches are not checked before they run")
    ask = NextBatch(by_table(table) if memory is None else by_memory(memory), warn)
    return lambda clips, seconds: careful(ask, clips, seconds)
