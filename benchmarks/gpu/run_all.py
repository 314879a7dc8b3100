"""Everything that waits for a GPU: python benchmarks/gpu/run_all.py --minutes 9

Needs a CUDA GPU and an installed ``asrconfig-go[train]``; no network and no Go. Runs pieces (pieces.py) until the
minutes are over, and writes each one's figures to results/<GPU>.json at once: the next call goes on with those that are
left. A piece that fails is tried again once, and then kept with its reason. Exit status 0 when nothing is left, 3 when
there is something left to run, 1 without a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from pieces import Piece, pieces

RESULTS = Path(__file__).parent / "results"
TRIES = 2
PATIENCE_S = 45  # nothing is begun with less time left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", default="", help="pieces whose name contains this")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a folder")
    options = parser.parse_args()
    begun = time.monotonic()
    about = _about()
    if about is None:
        print("no CUDA GPU was found: run this on a machine with one", file=sys.stderr)
        return 1
    path = options.results / f"{re.sub('[^A-Za-z0-9]+', '-', about['gpu'])}.json"
    found = json.loads(path.read_text())["pieces"] if path.exists() else {}
    todo = [piece for piece in pieces(about["gpu"]) if options.only in piece.name and not _is_done(found, piece)]
    for number, piece in enumerate(todo):
        left = options.minutes * 60 - (time.monotonic() - begun)
        if left < PATIENCE_S:
            print(f"{len(todo) - number} pieces are left: call this again")
            return 3
        found[piece.name] = _outcome(piece, left, found.get(piece.name, {}))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**about, "pieces": found}, indent=1) + "\n")
        print(piece.name, json.dumps(found[piece.name]), flush=True)
    print(f"nothing is left; {path}")
    return 0


def _is_done(found: dict[str, Any], piece: Piece) -> bool:
    known = found.get(piece.name)
    return known is not None and ("error" not in known or known["tries"] >= TRIES)


def _outcome(piece: Piece, left: float, before: dict[str, Any]) -> dict[str, Any]:
    begun = time.monotonic()
    try:
        return {**piece.run(left), "took_s": round(time.monotonic() - begun, 1)}
    except (RuntimeError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"[:300], "tries": before.get("tries", 0) + 1}


def _about() -> dict[str, Any] | None:
    """The GPU as CUDA names it, and the versions; None without one."""
    import torch

    from asrconfig_go.predict import HardwareProfile

    if not torch.cuda.is_available():
        return None
    names = ("asrconfig-go", "torch", "transformers")
    return {
        "gpu": torch.cuda.get_device_name(0),
        "driver": HardwareProfile.detect().driver_version,
        "date": datetime.date.today().isoformat(),
        "versions": {name: metadata.version(name) for name in names},
        "cuda": torch.version.cuda,
    }


if __name__ == "__main__":
    sys.exit(main())
