"""``asrconfig report``: the report of a run, from the file that its monitor saved."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .._base.errors import InvalidArgumentError, NotFoundError
from .._base.output import show, show_json


def add_report(commands: Any) -> None:
    """Add the command and its options."""
    report = commands.add_parser("report", help="report on a run that was watched")
    report.add_argument("what", metavar="RUN", help="output_dir of a training, or its asrconfig_monitor.json")
    report.add_argument("--html", metavar="FILE", help="also write a self-contained HTML page")
    report.add_argument("--plot", metavar="FILE", help="also draw it with matplotlib: .png, .pdf or .svg")
    report.add_argument("--by", choices=("time", "steps"), default="time", help="x axis of the charts (default time)")
    report.add_argument("--export", metavar="FILE", help="also write the series: .csv, .jsonl, or .json for Perfetto")
    report.add_argument("--json", action="store_true", help="print the figures as JSON")
    report.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> int:
    from ..report import export, report

    told = report(arguments.what)
    if arguments.html:
        told.to_html(arguments.html, by=arguments.by)
    if arguments.plot:
        save_plot(told.plot(by=arguments.by), arguments.plot)
    if arguments.export:
        export(arguments.what, arguments.export)
    show_json(told.to_json()) if arguments.json else show(told)
    return 0


def save_plot(figure: Any, name: str) -> None:
    """Write a figure. Raises ``InvalidArgumentError`` for another suffix, ``NotFoundError`` for an unwritable path."""
    known = figure.canvas.get_supported_filetypes()
    if Path(name).suffix[1:].lower() not in known:
        raise InvalidArgumentError(f"cannot tell from {name!r} what to draw", "name a file .png, .pdf or .svg")
    try:
        figure.savefig(name, dpi=130)
    except OSError as error:
        raise NotFoundError(
            f"cannot write {name}: {error}", "choose a folder that exists and can be written"
        ) from error
