"""``asrconfig profile-gpu``: the kernels of a GPU measured, for plans and comparisons to take their times from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .._base.errors import UnsupportedError
from .._base.files import save_whole
from .._base.output import show
from ..machine.kernel_profile import kernel_profile, store_kernel_table, stored_kernel_tables
from .options import add_quiet


def add_profile_gpu(commands: Any) -> None:
    """Add the command and its options."""
    profile = commands.add_parser("profile-gpu", help="measure kernels on this GPU, for the times of plans")
    profile.add_argument("--minutes", type=float, default=3.0, help="time to measure, at most (default %(default)s)")
    profile.add_argument("--device", default="cuda", help="cuda (default), cuda:1, …")
    profile.add_argument("--output", metavar="FILE", help="also write the table here, to look at or to send")
    profile.add_argument("--list", action="store_true", help="measure nothing: list the tables that plans use")
    add_quiet(profile)
    profile.set_defaults(run=_profile_gpu)


def _profile_gpu(arguments: argparse.Namespace) -> int:
    if arguments.list:
        show("\n".join(stored_kernel_tables()) or "no kernels were measured: asrconfig profile-gpu")
        return 0
    try:
        from ..benchmark.kernel_timing import measure_kernels
    except ImportError as error:
        raise UnsupportedError("measuring kernels requires torch", "pip install torch") from error
    table = measure_kernels(arguments.device, minutes=arguments.minutes, progress=not arguments.quiet)
    if arguments.output:  # first: what plans cannot take may still be worth a look
        save_whole(Path(arguments.output), json.dumps(table, indent=1).encode())
    profile = kernel_profile(table)
    path = store_kernel_table(table, profile["gpu"])
    show(_words(table, profile))
    show(f"plans for this card take their times from it: {path}")
    return 0


def _words(table: dict[str, Any], profile: dict[str, Any]) -> str:
    lines = [f"{table['gpu']}: {len(table['kernels'])} kernels, torch {table['torch']}, {table['date']}"]
    lines.append(f"a launch takes {1e6 * profile['launch_s']:.1f} µs, a dispatch {1e6 * profile['dispatch_s']:.1f} µs")
    lines.append("measured / predicted time (10 to 90 % of the kernels)")
    for factor in profile["factors"]:
        spread = f"{factor['factor']:.2f} ({factor['low']:.2f} to {factor['high']:.2f})"
        lines.append(f"  {factor['group']:<22}{factor['dtype']:<10}{spread}")
    return "\n".join(lines)
