"""``asrconfig benchmark``: what a plan gains on your own model and data."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from .._base.defaults import TARGET_BATCH_SIZE
from .._base.errors import InvalidArgumentError, NotFoundError
from .._base.output import show, show_json

_SUFFIXES = {"csv": (".csv",), "html": (".html", ".htm"), "plot": (".png", ".pdf", ".svg")}
_STOPPED = 130  # as a shell says Ctrl-C


def add_benchmark(commands: Any) -> None:
    """Add the command to argparse's ``commands``."""
    benchmark = commands.add_parser("benchmark", help="compare training by the plan with the original settings")
    add = benchmark.add_argument
    add("--model", required=True, help="checkpoint: a folder or a name on the Hub; or tiny-wav2vec2, tiny-whisper")
    add("--data", required=True, help="folder, manifest or dataset on the Hub; or demo: bundled spoken digits")
    add("--compare", nargs="?", const="", metavar="ORIGINAL", help="beside the original settings: a JSON file of "
        "TrainingArguments or of a plan (default: one clip at a time, accumulated to the same batch)")  # fmt: skip
    add("--config", metavar="FILE", help="the plan, as asrconfig plan --output wrote it (default: made here)")
    add(
        "--target-batch-size",
        type=int,
        default=TARGET_BATCH_SIZE,
        help="clips per optimizer step (default %(default)s)",
    )
    add("--steps", type=int, default=4, help="optimizer steps of a block (default 4)")
    add("--rounds", type=int, default=5, help="blocks of each side (default 5)")
    add("--warm-up", type=int, default=2, help="steps before each block that are not measured (default 2)")
    add("--sweep", metavar="OPTIONS", help="changes to try: precision,workers,…, all or none (default: what may help)")
    add("--no-loader", action="store_true", help="do not measure the loader by itself")
    add("--profile", metavar="DIR", help="also write traces by PyTorch's profiler, for TensorBoard and Perfetto")
    add("--text-column", help="column of the transcripts (default: by its usual names)")
    add("--audio-column", help="column of the audio or its paths")
    add("--seed", type=int, default=0, help="of the drawn clips (default 0)")
    add("--json", action="store_true", help="print the result as JSON")
    add("--csv", metavar="FILE", help="also write a table")
    add("--html", metavar="FILE", help="also write a self-contained HTML page")
    add("--plot", metavar="FILE", help="also draw it with matplotlib: .png, .pdf or .svg")
    benchmark.set_defaults(run=_benchmark)


def _benchmark(arguments: argparse.Namespace) -> int:
    _check_files(arguments)
    result = _measured(arguments)
    if arguments.csv:
        result.to_csv(arguments.csv)
    if arguments.html:
        result.to_html(arguments.html)
    if arguments.plot:
        from .report_command import save_plot

        save_plot(result.plot(), arguments.plot)
    show_json(result.to_json()) if arguments.json else show(result)
    return _STOPPED if result.stopped else 0


def _check_files(arguments: argparse.Namespace) -> None:
    """Before minutes are spent."""
    for option, suffixes in _SUFFIXES.items():
        name = getattr(arguments, option)
        if name is None:
            continue
        if Path(name).suffix.lower() not in suffixes:
            raise InvalidArgumentError(f"--{option} {name!r} does not end with {' or '.join(suffixes)}", "rename it")
        if not os.access(Path(name).resolve().parent, os.W_OK):
            raise NotFoundError(f"cannot write {name}", "choose a folder that exists and can be written")


def _measured(arguments: argparse.Namespace) -> Any:
    from ..benchmark import benchmark_training
    from ..config import TrainingConfig
    from ..recipe import build_processor, load_model, load_speech, make_collator, prepare

    plan = None if arguments.config is None else TrainingConfig.load(arguments.config)
    speech = load_speech(arguments.data, text_column=arguments.text_column, audio_column=arguments.audio_column)
    speech = speech.clean()
    processor = build_processor(speech.train["text"], arguments.model)
    speech = prepare(speech, processor)
    model = load_model(arguments.model, processor)
    return benchmark_training(
        model,
        speech.train,
        collator=make_collator(processor, model),
        original=arguments.compare or None,
        plan=plan,
        compare=arguments.compare is not None,
        processor=processor,
        target_batch_size=arguments.target_batch_size,
        steps=arguments.steps,
        rounds=arguments.rounds,
        warm_up=arguments.warm_up,
        loader=not arguments.no_loader,
        sweep=arguments.sweep,
        profile=arguments.profile,
        seed=arguments.seed,
        name=arguments.model,
        progress=not arguments.json,
    )
