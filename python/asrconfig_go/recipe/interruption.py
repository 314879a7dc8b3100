"""The message when a training is stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._base.output import show
from ..training.checkpoint_space import saved_so_far


@contextlib.contextmanager
def resume_command_shown(trainer: Any, verbose: bool) -> Iterator[None]:
    """On Ctrl-C, print how far the training came and how to continue with it."""
    try:
        yield
    except KeyboardInterrupt:
        if verbose and trainer.is_world_process_zero():
            state, output = trainer.state, Path(trainer.args.output_dir)
            show(
                f"\nStopped at step {state.global_step} of {state.max_steps}: {saved_so_far(output)}\n"
                "  → continue with the same call with resume=True (asrconfig train … --resume)"
            )
        raise
