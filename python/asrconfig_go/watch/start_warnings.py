"""Warnings when a training begins: arguments that differ from the plan, and a missing guard."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from .._core.modules import IN_32_BIT, bare, half_weights, half_words
from .._core.training_session import attached, session_of
from .alerts import BestEffort, say

if TYPE_CHECKING:
    import torch
    from transformers import Trainer, TrainingArguments

    from ..plan.argument_check import PlannedTraining
    from ..plan.plan_record import PlanRecord


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
