"""The command ``asrconfig`` and its subcommands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._base.errors import AsrConfigError
from .._base.output import forgiving_streams, show, show_json
from .benchmark_command import add_benchmark
from .compare_command import add_compare
from .launch_command import add_launch
from .memory_command import add_memory
from .monitor_command import add_monitor
from .plan_command import add_plan
from .profile_gpu_command import add_profile_gpu
from .report_command import add_report
from .train_command import add_train


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 on an error that was explained, 2 on wrong usage, 130 on Ctrl-C."""
    try:
        with forgiving_streams():
            arguments = _parser().parse_args(argv)
            status = int(arguments.run(arguments))
            sys.stdout.flush()  # what show() could not write fails here once more
            return status
    except AsrConfigError as error:
        show(f"asrconfig: {error}", sys.stderr)
        return 1
    except KeyboardInterrupt:
        show("asrconfig: stopped", sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter tries again at its end
        return 0
    except OSError as error:  # of a disk or a network; the system's words name the file
        show(f"asrconfig: {error}", sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="asrconfig", description="Plan and guard the fine-tuning of speech models.")
    commands = parser.add_subparsers(dest="command", required=True)
    add_plan(commands)
    add_train(commands)
    _add_scan(commands)
    add_memory(commands)
    add_compare(commands)
    add_benchmark(commands)
    add_profile_gpu(commands)
    add_launch(commands)
    add_monitor(commands)
    add_report(commands)
    doctor = commands.add_parser("doctor", help="check the library, the driver, the limits and the versions")
    doctor.set_defaults(run=_doctor)
    _add_demo(commands)
    return parser


def _add_scan(commands: Any) -> None:
    scan = commands.add_parser("scan", help="measure audio files without decoding them")
    scan.add_argument(
        "paths", nargs="+", metavar="PATH", help="folders, audio files, a manifest, tar shards or Parquet"
    )
    scan.add_argument("--json", action="store_true", help="one JSON line per file")
    scan.add_argument("--sample-size", type=int, help="measure a random sample instead of every file")
    scan.add_argument("--workers", type=int, default=0, help="parallel reads (default: four for each usable core)")
    scan.add_argument("--batch-size", type=int, default=8, help="clips a batch, for what padding costs (default 8)")
    scan.add_argument("--no-cache", action="store_true", help="read every file, and cache nothing")
    scan.set_defaults(run=_scan)


_LINE = ("path", "duration_s", "claimed_duration_s", "sample_rate", "channels", "bits", "codec", "method", "error")


def _scan(arguments: argparse.Namespace) -> int:
    from ..data.scan import scan_audio

    source: Any = arguments.paths[0] if len(arguments.paths) == 1 else [Path(path) for path in arguments.paths]
    result = scan_audio(
        source,
        sample_size=arguments.sample_size,
        batch_size=arguments.batch_size,
        workers=arguments.workers,
        cache=not arguments.no_cache,
        progress=not arguments.json,
        allow_empty=True,
    )
    if arguments.json:
        for clip in result.clips:
            if not show_json({name: getattr(clip, name) for name in _LINE}, indent=None):
                break
    else:
        show(result.profile)
    return 0 if result.profile.measured_count else 1


def _doctor(arguments: argparse.Namespace) -> int:
    from .doctor import examine, report

    findings = examine()
    show(report(findings))
    return 0 if all(finding.status != "broken" for finding in findings) else 1


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser("demo", help="plan, train and guard a small speech model on spoken digits")
    demo.add_argument(
        "--output", default="demo-output", help="folder for checkpoints and TensorBoard (default demo-output)"
    )
    demo.add_argument("--max-steps", type=int, help="optimizer steps (default: enough to learn the digits)")
    demo.add_argument("--gpu", help="plan for this GPU instead of the local one")
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from ..recipe.demo_training import train_demo

    result = train_demo(arguments.output, max_steps=arguments.max_steps, gpu=arguments.gpu)
    show(result)
    return 0
