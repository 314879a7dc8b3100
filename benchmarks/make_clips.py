"""Make the demo's speech clips with espeak-ng: spoken digit strings, 16 kHz mono MP3.

    python benchmarks/make_clips.py [--out python/asrconfig_go/data/clips] [--seed 1]

Needs espeak-ng on the PATH, numpy and soundfile>=0.13. The same seed, the same espeak-ng and the same LAME, which is
part of soundfile's wheels, give the same files.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
VOICES = ("en-us", "en-gb", "en-gb-scotland", "en-us+f3", "en-us+f4", "en-gb+f2", "en-gb+m3", "en-us+m7")
SPEEDS = (140, 190)  # words a minute; espeak-ng's own default is 175
PITCHES = (30, 70)  # espeak-ng's scale of 0-99, default 50
LENGTHS = {"test": (2, 3, 3, 4), "train": (1, 2, 3, 3, 4)}  # words a clip, in turn
COUNTS = {"test": 60, "train": 250}
RATE = 16_000  # Hz
# MP3 at an average bitrate. Opus is as small, but its files are at 48 kHz to a decoder and would have to be resampled.
# libsndfile's scale goes from 160 (0) to 8 kbit/s (1) at this rate; 0.96 takes 2.6 kB a second, headers included,
# and leaves out what is above 6 kHz. Smaller files leave out so much that a transducer learns little from them.
ENCODER = {"format": "MP3", "subtype": "MPEG_LAYER_III", "bitrate_mode": "AVERAGE", "compression_level": 0.96}
EDGE_SECONDS = 0.05  # silence kept on either side of the speech
SILENCE = 0.004  # share of full scale below which a sample counts as silence
TIMEOUT = 20  # seconds for one espeak-ng call
DEFAULT_OUT = Path(__file__).resolve().parent.parent / "python/asrconfig_go/data/clips"


@dataclass(frozen=True)
class Clip:
    """One clip to render: what is said, for which split, and with which espeak-ng settings."""

    text: str
    split: str
    voice: str
    speed: int
    pitch: int


def digit_deck(rng: random.Random) -> Iterator[str]:
    """Yield words from shuffled decks without end, so that every digit is said equally often."""
    while True:
        yield from rng.sample(WORDS, len(WORDS))


def draw_clips(seed: int) -> list[Clip]:
    """Choose all clips. Held-out strings come first; no train clip repeats one of them.

    Strings of two and more words are never used twice; single digits recur in train, in other voices.
    """
    rng = random.Random(seed)
    words = digit_deck(rng)
    used: set[str] = set()
    clips = []
    for split in ("test", "train"):
        for number in range(COUNTS[split]):
            length = LENGTHS[split][number % len(LENGTHS[split])]
            text = " ".join(next(words) for _ in range(length))
            while text in used:
                text = " ".join(next(words) for _ in range(length))
            if length > 1:
                used.add(text)
            clips.append(Clip(text, split, rng.choice(VOICES), rng.randint(*SPEEDS), rng.randint(*PITCHES)))
    return clips


def synthesise(clip: Clip) -> tuple[Any, int]:
    """Return espeak-ng's mono samples (float64, full scale 1.0) and their rate in Hz."""
    command = ["espeak-ng", "-v", clip.voice, "-s", str(clip.speed), "-p", str(clip.pitch), "--stdout", clip.text]
    wav = subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT).stdout
    samples, rate = soundfile.read(io.BytesIO(wav))
    return samples, rate


def resample(samples: Any, rate: int) -> Any:
    """Resample to RATE by cutting the spectrum at the lower Nyquist frequency.

    The clip is padded with silence to whole blocks, so that the new length is a whole number of samples too.
    """
    block, new_block = rate // np.gcd(rate, RATE), RATE // np.gcd(rate, RATE)
    blocks = -(-len(samples) // block) + 1
    spectrum = np.fft.rfft(samples, blocks * block)
    length = blocks * new_block
    keep = min(len(spectrum), length // 2)  # the Nyquist bin itself is left out: it would alias
    return np.fft.irfft(spectrum[:keep], length) * (length / (blocks * block))


def trim(samples: Any) -> Any:
    """Cut silence from both ends down to EDGE_SECONDS."""
    loud = np.flatnonzero(np.abs(samples) > SILENCE)
    edge = int(EDGE_SECONDS * RATE)
    return samples[max(0, loud[0] - edge) : loud[-1] + edge]


def encode(samples: Any) -> bytes:
    """Return the samples (full scale 1.0) as an MP3 file. Raises ValueError unless as many samples come back."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, RATE, **ENCODER)
    data = buffer.getvalue()
    decoded, rate = soundfile.read(io.BytesIO(data))
    if (decoded.shape, rate) != (samples.shape, RATE):
        raise ValueError(f"encoded {samples.shape} at {RATE} Hz, decoded {decoded.shape} at {rate} Hz")
    return data


def write_clips(out: Path, seed: int) -> None:
    """Render every clip into `out`, with manifest.jsonl, and print how much there is."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.mp3"):
        old.unlink()
    seconds = size = 0.0
    with (out / "manifest.jsonl").open("w", encoding="utf-8") as manifest:
        for number, clip in enumerate(draw_clips(seed)):
            samples = trim(resample(*synthesise(clip)))
            path = out / f"{clip.split}-{number:03d}.mp3"
            path.write_bytes(encode(samples))
            row = {"audio_filepath": path.name, "text": clip.text, "split": clip.split, "voice": clip.voice}
            row |= {"speed": clip.speed, "pitch": clip.pitch, "duration": len(samples) / RATE}
            manifest.write(json.dumps(row) + "\n")
            seconds += len(samples) / RATE
            size += path.stat().st_size
    print(f"{sum(COUNTS.values())} clips, {seconds:.0f} s, {size / 1e6:.2f} MB")


def main() -> None:
    """Read the command line and write the clips."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder to write (its *.mp3 are replaced)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    write_clips(arguments.out, arguments.seed)


if __name__ == "__main__":
    main()
