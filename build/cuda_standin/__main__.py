"""Runs a Python script, and the Python processes that it starts, on the stand-in CUDA runtime."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .libraries import StandinError, built
from .settings import VARIABLE, Settings

_HERE = Path(__file__).parent


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m cuda_standin", description=__doc__)
    parser.add_argument("--gpu", default="T4", help="a card of the catalogue (core/gpus/gpus.json)")
    parser.add_argument("--memory-bytes", type=int, help="its memory, where that shall not be the catalogue's")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--copy-limit-bytes", type=int, help="larger copies are left out")
    parser.add_argument("--no-values", action="store_true", help="do not compute small results on the CPU")
    parser.add_argument("script", help="a Python script, followed by its arguments")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def _main() -> None:
    given = _arguments()
    chosen = Settings(given.gpu, given.memory_bytes, given.devices, copy_limit_bytes=given.copy_limit_bytes)
    chosen.cards()  # an error now, not in the script
    built()
    paths = [str(_HERE / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        VARIABLE: chosen.to_json(),
        "CUDA_STANDIN_PACKAGE": str(_HERE.parent),
        "CUDA_STANDIN_VALUES": "" if given.no_values else "1",
    }
    command = [sys.executable, given.script, *given.arguments]
    os.execve(sys.executable, command, environment)


try:
    _main()
except (StandinError, ValueError) as error:
    sys.exit(f"cuda_standin: {error}")
