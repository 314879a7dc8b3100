"""``asrconfig train``, ``replay`` and ``scan``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from .._core.output import show, show_json
from .._core.records import to_json
from .._core.settings import Cluster
from ..errors import InvalidArgumentError
from .options import DATA, add_output_options, add_quiet, command_line, passed_on, show_result, with_progress

if TYPE_CHECKING:
    from .options import Commands


def add_train(commands: Commands) -> None:
    """Add the command to argparse's ``commands``."""
    train = commands.add_parser("train", help="fine-tune a speech model, from the data's name to the model in a folder")
    add = train.add_argument
    add("--model", required=True, help="checkpoint: a folder or a name on the Hub; or tiny-wav2vec2, tiny-whisper, "
        "tiny-moonshine, tiny-parakeet-tdt, tiny-qwen3-asr")  # fmt: skip
    add("--data", required=True, help="folder, manifest or dataset on the Hub; or demo: bundled spoken digits")
    add("--out", default="asrconfig-output", help="folder for model and checkpoints (default asrconfig-output)")
    _add_data(train)
    add("--language", help="german, de, …: of Whisper and of prompts, and of how letters become lower case")
    add("--epochs", type=float, help="passes over the data (default: the plan's)")
    add("--max-steps", type=int, help="optimizer steps, in place of epochs")
    add("--target-batch-size", type=int, help="clips per optimizer step (default 32)")
    add("--lora", dest="lora_rank", type=int, metavar="RANK",
        help="train adapters of this rank (default: 16 for an audio LLM, else none)")  # fmt: skip
    add("--bits", type=int, help="8 or 4: load the model's weights in so many bits (bitsandbytes; with --lora)")
    add("--gpu", help="plan for this GPU instead of the local one")
    add("--config", metavar="FILE", help="a plan, as asrconfig plan --output wrote it")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="override a field of the plan, or a setting "
        "of TrainingArguments")  # fmt: skip
    add("--seed", type=int, default=0, help="seed of weights, order and drawn clips (default 0)")
    add("--resume", action="store_true", help="continue with the training in --out, or start it")
    add("--save-by", metavar="TIME",
        help="save and stop before a moment: 11h30m from now, 17:45 today, 2026-03-01T06:30")  # fmt: skip
    add("--push", nargs="?", const=True, default=False, metavar="REPO", help="upload the model to the Hub in the end")
    add("--profile", type=int, metavar="STEPS", help="record so many steps by PyTorch's profiler, for Perfetto")
    add_quiet(train)
    train.set_defaults(run=_train)


def _add_data(train: argparse.ArgumentParser) -> None:
    add = train.add_argument
    add("--name", help="configuration of a dataset on the Hub")
    add("--split", help="its split to train on (default train)")
    add("--evaluation-split", help="the split to evaluate with (default validation or test)")
    add("--text-column", help="column of the transcripts (default: by its usual names)")
    add("--audio-column", help="column of the audio or its paths")
    add("--evaluation-share", type=float, default=0.1,
        help="share of clips to evaluate with, where there is no such split (default 0.1)")  # fmt: skip
    add("--check-audio", action=argparse.BooleanOptionalAction, default=None,
        help="decode every clip first (default: up to ten hours of audio)")  # fmt: skip
    add("--align", metavar="MODEL",
        help="fine-tuned CTC model that finds where to cut clips over 30 s without timestamps")  # fmt: skip
    add("--clean", action=argparse.BooleanOptionalAction, default=None,
        help="lower case and no punctuation in transcripts (default: on for CTC)")  # fmt: skip


def _train(arguments: argparse.Namespace) -> int:
    from .._core.output import first_process
    from ..recipe.fine_tuning import fine_tune

    options = passed_on(arguments, "data", "model", "out", "set")
    options |= {"settings": dict(map(_setting, arguments.set)), "verbose": not arguments.quiet}
    result = fine_tune(arguments.data, arguments.model, arguments.out, **options)
    if first_process():
        show(result)
    return 0


def _setting(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise InvalidArgumentError(f"--set {text!r} is not FIELD=VALUE", "write --set learning_rate=3e-5")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, {"True": True, "False": False, "None": None}.get(value, value)


def add_replay(commands: Commands) -> None:
    """Add the command and its options."""
    replay = commands.add_parser("replay", help="find the clip that made the loss of a saved batch not finite")
    add = replay.add_argument
    add("folder", metavar="FOLDER", help="bad-batch in the output_dir of a training, which the guard wrote")
    add("--model", help="checkpoint or name to load weights from (default: the run's newest from before the step)")
    add("--device", help="cpu, cuda, cuda:1, … (default: a GPU where there is one)")
    add("--json", action="store_true", help="print JSON")
    add_quiet(replay)
    replay.set_defaults(run=_replay)


def _replay(arguments: argparse.Namespace) -> int:
    from .._core.output import quiet
    from ..train.batch_replay import replay_batch

    with quiet(arguments.quiet or arguments.json):
        result = replay_batch(arguments.folder, arguments.model, device=arguments.device)
    if arguments.json:
        show_json(result.to_json())
    else:
        show(result)
    return 0


_LINE = ("path", "duration_s", "claimed_duration_s", "sample_rate", "channels", "bits", "codec", "method", "error")


def add_scan(commands: Commands) -> None:
    """Add the command and its options."""
    scan = commands.add_parser("scan", help="measure audio files without decoding them")
    scan.add_argument("paths", nargs="+", metavar="PATH", help=DATA.replace(" (see scan)", ""))
    scan.add_argument("--sample-size", type=int, help="measure a random sample instead of every file")
    scan.add_argument("--workers", type=int, default=0, help="parallel reads (default: four for each usable core)")
    scan.add_argument("--batch-size", type=int, default=8, help="clips a batch, for what padding costs (default 8)")
    scan.add_argument("--no-cache", dest="cache", action="store_false", help="read every file, and cache nothing")
    where = scan.add_mutually_exclusive_group()
    for name in get_args(Cluster):
        on = f"on the {name.title()} cluster at hand, which sees the same files"
        where.add_argument(f"--{name}", dest="cluster", action="store_const", const=name, help=on)
    add_output_options(scan)
    scan.set_defaults(run=_scan)


def _scan(arguments: argparse.Namespace) -> int:
    from ..data.scan import scan_audio

    source: Any = arguments.paths[0] if len(arguments.paths) == 1 else [Path(path) for path in arguments.paths]
    options = passed_on(arguments, "paths")
    result = scan_audio(source, progress=with_progress(arguments), allow_empty=True, **options)
    profile = result.profile
    if arguments.json:
        if arguments.html:
            profile.to_html(arguments.html)
        for clip in result.clips:
            if not show_json({name: getattr(clip, name) for name in _LINE}, indent=None):
                break
    else:
        planned = command_line("plan", "--data", arguments.paths[0], "--model", "xls-r-300m", "--gpu", "T4")
        can_plan = len(arguments.paths) == 1 and profile.measured_count
        show_result(arguments, profile, lambda: to_json(profile), planned if can_plan else "")
    return 0 if profile.measured_count else 1
