"""``asrconfig replay``: a batch that the guard saved, clip by clip."""

from __future__ import annotations

import argparse
from typing import Any

from .._base.output import show, show_json
from .options import add_quiet


def add_replay(commands: Any) -> None:
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
    from ..recipe.rank_output import quiet
    from ..training.batch_replay import replay_batch

    with quiet(arguments.quiet or arguments.json):
        result = replay_batch(arguments.folder, arguments.model, device=arguments.device)
    if arguments.json:
        show_json(result.to_json())
    else:
        show(result)
    return 0
