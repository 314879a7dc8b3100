"""Options that several commands share."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from .._core import declared
from .._core.output import show, show_json
from .._core.render import NARROWEST, TERMINAL, WIDTH, Shown
from .._core.settings import OPTIMIZER, SAFETY_MARGIN, TARGET_BATCH_SIZE
from ..errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Commands = argparse._SubParsersAction["Parser"]

MODEL = "known name, folder with config.json, name on the Hub, or tiny-wav2vec2, tiny-whisper, …"
_EVERY_COMMAND = ("command", "run", "words", "parser", "full", "html", "json", "quiet")
_PLOT_DPI = 130
DATA = "folder, manifest, tar shards, Parquet or audio file (see scan), or demo: bundled spoken digits"


class Parser(argparse.ArgumentParser):
    """Wrong usage takes two lines, not those of all options."""

    def error(self, message: str) -> NoReturn:
        """End the process with the message, and where to read more."""
        self.exit(2, f"{self.prog}: {message}\n  → {self.prog} --help lists all options\n")

    def in_options(self, text: str) -> str:
        """An error about Python's arguments, as ``lora_rank=8``, in the words of the command line: ``--lora 8``."""
        for action in self._actions:
            name, option = action.dest, (action.option_strings or [""])[0]
            if not option or f"({option}" in text:
                continue
            if "_" in name:
                text = re.sub(rf"(?<![\w./-]){name}(=True)?\b(?!=)", option, text).replace(f"{name}=", f"{option} ")
            else:  # as a word it may mean something else
                text = re.sub(rf"(?<![\w./-]){name}=(?=[^\s\[])", f"{option} ", text)
                text = re.sub(rf"(?<![\w./-]){name}(?= = )", option, text)
        return text


def add_choice(
    command: argparse._ActionsContainer,
    name: str,
    among: object,
    default: str | None = None,
    help: str = "",
    dest: str | None = None,
) -> None:
    """An option with a closed set of values, which its help and its errors list."""
    help += f" (default {default})" if default else ""
    command.add_argument(name, choices=get_args(among), default=default, help=help, dest=dest)


def add_training_options(command: argparse.ArgumentParser) -> None:
    """Add the settings of a training, for plans and comparisons; the planner chooses those that are left out."""
    add = command.add_argument
    add(
        "--target-batch-size",
        type=int,
        default=TARGET_BATCH_SIZE,
        help="clips per optimizer step (default %(default)s)",
    )
    add("--safety-margin", type=float, default=SAFETY_MARGIN, help="share of memory, 0.7 to 0.95 (default %(default)s)")
    add_choice(command, "--precision", declared.Precision, help="default: what suits the GPU")
    add_choice(command, "--optimizer", declared.PlannedOptimizer, OPTIMIZER, "the Trainer's name")
    order = "of the clips (default: the fastest)"
    add_choice(command, "--order", declared.LengthHandling, help=order, dest="length_handling")
    add_lora_option(command)
    add("--freeze-feature-encoder", action="store_true", help="train without the convolutional front end")
    add("--loader-rate", type=float, help="seconds of audio that a worker prepares per second (default: measured)")
    add("--gpu-profile", metavar="FILE", help="kernels of the GPU, by profile-gpu (default: those of the cache folder)")


def add_lora_option(command: argparse.ArgumentParser) -> None:
    """Add the rank of adapters that train in place of the model."""
    help = "train adapters of this rank"
    command.add_argument("--lora", dest="lora_rank", type=int, default=0, metavar="RANK", help=help)


def add_output_options(command: argparse.ArgumentParser) -> None:
    """Add the options that decide how the result is shown."""
    command.add_argument("--full", action="store_true", help="print everything, not the first screen")
    command.add_argument("--html", metavar="FILE", type=html_file, help="also write it as a self-contained HTML page")
    command.add_argument("--json", action="store_true", help="print JSON")
    add_quiet(command)


def add_quiet(command: argparse.ArgumentParser) -> None:
    """Add --quiet, also to commands without progress, so that scripts can pass it to all."""
    command.add_argument("--quiet", action="store_true", help="print only the result, no progress")


def with_progress(arguments: argparse.Namespace) -> bool:
    """Whether a command with ``add_output_options`` shows its progress."""
    return not (arguments.json or arguments.quiet)


def named_file(name: str) -> str:
    """The name of a file to write, which a shell's unset variable leaves empty."""
    if not name:
        raise argparse.ArgumentTypeError("the name of the file is empty")
    return name


def html_file(name: str) -> str:
    """The name of an HTML file, checked before minutes are spent on its content."""
    if Path(name).suffix.lower() not in (".html", ".htm"):
        raise argparse.ArgumentTypeError(f"{name!r} does not end with .html")
    return name


def passed_on(arguments: argparse.Namespace, *own: str) -> dict[str, Any]:
    """The options for the function behind a command: all but ``own`` and those that every command has."""
    return {name: value for name, value in vars(arguments).items() if name not in (*_EVERY_COMMAND, *own)}


def show_result(
    arguments: argparse.Namespace, result: Shown, record: Callable[[], object], next_command: str = ""
) -> None:
    """Print ``result``, in short unless ``--full`` asks for all of it; ``record()`` is its JSON."""
    if arguments.html:
        result.to_html(arguments.html)
    if arguments.json:
        show_json(record())
    elif arguments.full:
        show(result)
    else:
        show(result.brief(_narrow()))
        show("all of it: --full" + (f"; next:{_on_lines(next_command)}" if next_command else ""))


def _narrow() -> int:
    """The columns of a terminal that is narrower than text usually is; else 0, the usual width."""
    columns = max(NARROWEST, shutil.get_terminal_size().columns)
    return columns if sys.stdout.isatty() and columns < WIDTH else 0


def _on_lines(command: str) -> str:
    """``command`` behind ``next:``: where it fits, else on a line of its own, or on several that a shell takes."""
    if len(f"all of it: --full; next: {command}") <= TERMINAL:
        return f" {command}"
    return "\n" + (command if len(command) <= TERMINAL else command.replace(" --", " \\\n    --"))


def command_line(*words: str, **options: object) -> str:
    """A command as a shell takes it; ``options`` that are None are left out."""
    pairs = ((f"--{name}", str(value)) for name, value in options.items() if value is not None)
    return shlex.join(("asrconfig", *words, *chain.from_iterable(pairs)))


def save_plot(figure: Figure, name: str) -> None:
    """Write a figure in the format that the suffix of ``name`` names."""
    formats = figure.canvas.get_supported_filetypes()
    if Path(name).suffix[1:].lower() not in formats:
        raise InvalidArgumentError(f"cannot tell from {name!r} what to draw", "name a file .png, .pdf or .svg")
    try:
        figure.savefig(name, dpi=_PLOT_DPI)
    except OSError as error:
        raise NotFoundError(f"cannot write {name}: {error}", "choose a folder that can be written") from error
