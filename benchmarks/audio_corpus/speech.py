"""Speech to cut clips from, made by espeak-ng, and the ways to encode it."""

from __future__ import annotations

import random
import struct
import subprocess
import tempfile
import wave
from pathlib import Path
from typing import Any

import numpy as np

RATE = 16_000  # Hz
MEDIAN_S, SPREAD = 3.5, 0.55  # log-normal, about the clips of Common Voice
SHORTEST_S, LONGEST_S = 1.0, 15.0
TIMEOUT_S = 120
_SENTENCES = (
    "the birch canoe slid on the smooth planks",
    "glue the sheet to the dark blue background",
    "it is easy to tell the depth of a well",
    "these days a chicken leg is a rare dish",
    "rice is often served in round bowls",
    "the juice of lemons makes fine punch",
    "the box was thrown beside the parked truck",
    "the hogs were fed chopped corn and garbage",
    "four hours of steady work faced us",
    "a large size in stockings is hard to sell",
)


def run(*command: str | Path, stdin: bytes | None = None) -> bytes:
    """Run a program quietly and give what it prints; its own words when it fails."""
    done = subprocess.run([str(part) for part in command], input=stdin, capture_output=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr.decode(errors='replace')[-800:]}")
    return done.stdout


def make_speech() -> Any:
    """About a minute of speech as 16-bit samples at RATE, in several voices."""
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        spoken = Path(folder, "spoken.wav")
        for number, sentence in enumerate(_SENTENCES * 2):
            speed, pitch = 130 + 5 * (number % 12), 30 + 4 * (number % 10)
            run("espeak-ng", "-v", "en-us", "-s", f"{speed}", "-p", f"{pitch}", "-w", spoken, sentence)
            parts.append(run("sox", "-R", spoken, "-r", str(RATE), "-e", "signed", "-b", "16", "-t", "raw", "-"))
    return np.frombuffer(b"".join(parts), np.int16)


class Cutter:
    """Draws clips of speech-like lengths from one long recording."""

    def __init__(self, samples: Any, seed: int = 7) -> None:
        self.samples, self.random = samples, random.Random(seed)

    def cut(self, longest_s: float = LONGEST_S) -> Any:
        """A clip at a random place."""
        seconds = self.random.lognormvariate(float(np.log(MEDIAN_S)), SPREAD)
        length = int(min(max(seconds, SHORTEST_S), longest_s) * RATE)
        start = self.random.randrange(len(self.samples) - length)
        return self.samples[start : start + length]


def save_wav(path: Path, samples: Any, rate: int = RATE) -> None:
    """Write 16-bit samples, one column per channel."""
    with wave.open(str(path), "wb") as file:
        file.setparams((samples.shape[1] if samples.ndim > 1 else 1, 2, rate, 0, "NONE", ""))
        file.writeframes(samples.tobytes())


def chunk(name: bytes, body: bytes) -> bytes:
    """One RIFF chunk with its padding."""
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def wav(kind: str, samples: Any, rate: int = RATE) -> bytes:
    """A mono WAV file as plain, extensible, float or list (a LIST of 600 bytes before the data)."""
    head, data = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate, 2, 16), samples.tobytes()
    between = b""
    if kind == "extensible":
        guid = bytes.fromhex("0100000000001000800000aa00389b71")
        head = struct.pack("<HHIIHHHHI", 0xFFFE, 1, rate, 2 * rate, 2, 16, 22, 16, 4) + guid
    elif kind == "float":
        head = struct.pack("<HHIIHHH", 3, 1, rate, 4 * rate, 4, 32, 0)
        data = (samples.astype(np.float32) / 32768).tobytes()
        between = chunk(b"fact", struct.pack("<I", len(samples)))
    elif kind == "list":
        between = chunk(b"LIST", b"INFO" + chunk(b"ISFT", b"Lavf60.3.100\0") + chunk(b"ICMT", b"c" * 561))
    body = b"WAVE" + chunk(b"fmt ", head) + between + chunk(b"data", data)
    return b"RIFF" + struct.pack("<I", len(body)) + body
