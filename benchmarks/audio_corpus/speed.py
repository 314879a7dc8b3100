"""The speed corpora: small files of the formats that speech datasets use, every one different."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from . import ogg
from .speech import LONGEST_S, RATE, Cutter, run, save_wav, wav

# Files of each kind; the folder is the first word, so wav/plain is the plain subset.
COUNTS = {
    "wav/plain": 14_000,
    "wav/extensible": 2_000,
    "wav/float": 2_000,
    "wav/list": 2_000,
    "flac": 5_000,
    "mp3/xing_id3": 750,
    "mp3/xing": 750,
    "mp3/cbr": 1_200,
    "mp3/vbr_no_header": 300,
    "vorbis": 3_000,
    "opus": 3_000,
    "m4a/moov_last": 500,
    "m4a/moov_first": 500,
}
EVEN_COUNTS = {"wav/plain": 1_560, "flac": 1_560, "vorbis": 1_560, "mp3/xing": 780, "mp3/cbr": 780}
EVEN_LONGEST_S = 8.0
PER_FOLDER = 200
ORIGINALS = 150  # encoded ones of a kind; the files are copies with another number in their tags
_MARK = b"copy-000000"
_TAG = _MARK.decode()

_ENCODERS: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "flac": ("flac", lambda i, o: run("flac", "-s", "-f", f"--tag=NUMBER={_TAG}", i, "-o", o)),
    "mp3/xing_id3": ("mp3", lambda i, o: run("lame", "--quiet", "-V4", "--tt", _TAG, "--id3v2-only", i, o)),
    "mp3/xing": ("mp3", lambda i, o: run("lame", "--quiet", "-V4", i, o)),
    "mp3/cbr": ("mp3", lambda i, o: run("lame", "--quiet", "-b", "48", "-t", i, o)),
    "mp3/vbr_no_header": ("mp3", lambda i, o: run("lame", "--quiet", "-V4", "-t", i, o)),
    "vorbis": ("ogg", lambda i, o: run("oggenc", "-Q", "-q", "3", "-c", f"NUMBER={_TAG}", i, "-o", o)),
    "opus": ("opus", lambda i, o: run("opusenc", "--quiet", "--bitrate", "24", "--comment", f"NUMBER={_TAG}", i, o)),
    "m4a/moov_last": ("m4a", lambda i, o: _m4a(i, o)),
    "m4a/moov_first": ("m4a", lambda i, o: _m4a(i, o, "-movflags", "+faststart")),
}


def _m4a(source: Path, out: Path, *more: str) -> None:
    tagged = ("-c:a", "aac", "-b:a", "48k", "-metadata", f"title={_TAG}")
    run("ffmpeg", "-v", "error", "-y", "-i", source, *tagged, *more, out)


def numbered(data: bytes, number: int) -> bytes:
    """The same file with another number in its tags, or, without tags, in the payload of its last frame."""
    at = data.find(_MARK)
    text = b"copy-%06d" % number
    if at < 0:
        return data[: -len(text)] + text
    changed = data[:at] + text + data[at + len(text) :]
    if data[:4] != b"OggS":
        return changed
    start, end = next((s, e) for s, e in ogg.pages(changed) if s <= at < e)
    return changed[:start] + ogg.resealed(changed[start:end]) + changed[end:]


def encode_originals(
    folder: Path, cutter: Cutter, kinds: list[str], longest_s: float
) -> dict[str, list[tuple[bytes, float]]]:
    """ORIGINALS encoded files of every kind, each with its seconds of speech."""
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, list[tuple[bytes, float]]] = {kind: [] for kind in kinds}
    for _ in range(ORIGINALS):
        clip = cutter.cut(longest_s)
        save_wav(folder / "clip.wav", clip)
        for kind in kinds:
            extension, encode = _ENCODERS[kind]
            out = folder / f"clip.{extension}"
            encode(folder / "clip.wav", out)
            made[kind].append((out.read_bytes(), len(clip) / RATE))
    shutil.rmtree(folder)
    return made


def make_speed(folder: Path, cutter: Cutter, counts: dict[str, int] = COUNTS, longest_s: float = LONGEST_S) -> None:
    """Write the corpus, with seconds.json: what went into each file."""
    shutil.rmtree(folder, ignore_errors=True)
    originals = encode_originals(
        folder / "originals", cutter, [kind for kind in counts if kind in _ENCODERS], longest_s
    )
    seconds: dict[str, float] = {}
    for kind, count in counts.items():
        for number in range(count):
            if kind in originals:
                data, length = originals[kind][number % ORIGINALS]
                data, extension = numbered(data, number), _ENCODERS[kind][0]
            else:
                clip = cutter.cut(longest_s)
                data, length, extension = wav(kind.partition("/")[2], clip), len(clip) / RATE, "wav"
            path = folder / kind / f"{number // PER_FOLDER:03d}" / f"clip_{number:05d}.{extension}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            seconds[str(path.relative_to(folder))] = length
    (folder / "seconds.json").write_text(json.dumps(seconds))
    print(f"{folder}: {len(seconds)} files, {sum(seconds.values()) / 3600:.1f} h")
