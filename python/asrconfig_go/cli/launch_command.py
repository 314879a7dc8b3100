"""``asrconfig launch``: a saved plan as files for torchrun, accelerate, DeepSpeed, Slurm, Ray, SkyPilot, Kubernetes."""

from __future__ import annotations

import argparse
from typing import Any

from .._base import choices
from .._base.defaults import MAX_RETRIES
from .._base.output import show
from .options import add_choice, passed_on


def add_launch(commands: Any) -> None:
    """Add the command and its options."""
    launch = commands.add_parser("launch", help="write a plan as files for torchrun, accelerate and clusters")
    add = launch.add_argument
    add("config", help="a plan, as save_config wrote it, or the folder of a training")
    add("--out", required=True, metavar="FOLDER", help="where to write the files")
    add_choice(launch, "--strategy", choices.Strategy, help="how GPUs share the model (default: the plan's)")
    add("--script", default="train.py", help="what each process runs (default train.py)")
    add("--machines", type=int, default=1, help="that share the plan's GPUs equally (default 1)")
    add("--max-restarts", type=int, default=MAX_RETRIES, help="after a process has failed (default %(default)s)")
    add("--layers", help="class names of the model's layers, for fsdp: A,B")
    add("--output", default="out", help="folder of the script's checkpoints (default %(default)s)")
    add("--bucket", default="", metavar="NAME|URL", help="for SkyPilot: where --output is kept")
    add("--image", default="", help="for Kubernetes: what its pods run")
    add("--claim", default="", help="for Kubernetes: of the volume that holds the working folder")
    launch.set_defaults(run=_launch)


def _launch(arguments: argparse.Namespace) -> int:
    from ..config import TrainingConfig
    from ..launch import launch_files

    options = passed_on(arguments, "config", "out", "layers")
    layers = [name.strip() for name in (arguments.layers or "").split(",") if name.strip()]
    show(launch_files(TrainingConfig.load(arguments.config), arguments.out, layers=layers, **options))
    return 0
