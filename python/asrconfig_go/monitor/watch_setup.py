"""Attaches a watch to one Trainer, and detaches it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .batch_shapes import BatchShapes, BeforeBatch
from .live_panel import Panel, in_notebook
from .loader_wait import follow_loader
from .log_printing import leave_out_of_print
from .messages import BestEffort, say
from .missing_guard import attach_hint, guard_among
from .next_batch import NextBatch, by_memory, by_table
from .progress_postfix import ProgressPostfix
from .run_log_file import RunFile
from .useful_work import useful_work
from .watch import Watch
from .watch_options import WatchOptions


class WatchSetup:
    """The loader's clock among the callbacks, the hook of the model, the file, the bar, the panel: until ``leave``."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def leave(self) -> None:
        """Leave model and Trainer as they were."""
        while self._undo:
            self._undo.pop()()

    def equip(
        self, watch: Watch, options: WatchOptions, config: Any, managed: bool, args: Any, state: Any, handler: Any,
        model: Any,
    ) -> None:  # fmt: skip
        """Attach everything for a training that begins."""
        guard = guard_among(handler)
        watch.met = guard.events if guard is not None else ()
        wait, leave = follow_loader(handler)
        self._undo.append(leave)
        if wait is not None:
            watch.follow(wait)
            self._undo += leave_out_of_print(handler)
        if _can_be_hooked(args, model):
            check = None if guard is not None else _next_batch(watch, options, config, managed)
            inputs = BatchShapes(model, check, useful_work(config, getattr(args, "device", None)))
            watch.see(inputs)
            self._undo.append(inputs.leave)
        output = getattr(args, "output_dir", None)
        if options.run_file and output and watch.file is None:
            watch.file = RunFile(watch.monitor, Path(output), getattr(args, "process_index", 0))
            BestEffort("an earlier run log is not kept")(watch.file.keep_earlier, state.global_step)
        if state.is_world_process_zero:
            watch.postfix = ProgressPostfix(handler) if options.progress else None
            if watch.panel is None and (in_notebook() if options.panel is None else options.panel):
                watch.panel = Panel()


def _can_be_hooked(args: Any, model: Any) -> bool:
    """Hooks of a compiled model are compiled with it; those of replicas run in threads."""
    compiled = getattr(args, "torch_compile", False) or hasattr(model, "_orig_mod")
    return hasattr(model, "register_forward_pre_hook") and not compiled and getattr(args, "n_gpu", 1) < 2


def _next_batch(watch: Watch, options: WatchOptions, config: Any, managed: bool) -> BeforeBatch | None:
    buckets = getattr(config, "length_buckets", ())
    table = [(bucket.up_to_s, bucket.micro_batch) for bucket in buckets if bucket.micro_batch is not None]
    if options.memory is None and not table:
        return None
    predict = by_table(table) if options.memory is None else by_memory(options.memory)

    advice = f"use smaller batches, leave out the longest clips, or let the guard split them, {attach_hint(managed)}"

    def tell(words: str) -> None:
        words = f"{words} → {advice}"
        say(f"memory: {words}")
        watch.tell("next_batch", words)

    careful, ask = BestEffort("batches are not checked before they run"), NextBatch(predict, tell)
    return lambda clips, seconds: careful(ask, clips, seconds)
