"""A trace of some steps by PyTorch's profiler, for TensorBoard, Perfetto and chrome://tracing."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from .._base.errors import NotFoundError
from .blocks import Bench, run_block
from .variants import Side

_STEPS = 2


def profile_side(bench: Bench, side: Side, folder: Path) -> str:
    """Train two steps of ``side`` under the profiler; the path of its ``….pt.trace.json``, beside which is a table.

    Raises ``BlockFailed`` as ``run_block``.
    """
    from ..training.step_profile import step_profiler, write_profile

    file = folder / (re.sub(r"[^a-z0-9]+", "-", side.name.lower()).strip("-") + ".pt.trace.json")
    with step_profiler(bench.warm_up - 1, _STEPS, lambda recorded: write_profile(recorded, file)) as profiler:
        run_block(bench, side, _STEPS, on_step=lambda n: profiler.step())
    return str(file)


def checked_folder(name: str | os.PathLike[str] | None) -> Path | None:
    """The folder for traces, made if need be. Raises ``NotFoundError`` where nothing can be written."""
    if name is None:
        return None
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise NotFoundError(f"cannot write to {folder}: {error}", "choose a folder that can be written") from error
