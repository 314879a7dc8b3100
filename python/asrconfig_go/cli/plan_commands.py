"""``asrconfig plan``, ``memory``, ``compare`` and ``launch``."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import declared, settings
from .._core.output import show, write
from .._core.records import to_json
from ..errors import InvalidArgumentError
from .options import (
    DATA,
    MODEL,
    Parser,
    add_choice,
    add_lora_option,
    add_output_options,
    add_training_options,
    command_line,
    named_file,
    passed_on,
    save_plot,
    show_result,
    with_progress,
)

if TYPE_CHECKING:
    from ..manager import ASRConfigManager
    from .options import Commands


_IN_PYTHON = """\
# in Python, as asrconfig train takes a folder, a manifest or Parquet, with transcripts
config, manager = create_optimal_config({}, {}); manager.train(trainer)"""
_NOT_TRAINED_BY = ("gpu", "sample_size", "loader_rate", "gpu_profile", "price_usd_hour", "trace")
_OF_ONE_BATCH = ("estimator", "evaluation_batch", "snapshot", "plot")  # options of memory


def add_plan(commands: Commands) -> None:
    """Add the command to argparse's ``commands``."""
    plan = commands.add_parser("plan", help="plan a training run")
    plan.add_argument("--data", required=True, help=DATA)
    plan.add_argument("--model", required=True, help=MODEL)
    plan.add_argument("--gpu", help="plan for this GPU (T4, L4, A100-40GB, 2xT4, …) instead of the local one")
    plan.add_argument("--sample-size", type=int, help="measure a random sample instead of every file")
    add_training_options(plan)
    _add_choices(plan)
    plan.add_argument("--output", metavar="FILE", type=named_file, help="also save the configuration as JSON")
    add_output_options(plan)
    plan.set_defaults(run=_plan)


def _add_choices(plan: argparse.ArgumentParser) -> None:
    add, toggle = plan.add_argument, argparse.BooleanOptionalAction
    add_choice(plan, "--policy", declared.Policy, "fastest", "published is a formula, for comparison")
    add_choice(plan, "--preset", declared.Preset, "balanced")
    add_choice(plan, "--lr-scaling", declared.LRScaling, "sqrt", "of the learning rate with the batch")
    add("--checkpointing", dest="gradient_checkpointing", action=toggle,
        help="gradient checkpointing (default: the faster one that fits)")  # fmt: skip
    add("--every-n-layers", type=int, metavar="N", help="checkpoint each N-th layer (default: the fastest that fits)")
    add("--offload-checkpoints", action=toggle, help="keep checkpoints in host memory (default: if faster)")
    add("--max-seconds", dest="max_length_s", type=float, metavar="SECONDS", help="leave out longer clips")
    add_choice(plan, "--distributed", declared.Distributed, help="how GPUs share the model (default ddp)")
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
    """The training of this plan, by the name that the Hub knows; first a file, if train lacks options of it."""
    from ..data.splits import can_load

    known = "" if Path(arguments.model).is_dir() or manager.model is None else manager.model.name
    model = known or arguments.model
    if not can_load(arguments.data):
        return _IN_PYTHON.format(repr(arguments.data), repr(model))
    if not arguments.output and _own_settings(arguments):
        return command_line(*arguments.words, output="plan.json")
    config = ("--config", arguments.output) if arguments.output else ()
    return command_line("train", "--data", arguments.data, "--model", model, *config)


def _own_settings(arguments: argparse.Namespace) -> bool:
    """Whether an option changes what is trained."""
    parser = Parser()
    add_plan(parser.add_subparsers())
    usual = parser.parse_args(["plan", f"--data={arguments.data}", f"--model={arguments.model}"])
    return passed_on(arguments, *_NOT_TRAINED_BY) != passed_on(usual, *_NOT_TRAINED_BY)


def add_memory(commands: Commands) -> None:
    """Add the command and its options."""
    memory = commands.add_parser("memory", help="estimate the GPU memory of a training, without a GPU")
    add = memory.add_argument
    add("--model", required=True, help=MODEL)
    add("--batch", type=int, help="micro-batch: clips in one forward pass (default: a table of batches and lengths)")
    add("--seconds", type=float, help="longest clip of the batch, in seconds (of the table: 30)")
    add("--labels", type=int, help="longest text of the batch, in tokens (default: usual for --seconds)")
    add_choice(memory, "--precision", declared.Precision, settings.PRECISION)
    toggle = argparse.BooleanOptionalAction
    add("--checkpointing", dest="gradient_checkpointing", action=toggle, default=False,
        help="with gradient checkpointing")  # fmt: skip
    add("--every-n-layers", type=int, default=1, help="checkpoint each n-th layer alone")
    add("--offload-checkpoints", action="store_true", help="keep checkpoints in pinned host memory")
    add_choice(memory, "--optimizer", declared.Optimizer, settings.OPTIMIZER, "the Trainer's name")
    add("--accumulation", type=int, default=settings.ACCUMULATION, help="micro-batches of a step (default %(default)s)")
    add("--freeze-feature-encoder", action="store_true", help="train without the convolutional front end")
    add_lora_option(memory)
    add("--evaluation-batch", type=int, help="also estimate an evaluation with this batch")
    add("--gpu", help="a GPU of the catalogue (T4, L4, A100-40GB, …) instead of the local one")
    add_choice(memory, "--estimator", settings.Estimator, "auto")
    add("--allocator", default=settings.ALLOCATOR, metavar="CONF",
        help="text of PYTORCH_CUDA_ALLOC_CONF (default %(default)s, the plans'; '' for PyTorch's own)")  # fmt: skip
    add("--no-cache", dest="cache", action="store_false", help="record again, and cache nothing")
    add_output_options(memory)
    add("--snapshot", metavar="FILE", help="also write the predicted run as a .pickle for pytorch.org/memory_viz")
    add("--plot", metavar="FILE", help="also draw the timeline (needs matplotlib)")
    memory.set_defaults(run=_memory)


def _memory(arguments: argparse.Namespace) -> int:
    from ..predict.question import EstimatorWarning, estimate_memory
    from ..predict.snapshot import snapshot_path

    if arguments.batch is None:
        return _batch_table(arguments)
    if arguments.seconds is None:
        raise InvalidArgumentError("no length of the batch's longest clip", "pass --seconds")
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
        save_plot(estimate.plot().figure, arguments.plot)
    show_result(arguments, estimate, estimate.to_dict)
    return 0


def _batch_table(arguments: argparse.Namespace) -> int:
    from ..predict.question import batch_table

    one_batch = [name for name in _OF_ONE_BATCH if getattr(arguments, name) not in (None, "auto", "trace")]
    if one_batch:
        option = one_batch[0].replace("_", "-")
        raise InvalidArgumentError(f"--{option} is for one batch", "pass --batch and --seconds")
    options = passed_on(arguments, "model", "batch", *_OF_ONE_BATCH)
    table = batch_table(arguments.model, progress=with_progress(arguments), **options)
    longest = table.rows[-1]
    one = {"gpu": arguments.gpu, "batch": longest.largest_batch or 1, "seconds": f"{longest.seconds:g}"}
    show_result(arguments, table, lambda: to_json(table), command_line("memory", model=arguments.model, **one))
    return 0


def add_compare(commands: Commands) -> None:
    """Add the command and its options."""
    compare = commands.add_parser("compare", help="time, cost and memory of a training on other GPUs, without them")
    add = compare.add_argument
    add("--model", help=MODEL)
    add("--gpus", help="T4,L4,2xT4,A100-40GB,… (default: the whole catalogue)")
    add("--data", help=DATA)
    add("--hours", type=float, help="hours of audio, instead of --data")
    add(
        "--mean-seconds",
        dest="mean_s",
        type=float,
        metavar="SECONDS",
        help=f"of a clip on average (default {settings.MEAN_S:g})",
    )
    add(
        "--max-seconds",
        dest="max_s",
        type=float,
        metavar="SECONDS",
        help="of the longest clip (default 3 times the mean)",
    )
    add("--texts", type=int, help="number of texts, instead of --data, for a model of text")
    add("--max-tokens", type=int, metavar="TOKENS", help=f"of the longest text (default {settings.TOKENS})")
    add("--mean-tokens", type=int, metavar="TOKENS", help="of a text on average (default: all are as long)")
    add("--price", dest="prices", help="dollars per hour and GPU, T4=0.35,L4=0.7, or a JSON file of them")
    add("--epochs", type=float, default=settings.EPOCHS, help="default %(default)s")
    add_training_options(compare)
    add("--workers", type=int, help=f"workers of the loader for each GPU (default {settings.LOADER_WORKERS})")
    add(
        "--by-hand",
        action="store_true",
        help="compare settings by hand with the plan's: of --model, or the published scenarios",
    )
    add("--largest", metavar="FAMILY", help="list models of whisper, xls-r, … that fit one GPU instead")
    add_output_options(compare)
    compare.set_defaults(run=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    if arguments.by_hand:
        arguments.full, result = True, _by_hand(arguments)
    else:
        result = _comparison(arguments) if arguments.largest is None else _largest(arguments)
    show_result(arguments, result, result.to_dict)
    return 0


def _by_hand(arguments: argparse.Namespace) -> Any:
    from ..plan.by_hand import HandComparison, published_scenarios
    from ..plan.gpu_comparison import CompareSettings

    if arguments.model is not None:
        return HandComparison(_comparison(arguments).by_hand)
    options = passed_on(arguments, "model", "by_hand", "prices")
    compared = {name: options.pop(name) for name in CompareSettings.__annotations__ if name in options}
    own = [name for name, value in options.items() if value not in (None, False)]
    if own:
        raise InvalidArgumentError(f"--by-hand with {own[0]} and no model", "pass --model, or --by-hand alone")
    return published_scenarios(prices=_prices(arguments.prices), **compared)


def _comparison(arguments: argparse.Namespace) -> Any:
    from ..plan.gpu_comparison import compare_gpus

    if arguments.model is None:
        raise InvalidArgumentError("no model to compare for", "pass --model, or --largest with a family")
    if arguments.data is None and arguments.hours is None and arguments.texts is None:
        raise InvalidArgumentError("nothing to train on", "pass --data, --hours, or --texts of a model of text")
    for option, amount in (("--hours", arguments.hours), ("--texts", arguments.texts)):
        if arguments.data is not None and amount is not None:
            cards = ["--gpus", arguments.gpus] if arguments.gpus else []
            hint = command_line("compare", "--model", arguments.model, "--data", arguments.data, *cards)
            raise InvalidArgumentError(f"--data with {option} {amount:g}: what --data holds is measured", hint)
    options = passed_on(arguments, "model", "data", "largest", "gpus", "prices")
    gpus, prices = _names(arguments.gpus), _prices(arguments.prices)
    options |= {"gpus": gpus, "prices": prices, "progress": with_progress(arguments)}
    return compare_gpus(arguments.model, arguments.data, **options)


def _largest(arguments: argparse.Namespace) -> Any:
    from ..plan.memory_savings import largest_models

    names = _names(arguments.gpus) or []
    if len(names) != 1:
        raise InvalidArgumentError(f"--largest with {len(names)} GPUs", "name one with --gpus")
    if arguments.lora_rank:
        raise InvalidArgumentError("--largest with --lora", "leave out --lora: LoRA is shown beside the others")
    options = passed_on(arguments, "gpus", "largest", "max_s", "precision", "safety_margin")
    for name, value in options.items():
        if value != arguments.parser.get_default(name):
            raise InvalidArgumentError(f"{name} = {value!r} with --largest", "leave out either of them")
    return largest_models(
        names[0],
        arguments.largest,
        seconds=15.0 if arguments.max_s is None else arguments.max_s,
        precision=arguments.precision,
        safety_margin=arguments.safety_margin,
    )


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _prices(text: str | None) -> dict[str, float] | str | None:
    if text is None or "=" not in text:
        return text
    prices = {}
    for part in text.split(","):
        name, _, hour = part.partition("=")
        try:
            prices[name.strip()] = float(hour)
        except ValueError as error:
            raise InvalidArgumentError(f"{part!r} is not a price", "write T4=0.35, dollars per hour and GPU") from error
    return prices


def add_launch(commands: Commands) -> None:
    """Add the command and its options."""
    launch = commands.add_parser("launch", help="write a plan as files for torchrun, accelerate and clusters")
    add = launch.add_argument
    add("config", help="a plan, as save_config wrote it, or the folder of a training")
    add("--out", required=True, metavar="FOLDER", help="where to write the files")
    add_choice(launch, "--strategy", declared.Strategy, help="how GPUs share the model (default: the plan's)")
    add("--script", default="train.py", help="what each process runs (default train.py)")
    add("--machines", type=int, default=1, help="that share the plan's GPUs equally (default 1)")
    add(
        "--max-restarts",
        type=int,
        default=settings.MAX_RETRIES,
        help="after a process has failed (default %(default)s)",
    )
    add("--layers", help="class names of the model's layers, for fsdp: A,B")
    add("--output", default="out", help="folder of the script's checkpoints (default %(default)s)")
    add("--bucket", default="", metavar="NAME|URL", help="for SkyPilot: where --output is kept")
    add("--image", default="", help="for Kubernetes: what its pods run")
    add("--claim", default="", help="for Kubernetes: of the volume that holds the working folder")
    launch.set_defaults(run=_launch)


def _launch(arguments: argparse.Namespace) -> int:
    from ..config import TrainingConfig
    from ..plan.launch_script import launch_files

    options = passed_on(arguments, "config", "out", "layers")
    layers = [name.strip() for name in (arguments.layers or "").split(",") if name.strip()]
    show(launch_files(TrainingConfig.load(arguments.config), arguments.out, layers=layers, **options))
    return 0
