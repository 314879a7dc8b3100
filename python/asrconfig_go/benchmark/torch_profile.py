"""A trace of some steps by PyTorch's profiler, for TensorBoard, Perfetto and chrome://tracing."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from .._base.errors import NotFoundError
from .blocks import Bench, run_block
from .variants import Side

_STEPS = 2


def profile_side(bench: Bench, side: Side, folder: Path) -> str:
    """Train two steps of ``side`` under the profiler; the path of its ``….pt.trace.json``.

    Raises ``BlockFailed`` as ``run_block``.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    file = folder / (re.sub(r"[^a-z0-9]+", "-", side.name.lower()).strip("-") + ".pt.trace.json")
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()

    def write(profiler: Any) -> None:
        profiler.export_chrome_trace(str(file))

    timing = schedule(wait=bench.warm_up - 1, warmup=1, active=_STEPS, repeat=1)
    with profile(activities=activities, schedule=timing, on_trace_ready=write, record_shapes=True) as profiler:
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
