"""Make the audio files of the scan's benchmarks.

    python benchmarks/make_audio_corpus.py FOLDER [--only speed even rows odd million] [--missing]

speed    35 000 small files, each different on disk: 20k WAV, 5k FLAC, 3k MP3, 3k Vorbis, 3k Opus, 1k M4A (3 GB)
even     6 240 small files, as many of WAV, FLAC, Vorbis and MP3, of 1 to 8 s (about 400 MB)
rows     200 000 rows with embedded bytes as Arrow and as Parquet (6 GB)
odd      files that break readers, of every format, with their true lengths by a decoder (20 MB)
million  a tree of a million names, hard links to a few files: for the scan's memory, not for its speed

Needs espeak-ng, sox with its AMR formats, flac, lame, oggenc, opusenc, speexenc, mkvmerge and ffmpeg on the PATH,
libvo-amrwbenc0, and numpy, pyarrow and datasets.
"""

from __future__ import annotations

import argparse
import os
from functools import cache, partial
from pathlib import Path

from audio_corpus.odd import make_odd
from audio_corpus.rows import make_rows
from audio_corpus.speech import RATE, Cutter, make_speech, wav
from audio_corpus.speed import EVEN_COUNTS, EVEN_LONGEST_S, make_speed

PARTS = ("speed", "even", "rows", "odd", "million")
NAMES, LINKS = 1_000_000, 10_000  # links of one file: ext4 allows 65 000
PER_FOLDER = 1_000


def make_million(folder: Path, cutter: Cutter) -> None:
    """A thousand folders of a thousand names each."""
    for number in range(NAMES):
        path = folder / f"{number // PER_FOLDER:04d}" / f"clip_{number:07d}.wav"
        if number % PER_FOLDER == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        if number % LINKS == 0:
            path.write_bytes(wav("plain", cutter.cut()[:RATE]))
            first = path
        else:
            os.link(first, path)
    print(f"{folder}: {NAMES} names")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--missing", action="store_true", help="leave out parts whose list of lengths is there")
    arguments = parser.parse_args()
    folder, speech = arguments.folder, cache(make_speech)
    make = {"speed": make_speed, "rows": make_rows, "odd": make_odd, "million": make_million}
    make["even"] = partial(make_speed, counts=EVEN_COUNTS, longest_s=EVEN_LONGEST_S)
    for part in arguments.only:
        if arguments.missing and any((folder / part).glob("*.json")):
            continue
        make[part](folder / part, Cutter(speech()))


if __name__ == "__main__":
    main()
