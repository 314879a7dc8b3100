"""What is done when a watched training begins: hooks, displays, and warnings of what the plan or the guard lacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .._core.modules import IN_32_BIT, bare, half_weights, half_words
from .._core.training_session import attached, session_of
from .alerts import BestEffort, attach_hint, say
from .batch_shapes import BatchShapes, BeforeBatch, LoaderWait, NextBatch, by_memory, by_table, useful_work
from .display import Panel, RunFile, in_notebook, leave_out_of_print, show_line

if TYPE_CHECKING:
    import torch
    from transformers import Trainer, TrainerState, TrainingArguments
    from transformers.trainer_callback import CallbackHandler

    from ..guard.guard import Guard
    from ..plan.argument_check import PlannedTraining
    from ..plan.plan_record import PlanRecord
    from ..predict.memory_model import MemoryModel
    from .watch import Watch, WatchOptions


def equip(
    watch: Watch,
    options: WatchOptions,
    config: PlanRecord | None,
    managed: bool,
    args: TrainingArguments,
    state: TrainerState,
    handler: CallbackHandler | None,
    model: torch.nn.Module,
    undo: ExitStack,
) -> None:
    """Attach everything for a training that begins; ``undo`` leaves model and Trainer as they were."""
    guard = cast("Guard | None", attached(handler, "guard"))
    watch.guard_events = guard.events if guard is not None else ()
    wait, inputs = None, None
    if handler is not None:
        wait = LoaderWait()
        handler.add_callback(wait)
        undo.callback(lambda: wait in handler.callbacks and handler.remove_callback(wait))
        leave_out_of_print(handler, undo)
    if _can_be_hooked(args, model):
        check = None if guard is not None else next_batch_check(options.memory, config, managed, watch.tell)
        inputs = BatchShapes(model, check, useful_work(config, getattr(args, "device", None)))
        undo.callback(inputs.leave)
    watch.follow(wait, inputs)
    output = getattr(args, "output_dir", None)
    if options.run_file and output and watch.file is None:
        watch.file = RunFile(watch.monitor, Path(output), getattr(args, "process_index", 0))
        BestEffort("an earlier run log is not kept")(watch.file.keep_earlier, state.global_step)
    if state.is_world_process_zero:
        watch.line = partial(show_line, handler) if options.progress and handler is not None else None
        if watch.panel is None and (in_notebook() if options.panel is None else options.panel):
            watch.panel = Panel()


def _can_be_hooked(args: TrainingArguments, model: torch.nn.Module) -> bool:
    """Hooks of a compiled model are compiled with it; those of replicas run in threads."""
    compiled = getattr(args, "torch_compile", False) or hasattr(model, "_orig_mod")
    return hasattr(model, "register_forward_pre_hook") and not compiled and getattr(args, "n_gpu", 1) < 2


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
        batch, forms = args.train_batch_size, (config, config.without_guard())
        as_planned = any(batch <= form.micro_batch_size and not differences(form, args, model) for form in forms)
        fits = "take longer than planned" if as_planned else "may not fit"
        batches = f"{batch} × {args.gradient_accumulation_steps}"
        losses.append(
            f"the plan's micro-batches are sized by predicted memory, and the Trainer's batches of {batches} {fits}"
        )
    return losses


def _is_multiplied(model: torch.nn.Module) -> bool:
    """Whether a mean is taken for a loss divided by ``num_items_in_batch``."""
    from ..guard.loss_table import loss_of
    from ..guard.trainer_loop import divides_no_loss

    loss = loss_of(model)
    if loss is None or loss.rule == "sum" or loss.takes_num_items:
        return False
    base = bare(model)
    named = inspect.signature(base.forward).parameters.values()
    accepts_kwargs = getattr(base, "accepts_loss_kwargs", any(p.kind is p.VAR_KEYWORD for p in named))
    return bool(accepts_kwargs) or divides_no_loss()
