"""What a training without the guard loses, and the line that attaches one."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from .._base.override import GUARD_KEY
from .._base.wrapped_model import bare
from ..apply.argument_check import differences
from ..losses.loss_table import loss_of

if TYPE_CHECKING:
    from ..guard.guard import Guard
    from ..plan.plan_record import PlanRecord

_BY_MANAGER = "in place of trainer.train(): manager.train(trainer)"
_BY_FUNCTION = "before trainer.train(): from asrconfig_go.guard import attach; attach(trainer)"


def guard_among(handler: Any) -> Guard | None:
    """The guard of the Trainer whose callbacks these are."""
    return getattr(handler, GUARD_KEY, None)


def attach_hint(managed: bool) -> str:
    """How to get a guard: by the manager that made the callback, or without one."""
    return _BY_MANAGER if managed else _BY_FUNCTION


def without_guard(args: Any, model: Any, config: PlanRecord | None) -> list[str]:
    """How the Trainer alone differs from the plan, and from a step of one whole batch."""
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


def _is_multiplied(model: Any) -> bool:
    """Whether a mean is taken for a loss divided by ``num_items_in_batch``; transformers 4.46 divides none at all."""
    from transformers import Trainer

    loss = loss_of(model)
    if loss is None or loss.rule == "sum" or loss.takes_num_items:
        return False
    base = bare(model)
    named = inspect.signature(base.forward).parameters.values()
    accepts_kwargs = getattr(base, "accepts_loss_kwargs", any(p.kind is p.VAR_KEYWORD for p in named))
    return bool(accepts_kwargs) or "loss = loss / self." not in inspect.getsource(Trainer.training_step)
