"""The odd corpus: files of every format that break readers, with the length that a decoder finds in each."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from . import odd_boxes, odd_frames, odd_ogg, odd_pcm
from .odd_kit import Kit, decoded, tolerance
from .speech import Cutter


def make_odd(folder: Path, cutter: Cutter) -> None:
    """Write the files and truth.json: each file's family, seconds (null: no audio) and how they are known."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    truth = {}
    with tempfile.TemporaryDirectory() as scratch:
        kit = Kit(Path(scratch), cutter)
        for module in (odd_pcm, odd_frames, odd_ogg, odd_boxes):
            for odd in module.files(kit):
                path = folder / odd.name
                path.write_bytes(odd.data)
                seconds = decoded(path) if odd.known_by == "ffmpeg" else odd.seconds
                told = {
                    "seconds": seconds,
                    "tolerance_s": tolerance(odd, path),
                    "known_by": odd.known_by,
                    "declared": odd.declared,
                }
                truth[odd.name] = {"family": odd.family, **told}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1))
    print(f"{folder}: {len(truth)} files")
