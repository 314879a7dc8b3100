"""``asrconfig compare``: one training on many GPUs, or the largest models for one."""

from __future__ import annotations

import argparse
from typing import Any

from .._base.defaults import EPOCHS, LOADER_WORKERS, LORA_RANK, MEAN_S, TOKENS
from .._base.errors import InvalidArgumentError
from .options import DATA, MODEL, add_output_options, add_training_options, passed_on, show_result


def add_compare(commands: Any) -> None:
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
        help=f"of a clip on average (default {MEAN_S:g})",
    )
    add(
        "--max-seconds",
        dest="max_s",
        type=float,
        metavar="SECONDS",
        help="of the longest clip (default 3 times the mean)",
    )
    add("--texts", type=int, help="number of texts, instead of --data, for a model of text")
    add("--max-tokens", type=int, metavar="TOKENS", help=f"of the longest text (default {TOKENS})")
    add("--mean-tokens", type=int, metavar="TOKENS", help="of a text on average (default: all are as long)")
    add("--price", dest="prices", help="dollars per hour and GPU, T4=0.35,L4=0.7, or a JSON file of them")
    add("--epochs", type=float, default=EPOCHS, help="default %(default)s")
    add_training_options(compare)
    add("--workers", type=int, help=f"workers of the loader for each GPU (default {LOADER_WORKERS})")
    add("--largest", metavar="FAMILY", help="list models of whisper, xls-r, … that fit one GPU instead")
    add_output_options(compare)
    compare.set_defaults(run=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    result = _comparison(arguments) if arguments.largest is None else _largest(arguments)
    show_result(arguments, result, result.to_dict)
    return 0


def _comparison(arguments: argparse.Namespace) -> Any:
    from ..compare.gpu_comparison import compare_gpus

    if arguments.model is None:
        raise InvalidArgumentError("no model to compare for", "give --model, or --largest with a family")
    if arguments.data is None and arguments.hours is None and arguments.texts is None:
        raise InvalidArgumentError("nothing to train on", "give --data, --hours, or --texts of a model of text")
    options = passed_on(arguments, "model", "data", "largest", "gpus", "prices")
    gpus, prices = _names(arguments.gpus), _prices(arguments.prices)
    return compare_gpus(arguments.model, arguments.data, gpus=gpus, prices=prices, **options)


def _largest(arguments: argparse.Namespace) -> Any:
    from ..compare.trainable_models import largest_models

    names = _names(arguments.gpus) or []
    if len(names) != 1:
        raise InvalidArgumentError(f"--largest with {len(names)} GPUs", "name one with --gpus")
    return largest_models(
        names[0],
        arguments.largest,
        seconds=15.0 if arguments.max_s is None else arguments.max_s,
        lora_rank=arguments.lora_rank or LORA_RANK,
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
