"""``asrconfig memory``: the GPU memory that a training needs, and whether it fits."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base import choices
from .._base.defaults import ACCUMULATION, ALLOCATOR, OPTIMIZER, PRECISION
from .._base.errors import NotFoundError
from .._base.output import write
from .options import MODEL, add_choice, add_lora_option, add_output_options, passed_on, show_result, with_progress

if TYPE_CHECKING:
    from ..memory.estimate import MemoryEstimate


def add_memory(commands: Any) -> None:
    """Add the command and its options."""
    memory = commands.add_parser("memory", help="estimate the GPU memory of a training, without a GPU")
    add = memory.add_argument
    add("--model", required=True, help=MODEL)
    add("--batch", type=int, required=True, help="micro-batch: clips in one forward pass")
    add("--seconds", type=float, required=True, help="longest clip of the batch, in seconds")
    add("--labels", type=int, help="longest text of the batch, in tokens (default: usual for --seconds)")
    add_choice(memory, "--precision", choices.Precision, PRECISION)
    toggle = argparse.BooleanOptionalAction
    add("--checkpointing", dest="gradient_checkpointing", action=toggle, default=False,
        help="with gradient checkpointing")  # fmt: skip
    add("--every-n-layers", type=int, default=1, help="checkpoint each n-th layer alone")
    add("--offload-checkpoints", action="store_true", help="keep checkpoints in pinned host memory")
    add_choice(memory, "--optimizer", choices.Optimizer, OPTIMIZER, "the Trainer's name")
    add("--accumulation", type=int, default=ACCUMULATION, help="micro-batches of a step (default %(default)s)")
    add("--freeze-feature-encoder", action="store_true", help="train without the convolutional front end")
    add_lora_option(memory)
    add("--evaluation-batch", type=int, help="also estimate an evaluation with this batch")
    add("--gpu", help="a GPU of the catalogue (T4, L4, A100-40GB, …) instead of the local one")
    add_choice(memory, "--estimator", choices.Estimator, "auto")
    add("--allocator", default=ALLOCATOR, metavar="CONF",
        help="text of PYTORCH_CUDA_ALLOC_CONF (default %(default)s, the plans'; '' for PyTorch's own)")  # fmt: skip
    add("--no-cache", dest="cache", action="store_false", help="record again, and cache nothing")
    add_output_options(memory)
    add("--snapshot", metavar="FILE", help="also write the predicted run as a .pickle for pytorch.org/memory_viz")
    add("--plot", metavar="FILE", help="also draw the timeline (needs matplotlib)")
    memory.set_defaults(run=_memory)


def _memory(arguments: argparse.Namespace) -> int:
    from ..memory.question import EstimatorWarning, estimate_memory
    from ..memory.snapshot import snapshot_path

    if arguments.snapshot:
        snapshot_path(arguments.snapshot)  # a wrong name is an error before the step is traced
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EstimatorWarning)  # the estimate reports it, too
        options = passed_on(arguments, "model", "snapshot", "plot")
        estimate = estimate_memory(arguments.model, progress=with_progress(arguments), **options)
    if arguments.snapshot:
        saved = estimate.save_snapshot(arguments.snapshot)
        omitted = f"{saved.path} holds the last {saved.events} events; {saved.left_out} earlier ones are left out\n"
        write(omitted if saved.left_out else "", sys.stderr)
    if arguments.plot:
        _draw(estimate, Path(arguments.plot))
    show_result(arguments, estimate, estimate.to_dict)
    return 0


def _draw(estimate: MemoryEstimate, path: Path) -> None:
    figure = estimate.plot().figure
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:  # ValueError: a format that matplotlib does not know
        hint = "name a .png, .svg or .pdf in a folder that exists"
        raise NotFoundError(f"cannot draw to {path}: {error}", hint) from error
