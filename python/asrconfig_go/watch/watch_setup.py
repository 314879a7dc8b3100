"""What a watched training is equipped with: the loader's clock, a hook of the model, the run's file, bar and panel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .._core.training_session import attached
from .alerts import BestEffort
from .batch_shapes import BatchShapes, follow_loader, useful_work
from .display import Panel, ProgressPostfix, RunFile, in_notebook, leave_out_of_print

if TYPE_CHECKING:
    import torch
    from transformers import TrainerState, TrainingArguments
    from transformers.trainer_callback import CallbackHandler

    from ..guard.guard import Guard
    from ..plan.plan_record import PlanRecord
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
) -> list[Callable[[], None]]:
    """Attach everything for a training that begins; returns the functions that leave model and Trainer as they were."""
    guard = cast("Guard | None", attached(handler, "guard"))
    watch.met = guard.events if guard is not None else ()
    wait, leave = follow_loader(handler)
    undo, inputs = [leave], None
    if handler is not None:
        undo += leave_out_of_print(handler)
    if _can_be_hooked(args, model):
        check = None
        if guard is None and (options.memory is not None or config is not None):
            from .training_warnings import next_batch_check

            check = next_batch_check(options.memory, config, managed, watch.tell)
        inputs = BatchShapes(model, check, useful_work(config, getattr(args, "device", None)))
        undo.append(inputs.leave)
    watch.follow(wait, inputs)
    output = getattr(args, "output_dir", None)
    if options.run_file and output and watch.file is None:
        watch.file = RunFile(watch.monitor, Path(output), getattr(args, "process_index", 0))
        BestEffort("an earlier run log is not kept")(watch.file.keep_earlier, state.global_step)
    if state.is_world_process_zero:
        watch.postfix = ProgressPostfix(handler) if options.progress else None
        if watch.panel is None and (in_notebook() if options.panel is None else options.panel):
            watch.panel = Panel()
    return undo


def _can_be_hooked(args: TrainingArguments, model: torch.nn.Module) -> bool:
    """Hooks of a compiled model are compiled with it; those of replicas run in threads."""
    compiled = getattr(args, "torch_compile", False) or hasattr(model, "_orig_mod")
    return hasattr(model, "register_forward_pre_hook") and not compiled and getattr(args, "n_gpu", 1) < 2
