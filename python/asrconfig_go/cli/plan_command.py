"""``asrconfig plan``: a training run planned from the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .._base.defaults import OPTIMIZER, SAFETY_MARGIN, TARGET_BATCH_SIZE
from .._base.output import show, show_json
from .._base.records import to_json

_PASSED_ON = (
    "target_batch_size", "safety_margin", "policy", "preset", "gpu", "optimizer", "lr_scaling", "precision",
    "gradient_checkpointing", "every_n_layers", "offload_checkpoints", "length_handling", "max_length_s",
    "distributed", "device_count", "loader_rate", "price_usd_hour", "gpu_profile", "freeze_feature_encoder",
    "sample_size", "trace", "eval_samples", "max_eval_share", "predict_with_generate", "generation_max_length",
    "num_beams",
)  # fmt: skip


def add_plan(commands: Any) -> None:
    """Add the command to argparse's ``commands``."""
    plan = commands.add_parser("plan", help="plan a training run")
    plan.add_argument("--data", required=True, help="folder, manifest, tar shards, Parquet or audio file (see scan)")
    plan.add_argument("--model", required=True, help="known name, or folder with config.json")
    plan.add_argument("--gpu", help="plan for this GPU (T4, L4, A100-40GB, 2xT4, …) instead of the local one")
    plan.add_argument("--sample-size", type=int, help="measure a random sample instead of every file")
    _add_options(plan)
    plan.add_argument("--output", metavar="FILE", help="also save the configuration as JSON")
    plan.add_argument(
        "--html",
        metavar="FILE",
        type=_html_file,
        help="also write the plan with its reasons as a self-contained HTML page",
    )
    plan.add_argument("--json", action="store_true", help="print profiles and configuration as JSON")
    plan.set_defaults(run=_plan)


def _add_options(plan: Any) -> None:
    """Options that the planner takes as options; what is left out is its choice."""
    add, toggle = plan.add_argument, argparse.BooleanOptionalAction
    add(
        "--target-batch-size",
        type=int,
        default=TARGET_BATCH_SIZE,
        help="samples per optimizer step (default %(default)s)",
    )
    add(
        "--safety-margin", type=float, default=SAFETY_MARGIN, help="share of memory, 0.70 to 0.95 (default %(default)s)"
    )
    add("--policy", default="fastest", help="fastest (default), or published: a formula, for comparison")
    add("--preset", default="balanced", help="balanced (default), speed or reproducible")
    add(
        "--optimizer",
        default=OPTIMIZER,
        help="%(default)s (default), adamw_torch, adamw_bnb_8bit, adafactor, sgd",
    )
    add("--lr-scaling", default="sqrt", help="sqrt (default), linear or none")
    add("--precision", help="fp32, fp16 or bf16 (default: what suits the GPU)")
    add("--gradient-checkpointing", action=toggle, default=None, help="on or off (default: the faster one that fits)")
    add("--every-n-layers", type=int, metavar="N", help="checkpoint each N-th layer (default: the fastest that fits)")
    add(
        "--offload-checkpoints",
        action=toggle,
        default=None,
        help="keep checkpoints in host memory (default: if faster)",
    )
    add("--length-handling", help="random, grouped, bucketed or packed steps (default: the fastest)")
    add("--max-length", dest="max_length_s", type=float, metavar="SECONDS", help="leave out longer clips")
    add("--distributed", help="how GPUs share the model: ddp (default), zero1, zero2, zero3 or fsdp")
    add("--device-count", type=int, help="GPUs that share a step (default: those visible)")
    add("--loader-rate", type=float, help="seconds of audio that a worker prepares per second (default: measured)")
    add("--price", dest="price_usd_hour", type=float, help="dollars per hour of one GPU (default: a built-in table)")
    add("--eval-samples", type=int, help="clips to evaluate with; 0, none (default: a tenth of the others)")
    add("--max-eval-share", type=float, help="of the training's time that evaluations may take (default: 0.1)")
    add("--predict-with-generate", action=toggle, default=None, help="evaluate by generated texts (default: if it can)")
    add("--generation-max-length", type=int, help="tokens of a generated text (default: 225)")
    add("--num-beams", type=int, help="beams of a generation (default: 1)")
    add(
        "--gpu-profile", metavar="FILE", help="kernels of this GPU, by profile-gpu (default: those of the cache folder)"
    )
    add("--trace", action=toggle, default=None, help="trace the model's memory (default: where torch is installed)")
    add("--freeze-feature-encoder", action="store_true", help="train without the convolutional front end")


def _html_file(name: str) -> str:
    if Path(name).suffix.lower() not in (".html", ".htm"):
        raise argparse.ArgumentTypeError(f"{name!r} does not end with .html")
    return name


def _plan(arguments: argparse.Namespace) -> int:
    from ..optimal import create_optimal_config

    options = {name: getattr(arguments, name) for name in _PASSED_ON}
    config, manager = create_optimal_config(arguments.data, arguments.model, verbose=not arguments.json, **options)
    if arguments.output:
        config.save(arguments.output)
    explanation = manager.explain()
    if arguments.html:
        explanation.save(arguments.html)
    if arguments.json:
        parts = {"hardware": manager.hardware, "dataset": manager.dataset, "model": manager.model, "config": config}
        show_json({name: to_json(part) for name, part in parts.items()})
    else:
        show("\n" + explanation.text(profiles=False))  # the stages have shown them
    return 0
