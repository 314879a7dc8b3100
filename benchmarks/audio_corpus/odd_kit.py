"""What the odd files are made of: two recordings, ways to encode them, and a decoder that tells how long they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .speech import RATE, Cutter, run, save_wav

SPEECH_SAMPLES = 82_345  # 16 kHz mono; no whole number of blocks of any codec
MUSIC_RATE, MUSIC_SAMPLES = 44_100, 181_001  # stereo


@dataclass(frozen=True)
class Odd:
    """One file; seconds are those of its decoder where that is not ffmpeg, None where nothing in it can be played.

    declared are the seconds that a container states of its sound where ffmpeg plays the padding of the last frame too.
    """

    family: str
    name: str
    data: bytes
    seconds: float | None = None
    known_by: str = "ffmpeg"
    declared: float | None = None


def nothing(family: str, name: str, data: bytes) -> Odd:
    """A file without playable audio: the right answer is an error."""
    return Odd(family, name, data, None, "no audio")


class Kit:
    """The recordings as files, and encoders that give bytes."""

    def __init__(self, folder: Path, cutter: Cutter) -> None:
        self.folder = folder
        self.speech, self.music = folder / "speech.wav", folder / "music.wav"
        self.samples = cutter.samples[:SPEECH_SAMPLES]
        save_wav(self.speech, self.samples)
        save_wav(self.music, _tones(), MUSIC_RATE)

    def ffmpeg(self, source: Path, name: str, *options: str) -> bytes:
        """source by ffmpeg into a file of this name, without the version in its tags."""
        out = self.folder / name
        run("ffmpeg", "-v", "error", "-y", "-i", source, *options, "-fflags", "+bitexact", "-flags", "+bitexact", out)
        return out.read_bytes()

    def piped(self, source: Path, kind: str, *options: str) -> bytes:
        """The same into a pipe, where nothing can be filled in afterwards."""
        return run("ffmpeg", "-v", "error", "-i", source, *options, "-f", kind, "-")

    def sox(self, source: Path, name: str, *options: str, effects: tuple[str, ...] = ()) -> bytes:
        """source by sox; options are those of the output."""
        out = self.folder / name
        run("sox", "-R", source, *options, out, *effects)
        return out.read_bytes()

    def tool(self, name: str, *command: str | Path) -> bytes:
        """The file of this name that another program writes; its command ends with it."""
        out = self.folder / name
        run(*command, out)
        return out.read_bytes()

    def saved(self, name: str, data: bytes) -> Path:
        """data as a file, to be read by a program."""
        path = self.folder / name
        path.write_bytes(data)
        return path


def _tones() -> Any:
    time = np.arange(MUSIC_SAMPLES) / MUSIC_RATE
    left = 9000 * np.sin(2 * np.pi * 330 * time) * (1 + np.sin(5 * time))
    right = 9000 * np.sin(2 * np.pi * (200 + 40 * time) * time)
    return np.stack([left, right], axis=1).astype(np.int16)


def stream(path: Path) -> tuple[int, int]:
    """Rate and channels of the first audio stream, by ffprobe."""
    probe = ("ffprobe", "-v", "quiet", "-select_streams", "a:0", "-show_entries", "stream=sample_rate,channels")
    fields = dict(line.split("=") for line in run(*probe, "-of", "default=nw=1", path).decode().splitlines())
    return int(fields["sample_rate"]), int(fields["channels"])


def decoded(path: Path) -> float:
    """Seconds that ffmpeg decodes from the file, counted in samples of the first audio stream."""
    rate, channels = stream(path)
    keep = ("-map", "0:a:0", "-ar", f"{rate}", "-ac", f"{channels}", "-f", "f32le", "-")
    return len(run("ffmpeg", "-v", "quiet", "-i", path, *keep)) / (4 * channels) / rate


def tolerance(odd: Odd, path: Path) -> float:
    """How far off an answer may be: 1 ms, or one frame of a format that is only a row of frames."""
    if odd.family not in ("MP3", "MP2", "AAC") or odd.known_by == "no audio":
        return 0.001
    rate = stream(path)[0]
    return {"MP3": 576 if rate < 32_000 else 1152, "MP2": 1152, "AAC": 1024}[odd.family] / rate


def part(data: bytes, share: float) -> bytes:
    """The first share of a file, as of a broken download."""
    return data[: int(len(data) * share)]


SPEECH_SECONDS = SPEECH_SAMPLES / RATE
MUSIC_SECONDS = MUSIC_SAMPLES / MUSIC_RATE
