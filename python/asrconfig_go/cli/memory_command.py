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
from .options import MODEL, add_choice, add_lora_option, add_output_options, show_result, with_progress

if TYPE_CHECKING:
    from ..memory.estimate import MemoryEstimate


def add_memory(commands: Any) -> None:
    """Add the command and its options."""
    memory = commands.add_parser("memory", help="estimate the GPU memory of a training, without a GPU")
    memory.add_argument("--model", required=True, help=MODEL)
    memory.add_argument("--batch", type=int, required=True, help="micro-batch: samples in one forward pass")
    memory.add_argument("--seconds", type=float, required=True, help="longest clip of the batch, in seconds")
    memory.add_argument(
        "--labels", type=int, help="longest text of the batch, in tokens (default: usual for --seconds)"
    )
    add_choice(memory, "--precision", choices.Precision, PRECISION)
    memory.add_argument(
        "--checkpointing", action=argparse.BooleanOptionalAction, default=False, help="with gradient checkpointing"
    )
    memory.add_argument("--every-n-layers", type=int, default=1, help="checkpoint each n-th layer alone")
    memory.add_argument("--offload-checkpoints", action="store_true", help="keep checkpoints in pinned host memory")
    add_choice(memory, "--optimizer", choices.Optimizer, OPTIMIZER, "the Trainer's name")
    memory.add_argument(
        "--accumulation", type=int, default=ACCUMULATION, help="micro-batches of a step (default %(default)s)"
    )
    memory.add_argument(
        "--freeze-feature-encoder", action="store_true", help="train without the convolutional front end"
    )
    add_lora_option(memory)
    memory.add_argument("--evaluation-batch", type=int, help="also estimate an evaluation with this batch")
    memory.add_argument("--gpu", help="a GPU of the catalogue (T4, L4, A100-40GB, …) instead of the local one")
    add_choice(memory, "--estimator", choices.Estimator, "auto")
    memory.add_argument(
        "--allocator",
        default=ALLOCATOR,
        metavar="CONF",
        help="text of PYTORCH_CUDA_ALLOC_CONF (default %(default)s, as plans set it; '' for PyTorch's own)",
    )
    memory.add_argument("--no-cache", action="store_true", help="record again, and cache nothing")
    add_output_options(memory)
    memory.add_argument(
        "--snapshot", metavar="FILE", help="also write the predicted run as a .pickle for pytorch.org/memory_viz"
    )
    memory.add_argument("--plot", metavar="FILE", help="also draw the timeline (needs matplotlib)")
    memory.set_defaults(run=_memory)


def _memory(arguments: argparse.Namespace) -> int:
    from ..memory.question import EstimatorWarning, estimate_memory
    from ..memory.snapshot import snapshot_path

    if arguments.snapshot:
        snapshot_path(arguments.snapshot)  # a wrong name is an error before the step is traced
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EstimatorWarning)  # the estimate says it itself
        estimate = estimate_memory(
            arguments.model,
            batch=arguments.batch,
            seconds=arguments.seconds,
            labels=arguments.labels,
            precision=arguments.precision,
            gradient_checkpointing=arguments.checkpointing,
            optimizer=arguments.optimizer,
            accumulation=arguments.accumulation,
            every_n_layers=arguments.every_n_layers,
            offload_checkpoints=arguments.offload_checkpoints,
            freeze_feature_encoder=arguments.freeze_feature_encoder,
            lora_rank=arguments.lora_rank,
            gpu=arguments.gpu,
            evaluation_batch=arguments.evaluation_batch,
            estimator=arguments.estimator,
            allocator=arguments.allocator,
            cache=not arguments.no_cache,
            progress=with_progress(arguments),
        )
    if arguments.snapshot:
        _save_snapshot(estimate, arguments.snapshot)
    if arguments.plot:
        _draw(estimate, Path(arguments.plot))
    show_result(arguments, estimate, estimate.to_dict)
    return 0


def _save_snapshot(estimate: MemoryEstimate, path: str) -> None:
    saved = estimate.save_snapshot(path)
    if saved.left_out:
        write(
            f"{saved.path} holds the last {saved.events} events; {saved.left_out} earlier ones are left out\n",
            sys.stderr,
        )


def _draw(estimate: MemoryEstimate, path: Path) -> None:
    figure = estimate.plot().figure
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:  # ValueError: a format that matplotlib does not know
        raise NotFoundError(
            f"cannot draw to {path}: {error}", "name a .png, .svg or .pdf in a folder that exists"
        ) from error
