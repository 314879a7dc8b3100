"""``asrconfig plan``: a training run planned from the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base import choices
from .._base.records import to_json
from .options import (
    DATA,
    MODEL,
    add_choice,
    add_output_options,
    add_training_options,
    command_line,
    passed_on,
    show_result,
    with_progress,
)

if TYPE_CHECKING:
    from ..manager import ASRConfigManager


def add_plan(commands: Any) -> None:
    """Add the command to argparse's ``commands``."""
    plan = commands.add_parser("plan", help="plan a training run")
    plan.add_argument("--data", required=True, help=DATA)
    plan.add_argument("--model", required=True, help=MODEL)
    plan.add_argument("--gpu", help="plan for this GPU (T4, L4, A100-40GB, 2xT4, …) instead of the local one")
    plan.add_argument("--sample-size", type=int, help="measure a random sample instead of every file")
    add_training_options(plan)
    _add_choices(plan)
    plan.add_argument("--output", metavar="FILE", help="also save the configuration as JSON")
    add_output_options(plan)
    plan.set_defaults(run=_plan)


def _add_choices(plan: Any) -> None:
    add, toggle = plan.add_argument, argparse.BooleanOptionalAction
    add_choice(plan, "--policy", choices.Policy, "fastest", "published is a formula, for comparison")
    add_choice(plan, "--preset", choices.Preset, "balanced")
    add_choice(plan, "--lr-scaling", choices.LRScaling, "sqrt", "of the learning rate with the batch")
    add("--checkpointing", dest="gradient_checkpointing", action=toggle,
        help="gradient checkpointing (default: the faster one that fits)")  # fmt: skip
    add("--every-n-layers", type=int, metavar="N", help="checkpoint each N-th layer (default: the fastest that fits)")
    add("--offload-checkpoints", action=toggle, help="keep checkpoints in host memory (default: if faster)")
    add("--max-seconds", dest="max_length_s", type=float, metavar="SECONDS", help="leave out longer clips")
    add_choice(plan, "--distributed", choices.Distributed, help="how GPUs share the model (default ddp)")
    add("--device-count", type=int, help="GPUs that share a step (default: those visible)")
    add("--price", dest="price_usd_hour", type=float, help="dollars per hour of one GPU (default: a built-in table)")
    add("--trace", action=toggle, help="trace the model's memory (default: where torch is installed)")
    add("--eval-samples", type=int, help="clips to evaluate with; 0, none (default: a tenth of the others)")
    add("--max-eval-share", type=float, help="of the training's time that evaluations may take (default: 0.1)")
    add("--predict-with-generate", action=toggle, help="evaluate by generated texts (default: if it can)")
    add("--generation-max-length", type=int, help="tokens of a generated text (default: 225)")
    add("--num-beams", type=int, help="beams of a generation (default: 1)")


def _plan(arguments: argparse.Namespace) -> int:
    from ..optimal import create_optimal_config

    options = passed_on(arguments, "data", "model", "output") | {"progress": with_progress(arguments)}
    config, manager = create_optimal_config(arguments.data, arguments.model, verbose=False, **options)
    if arguments.output:
        config.save(arguments.output)
    show_result(arguments, manager.explain(), lambda: _record(manager), _next(arguments, manager))
    return 0


def _record(manager: ASRConfigManager) -> dict[str, Any]:
    parts = {"hardware": manager.hardware, "dataset": manager.dataset, "model": manager.model, "config": manager.config}
    return {name: to_json(part) for name, part in parts.items()}


def _next(arguments: argparse.Namespace, manager: ASRConfigManager) -> str:
    """The training of this plan; by the name that the Hub knows, where a shorter one was given."""
    name = "" if Path(arguments.model).is_dir() or manager.model is None else manager.model.name
    config = ("--config", arguments.output) if arguments.output else ()
    return command_line("train", "--data", arguments.data, "--model", name or arguments.model, *config)
