"""``asrconfig scan``: durations of audio files, without decoding them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, get_args

from .._base.choices import Cluster
from .._base.output import show_json
from .._base.records import to_json
from .options import DATA, add_output_options, command_line, passed_on, show_result, with_progress

_LINE = ("path", "duration_s", "claimed_duration_s", "sample_rate", "channels", "bits", "codec", "method", "error")


def add_scan(commands: Any) -> None:
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
        show_result(arguments, profile, lambda: to_json(profile), planned if len(arguments.paths) == 1 else "")
    return 0 if profile.measured_count else 1
