"""``asrconfig benchmark``: what a plan gains on your own model and data."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.defaults import TARGET_BATCH_SIZE
from .._base.errors import InvalidArgumentError, NotFoundError
from ..benchmark.measurements import ENOUGH_ROUNDS
from .options import add_output_options, passed_on, show_result, with_progress

if TYPE_CHECKING:
    from ..benchmark import BenchmarkResult

_SUFFIXES = {"csv": (".csv",), "plot": (".png", ".pdf", ".svg")}
_STOPPED = 130  # a shell's exit code for Ctrl-C


def add_benchmark(commands: Any) -> None:
    """Add the command to argparse's ``commands``."""
    benchmark = commands.add_parser("benchmark", help="compare training by the plan with your own settings")
    add = benchmark.add_argument
    add("--model", required=True, help="checkpoint: a folder or a name on the Hub; or tiny-wav2vec2, tiny-whisper")
    add("--data", required=True, help="folder, manifest or dataset on the Hub; or demo: bundled spoken digits")
    add("--compare", action="store_true", help="beside your settings (--args), or the Trainer's defaults")
    add("--args", metavar="FILE", help="what you train with now, implies --compare: training_args.bin of a checkpoint, "
        "or JSON of TrainingArguments or of a plan")  # fmt: skip
    add("--config", metavar="FILE", help="the plan, as asrconfig plan --output wrote it (default: made here)")
    add("--target-batch-size", type=int, help="clips per optimizer step (default: that of your settings or of the "
        f"Trainer's defaults; without --compare {TARGET_BATCH_SIZE})")  # fmt: skip
    add("--steps", type=int, default=4, help="optimizer steps of a block (default 4)")
    add("--rounds", type=int, default=5, help="blocks of each side (default 5, the fewest that show a difference)")
    add("--warm-up", type=int, default=2, help="steps before each block that are not measured (default 2)")
    add("--minutes", type=float, help="end after this time with what was measured (default: no limit)")
    add("--sweep", metavar="OPTIONS", help="changes to try: precision,workers,…, all or none (default: what may help)")
    add("--no-loader", dest="loader", action="store_false", help="do not measure the loader by itself")
    add("--profile", metavar="DIR", help="also write traces by PyTorch's profiler, for TensorBoard and Perfetto")
    add("--text-column", help="column of the transcripts (default: by its usual names)")
    add("--audio-column", help="column of the audio or its paths")
    add("--seed", type=int, default=0, help="of the drawn clips (default 0)")
    add_output_options(benchmark)
    add("--csv", metavar="FILE", help="also write a table")
    add("--plot", metavar="FILE", help="also draw it with matplotlib: .png, .pdf or .svg")
    benchmark.set_defaults(run=_benchmark)


def _benchmark(arguments: argparse.Namespace) -> int:
    _check_files(arguments)
    result = _measured(arguments)
    if arguments.csv:
        result.to_csv(arguments.csv)
    if arguments.plot:
        from .report_command import save_plot

        save_plot(result.plot(), arguments.plot)
    show_result(arguments, result, result.to_json, _next(arguments, result))
    return _STOPPED if result.stopped else 0


def _next(arguments: argparse.Namespace, result: BenchmarkResult) -> str:
    passed = {"model": arguments.model, "data": arguments.data, "config": arguments.config}
    passed |= {"text-column": arguments.text_column, "audio-column": arguments.audio_column}
    passed["target-batch-size"] = None if arguments.config else result.setting.effective_batch
    if result.original is None or result.original.problem or result.verdict == "faster":
        return _command("train", passed)
    if result.verdict == "slower":
        return ""
    rounds = ENOUGH_ROUNDS if result.too_few_rounds else 2 * result.setting.rounds + 1
    return _command("benchmark --compare", {**passed, "args": arguments.args, "rounds": rounds})


def _command(name: str, options: dict[str, Any]) -> str:
    words = (f"--{option} {shlex.quote(str(value))}" for option, value in options.items() if value is not None)
    return " ".join([f"asrconfig {name}", *words])


def _check_files(arguments: argparse.Namespace) -> None:
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
    columns = {"text_column": arguments.text_column, "audio_column": arguments.audio_column}
    speech = load_speech(arguments.data, **columns).clean()
    processor = build_processor(speech.train["text"], arguments.model)
    speech = prepare(speech, processor)
    model = load_model(arguments.model, processor)
    options = passed_on(arguments, "model", "data", "args", "config", "compare", "csv", "plot", *columns)
    return benchmark_training(
        model, speech.train, collator=make_collator(processor, model), original=arguments.args, plan=plan,
        compare=arguments.compare or arguments.args is not None, processor=processor, name=arguments.model,
        progress=with_progress(arguments), **options,
    )  # fmt: skip
