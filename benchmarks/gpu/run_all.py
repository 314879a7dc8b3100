"""Everything that waits for a GPU: python benchmarks/gpu/run_all.py --minutes 9

Needs a CUDA GPU and an installed ``asrconfig-go[train]``; no network and no Go. Runs pieces (pieces.py) until the
minutes are over, and writes each one's figures to results/<GPU>.json at once: the next call goes on with those that are
left. Pieces that measure no time run beside each other. One that fails is tried again once, and then kept with its
reason. Exit status 0 when nothing is left, 3 when there is something left to run, 1 without a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

from pieces import GpuMemory, Piece, pieces

RESULTS = Path(__file__).parent / "results"
TRIES = 2
TIMED_AT_ONCE = 3  # one has the GPU, two are prepared
PATIENCE_S = 45  # nothing is begun with less time left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", default="", help="pieces whose name contains this")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a folder")
    parser.add_argument("--at-once", type=int, default=12, metavar="N", help="pieces beside each other, default 12")
    options = parser.parse_args()
    end = time.monotonic() + options.minutes * 60
    import torch

    if not torch.cuda.is_available():
        print("no CUDA GPU was found: run this on a machine with one", file=sys.stderr)
        return 1
    about = about_gpu()
    path = options.results / f"{re.sub('[^A-Za-z0-9]+', '-', about['gpu'])}.json"
    results = Results(path, about)
    found = [piece for piece in pieces(about["gpu"], GpuMemory(_memory_bytes())) if options.only in piece.name]
    todo = [piece for piece in found if not results.has(piece)]
    for timed, at_once in ((False, options.at_once), (True, TIMED_AT_ONCE)):
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda piece: results.run(piece, end), [p for p in todo if p.timed == timed]))
    left = sum(not results.has(piece) for piece in found)
    print(f"{left} pieces are left: call this again" if left else f"nothing is left; {path}")
    return 3 if left else 0


class Results:
    """The figures of each piece by its name, in a file."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self._path, self._writing = path, threading.Lock()
        before = json.loads(path.read_text()) if path.exists() else {}
        self._about, self._pieces = {**before, **about}, before.get("pieces", {})

    def has(self, piece: Piece) -> bool:
        """Whether there are figures, or it failed as often as it is tried."""
        figures = self._pieces.get(piece.name)
        return figures is not None and ("error" not in figures or figures["tries"] >= TRIES)

    def run(self, piece: Piece, end: float) -> None:
        """Run a piece and write its figures, unless too little time is left."""
        left = end - time.monotonic()
        if left < PATIENCE_S:
            return
        figures = _outcome(piece, left, self._pieces.get(piece.name, {}))
        with self._writing:
            self._pieces[piece.name] = figures
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(
                json.dumps({**self._about, "pieces": self._pieces}, indent=1, ensure_ascii=False) + "\n"
            )
            print(piece.name, json.dumps(figures), flush=True)


def _outcome(piece: Piece, left: float, before: dict[str, Any]) -> dict[str, Any]:
    begun = time.monotonic()
    try:
        return {**piece.run(left), "took_s": round(time.monotonic() - begun, 1)}
    except (RuntimeError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"[:300], "tries": before.get("tries", 0) + 1}


def _memory_bytes() -> int:
    import torch

    free, _ = torch.cuda.mem_get_info()
    return int(free)


def about_gpu() -> dict[str, Any]:
    """The GPU as CUDA names it, its driver, and the versions."""
    import torch

    from asrconfig_go.predict import HardwareProfile

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
