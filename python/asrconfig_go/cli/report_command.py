"""``asrconfig report``: the report of a run from the file that its monitor saved, or two runs beside each other."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .._base.choices import ReportAxis
from .._base.errors import InvalidArgumentError, NotFoundError
from .options import add_output_options, show_result


def add_report(commands: Any) -> None:
    """Add the command and its options."""
    report = commands.add_parser("report", help="report on a run that was watched, or compare two")
    add = report.add_argument
    runs = "output_dir of a training, or its asrconfig_monitor.json; two are compared"
    add("runs", metavar="RUN", nargs="+", help=runs)
    add("--plot", metavar="FILE", help="also draw it with matplotlib: .png, .pdf or .svg (one run)")
    add("--by", choices=("time", "steps"), help="x axis of the charts of one run (default time)")
    add("--export", metavar="FILE",
        help="also write the series: .csv, .jsonl, or .json for Perfetto; of two runs .csv")  # fmt: skip
    add_output_options(report)
    report.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> int:
    if len(arguments.runs) > 1:
        return _compare(arguments)
    from ..report import export, report

    (run,) = arguments.runs
    by: ReportAxis = arguments.by or "time"
    result = report(run)
    if arguments.plot:
        save_plot(result.plot(by=by), arguments.plot)
    if arguments.export:
        export(run, arguments.export)
    show_result(arguments, result, result.to_json, by=by)
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from ..report import compare_runs

    if len(arguments.runs) > 2:
        raise InvalidArgumentError(f"cannot compare {len(arguments.runs)} runs", "name one run, or two")
    for option in ("plot", "by"):
        if getattr(arguments, option) is not None:
            raise InvalidArgumentError(f"--{option} is for one run", f"leave --{option} out, or name one run")
    if arguments.export and Path(arguments.export).suffix.lower() != ".csv":
        raise InvalidArgumentError(f"cannot write a comparison to {arguments.export!r}", "name a .csv, or use --json")
    comparison = compare_runs(*arguments.runs)
    if arguments.export:
        comparison.to_csv(arguments.export)
    show_result(arguments, comparison, comparison.to_json)
    return 0


def save_plot(figure: Any, name: str) -> None:
    """Write a figure. Raises ``InvalidArgumentError`` for another suffix, ``NotFoundError`` for an unwritable path."""
    formats = figure.canvas.get_supported_filetypes()
    if Path(name).suffix[1:].lower() not in formats:
        raise InvalidArgumentError(f"cannot tell from {name!r} what to draw", "name a file .png, .pdf or .svg")
    try:
        figure.savefig(name, dpi=130)
    except OSError as error:
        raise NotFoundError(f"cannot write {name}: {error}", "choose a folder that can be written") from error
