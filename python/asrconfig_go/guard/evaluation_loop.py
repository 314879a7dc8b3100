"""Out-of-memory errors outside of the steps: between evaluation batches, and while saving.

Of several processes none can do either again alone: both talk to the others on their way. There the error is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._base.out_of_memory import classify, clear_frames, first_line, free_memory
from .oom_snapshots import OomSnapshots

Happened = Callable[[str, str, str], None]
"""Told of the place, the error's text, and the file of its memory snapshot."""


def evaluating(trainer: Any, happened: Happened, snapshots: OomSnapshots) -> Callable[..., Any]:
    """``evaluation_loop`` that moves predictions off the GPU after each batch once they do not fit there.

    The loop is then repeated from its first batch; with ``batch_eval_metrics`` the metric has seen some of them, and
    the error is raised.
    """
    original = trainer.evaluation_loop

    def evaluation_loop(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except Exception as error:
            again = trainer.args.eval_accumulation_steps != 1 and not getattr(trainer.args, "batch_eval_metrics", False)
            if not again or not _can_repeat(trainer, error):
                raise
            saved = snapshots.take("evaluation", error)
            clear_frames(error)
            text = first_line(error)
        move_predictions_off(trainer)
        free_memory()
        happened("evaluation", text, saved)
        return original(*args, **kwargs)

    return evaluation_loop


def move_predictions_off(trainer: Any) -> None:
    """Let evaluation keep predictions in host memory, batch by batch; the Trainer looks at this after each."""
    trainer.args.eval_accumulation_steps = 1


def predictions_back(trainer: Any) -> Callable[[], None]:
    """The way back from ``move_predictions_off``."""
    before = trainer.args.eval_accumulation_steps

    def undo() -> None:
        trainer.args.eval_accumulation_steps = before

    return undo


def saving(trainer: Any, happened: Happened, snapshots: OomSnapshots) -> Callable[..., Any]:
    """``_save_checkpoint``, once more when memory was short: it writes the same files again."""
    original = trainer._save_checkpoint

    def save_checkpoint(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except Exception as error:
            if not _can_repeat(trainer, error):
                raise
            saved = snapshots.take("saving", error)
            clear_frames(error)
            text = first_line(error)
        free_memory()
        happened("saving", text, saved)
        return original(*args, **kwargs)

    return save_checkpoint


def _can_repeat(trainer: Any, error: Exception) -> bool:
    return bool(trainer.args.world_size == 1 and classify(error)["class"] == "gpu_oom")
