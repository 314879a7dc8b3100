"""``asrconfig launch``: a saved plan as files for torchrun, accelerate, DeepSpeed, Slurm, Ray, SkyPilot, Kubernetes."""

from __future__ import annotations

import argparse
from typing import Any

from .._base import choices
from .._base.defaults import MAX_RETRIES
from .._base.output import show
from .options import add_choice


def add_launch(commands: Any) -> None:
    """Add the command and its options."""
    launch = commands.add_parser("launch", help="write a plan as files for torchrun, accelerate and clusters")
    launch.add_argument("config", help="a plan, as save_config wrote it, or the folder of a training")
    launch.add_argument("--out", required=True, metavar="FOLDER", help="where to write the files")
    add_choice(launch, "--strategy", choices.Strategy, help="how GPUs share the model (default: the plan's)")
    launch.add_argument("--script", default="train.py", help="what each process runs (default train.py)")
    launch.add_argument("--machines", type=int, default=1, help="that share the plan's GPUs equally (default 1)")
    launch.add_argument(
        "--max-restarts", type=int, default=MAX_RETRIES, help="after a process has failed (default %(default)s)"
    )
    launch.add_argument("--layers", help="class names of the model's layers, for fsdp: A,B")
    launch.add_argument("--output", default="out", help="folder of the script's checkpoints (default %(default)s)")
    launch.add_argument("--bucket", default="", metavar="NAME|URL", help="for SkyPilot: where --output is kept")
    launch.add_argument("--image", default="", help="for Kubernetes: what its pods run")
    launch.add_argument("--claim", default="", help="for Kubernetes: of the volume that holds the working folder")
    launch.set_defaults(run=_launch)


def _launch(arguments: argparse.Namespace) -> int:
    from ..config import TrainingConfig
    from ..launch import launch_files

    layers = [name.strip() for name in (arguments.layers or "").split(",") if name.strip()]
    written = launch_files(
        TrainingConfig.load(arguments.config),
        arguments.out,
        script=arguments.script,
        strategy=arguments.strategy,
        machines=arguments.machines,
        max_restarts=arguments.max_restarts,
        layers=layers,
        output=arguments.output,
        bucket=arguments.bucket,
        image=arguments.image,
        claim=arguments.claim,
    )
    show(written)
    return 0
