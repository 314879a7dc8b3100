"""The command ``asrconfig``, which ``python -m asrconfig_go`` is, too."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

# What the extra named train has, for a package that was installed without.
_TRAINING = "pip install torch transformers accelerate datasets soundfile soxr scipy tensorboard tqdm"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 on an error that was explained, 2 on wrong usage, 130 on Ctrl-C."""
    try:
        return _run(argv)
    except KeyboardInterrupt:
        sys.stderr.write("asrconfig: stopped\n")
        return 130


def _run(argv: Sequence[str] | None) -> int:
    """Run ``main``. Imports are here because Ctrl-C may arrive during them."""
    from ._core.files import storage_error, unanswered
    from ._core.output import UNWRITTEN, forgiving_streams, show
    from .errors import AsrConfigError

    try:
        with forgiving_streams():
            arguments = _parser().parse_args(argv)
            UNWRITTEN.clear()
            arguments.words = list(sys.argv[1:] if argv is None else argv)
            status = int(arguments.run(arguments))
            if UNWRITTEN:
                raise UNWRITTEN.pop()
            return status
    except AsrConfigError as error:
        show(f"asrconfig: {arguments.parser.in_options(str(error))}", sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "asrconfig_go").partition(".")[0] == "asrconfig_go":
            raise
        show(f"asrconfig: {arguments.command} needs {error.name}\n  → {_TRAINING}", sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter tries again at its end
        return 0
    except OSError as error:  # of a disk or a network; the system's words name the file
        lost = unanswered(error) is not None and error.filename
        show(f"asrconfig: {storage_error(error.filename, error) if lost else error}", sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    from ._core.native import package_version
    from .cli.measure_commands import add_benchmark, add_monitor, add_profile_gpu, add_report
    from .cli.options import Parser, add_quiet
    from .cli.plan_commands import add_compare, add_launch, add_memory, add_plan
    from .cli.run_commands import add_replay, add_scan, add_train

    parser = Parser(prog="asrconfig", description="Plan and guard the fine-tuning of speech models.")
    parser.add_argument("--version", action="version", version=f"asrconfig-go {package_version()}")
    commands = parser.add_subparsers(dest="command", required=True)
    for add in (
        add_plan, add_train, add_scan, add_memory, add_compare, add_benchmark, add_profile_gpu, add_launch, add_monitor,
        add_report, add_replay,
    ):  # fmt: skip
        add(commands)
    doctor = commands.add_parser("doctor", help="check the library, the driver, the limits and the versions")
    doctor.set_defaults(run=_doctor)
    demo = commands.add_parser("demo", help="plan, train and guard a small speech model on spoken digits")
    demo.add_argument("--out", "--output", default="demo-output", help="folder for the model (default %(default)s)")
    demo.add_argument("--max-steps", type=int, help="optimizer steps (default: enough to learn the digits)")
    demo.add_argument("--gpu", help="plan for this GPU instead of the local one")
    demo.add_argument("--resume", action="store_true", help="continue with the training in --out, or start it")
    add_quiet(demo)
    demo.set_defaults(run=_demo)
    completion = commands.add_parser("completion", help="print completions for a shell, to source in its startup file")
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    completion.set_defaults(run=_completion)
    for command in commands.choices.values():
        command.set_defaults(parser=command)
    return parser


def _completion(arguments: argparse.Namespace) -> int:
    from ._core.output import show
    from ._core.requirements import imported

    shtab = imported("shtab", "completion")
    show(shtab.complete(_parser(), arguments.shell))
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from ._core.output import show
    from .cli.doctor import examine, report

    findings = examine()
    show(report(findings))
    return int(any(finding.status == "broken" for finding in findings))


def _demo(arguments: argparse.Namespace) -> int:
    from ._core.output import show
    from .cli.options import passed_on
    from .recipe.fine_tuning import fine_tune

    options = passed_on(arguments, "out") | {"verbose": not arguments.quiet}
    show(fine_tune("demo", "tiny-wav2vec2", arguments.out, **options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
