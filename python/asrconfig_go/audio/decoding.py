"""Audio files as samples: decoding by soundfile, channels, resampling, padding."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._core.files import user_path
from .._core.storage import from_storage, read_through
from ..data.segments import split_range
from ..errors import CorruptFileError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from soundfile import SoundFile

# Of the energy that the mean of unlike channels has. Of two channels of one loudness, 0.02 is 20 dB below either.
_CANCELS = 0.02
_SILENT = 1e-4  # of full scale: -80 dB, three steps of 16 bits
_BLOCK = 1 << 23  # frames read at once, so that a header that claims days of audio reserves no memory
_CUT_OFF = 0.98  # of the frames that the header claims; lossy formats may miss a few at the ends
# Seconds decoded before a piece, by codec: an Opus decoder converges to its output from the beginning in that time.
_LEAD_S = {"OPUS": 5.0}


class Decoded(NamedTuple):
    """Mono samples of a clip and their rate; ``one_channel``: of one channel alone, as all cancel each other."""

    samples: Array
    rate: int
    one_channel: bool = False


class Mix:
    """Means of a clip's channels, block by block; or the samples of ``channel`` instead."""

    def __init__(self, channel: int | None = None) -> None:
        self._channel = channel
        self._energy = 0.0
        self._energies: list[float] = []

    def __call__(self, block: Array, axis: int) -> Array:
        """``block`` without its ``axis`` of channels."""
        if self._channel is not None:
            alone: Array = np.ascontiguousarray(block.take(self._channel, axis))
            return alone
        mix: Array = block.mean(axis)
        self._energy += _energy(mix)
        energies = [_energy(block.take(channel, axis)) for channel in range(block.shape[axis])]
        self._energies = [a + b for a, b in zip(self._energies or [0.0] * len(energies), energies, strict=True)]
        return mix

    def channel_instead(self) -> int | None:
        """The loudest channel, where the mean has far less energy than the channels; else None."""
        count = len(self._energies)
        if not count or not self._energy < _CANCELS * sum(self._energies) / count**2:
            return None
        return self._energies.index(max(self._energies))


def is_silent(samples: Array) -> bool:
    """Whether a clip is silent."""
    return bool(len(samples)) and max(float(samples.max()), -float(samples.min())) < _SILENT


def _energy(samples: Array) -> float:
    return float(np.dot(samples, samples))


Array = np.ndarray[Any, Any]
Augmentation = Callable[[Array, Array, np.random.Generator], tuple[Array, Array]]
"""(batch of float32 (clips, samples) padded with zeros, lengths (clips,), generator) -> (batch, lengths)."""


def padded(clips: Sequence[Array]) -> tuple[Array, Array]:
    """The clips as one new float32 array (clips, longest), padded with zeros at the end, and their lengths."""
    lengths = np.array([len(clip) for clip in clips], dtype=np.int64)
    batch: Array = np.zeros((len(clips), int(lengths.max(initial=0))), dtype=np.float32)
    for row, clip in zip(batch, clips, strict=True):
        row[: len(clip)] = clip
    return batch, lengths


def augmented(clips: Sequence[Array], augment: Sequence[Augmentation], generator: np.random.Generator) -> list[Array]:
    """The clips after all augmentations in their order, without padding; the clips given stay as they are."""
    batch, lengths = padded(clips)
    for change in augment:
        batch, lengths = change(batch, lengths, generator)
    return [row[:length] for row, length in zip(batch, lengths, strict=True)]


def chosen(count: int, probability: float, generator: np.random.Generator) -> Array:
    """The rows that an augmentation of this probability changes."""
    return np.flatnonzero(generator.random(count) < probability)


def power(clip: Array) -> float:
    """The mean square of a clip."""
    return float(np.dot(clip, clip)) / max(1, len(clip))


Resample = Callable[[Array, int, int], Array]  # (audio, from, to)


def resampled(audio: Array, rate: int, wanted: int, name: str) -> Array:
    """``audio``, mono float32 at ``rate`` hertz, at the ``wanted`` rate; ``name`` is for the message."""
    if rate == wanted:
        return audio
    _, resample = find_resampler()
    if resample is None:
        raise UnsupportedError(
            f"{name} has {rate} Hz, the model takes {wanted} Hz, and there is nothing to resample it with",
            "pip install soxr (or scipy)",
        )
    return resample(audio, rate, wanted)


def find_resampler() -> tuple[str, Resample | None]:
    """The name of what is installed, and a function; "" and None when nothing is.

    Both keep float32. soxr takes a third of scipy's time at rates with small common divisors.
    """
    if importlib.util.find_spec("soxr"):
        soxr: Any = importlib.import_module("soxr")
        return "soxr", lambda audio, old, new: soxr.resample(audio, old, new)
    if importlib.util.find_spec("scipy"):
        signal: Any = importlib.import_module("scipy.signal")
        return "scipy", lambda audio, old, new: signal.resample_poly(audio, new, old).astype("float32", copy=False)
    return "", None


def decode_file(path: str) -> Decoded:
    """The mono samples of a file or of a piece of one, and its rate in hertz."""
    path, part = split_range(path)
    return from_storage(path, lambda: _decode_file(path, part))


def _decode_file(path: str, part: tuple[float, float] | None) -> Decoded:
    file = user_path(path, "audio file")
    path = str(file) if path.startswith("~") else path
    if not file.is_file():
        problem = "is a folder" if file.is_dir() else "does not exist"
        where = "fetch it first" if "://" in path else f"relative paths start in {Path.cwd()}"
        raise NotFoundError(f"the audio file {path} {problem}", where)
    if not os.access(path, os.R_OK):
        with contextlib.suppress(PermissionError):
            read_through(path)
        raise NotFoundError(f"the audio file {path} cannot be read", "check its permissions")
    if not file.stat().st_size:
        raise CorruptFileError(f"the audio file {path} is empty", "fetch it again, or leave it out")
    try:
        return _decode(path, path, part)
    except CorruptFileError:
        read_through(path)  # raises what the storage fails by, of which libsndfile keeps nothing
    return _decode(path, path, part)


def decode_bytes(data: bytes | bytearray | memoryview, name: str, path: str = "") -> Decoded:
    """As ``decode_file``, of a file in memory; its ``path`` may select a piece of it."""
    return _decode(io.BytesIO(data), name, split_range(path, file=False)[1])


def _decode(file: str | io.BytesIO, name: str, part: tuple[float, float] | None, channel: int | None = None) -> Decoded:
    soundfile, mix = _soundfile(name), Mix(channel)
    try:
        with soundfile.SoundFile(file) as opened:
            claimed, rate = opened.frames, int(opened.samplerate)
            if part is not None:
                claimed = _go_to(opened, part)
            samples = _mono_frames(opened, claimed, mix)
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError, OSError) as error:
        raise CorruptFileError(
            f"cannot decode {name}: {_reason(error)}", "if a player plays it, convert it: ffmpeg -i IN OUT.flac"
        ) from error
    if len(samples) < _CUT_OFF * claimed:
        raise CorruptFileError(
            f"{name} is truncated: {len(samples) / rate:.2f} s of {claimed / rate:.2f} s could be decoded",
            "fetch it again, or leave it out; asrconfig_go.scan_audio finds all such files",
        )
    instead = mix.channel_instead()
    if instead is None:
        return Decoded(samples, rate, channel is not None)
    if isinstance(file, io.BytesIO):
        file.seek(0)
    return _decode(file, name, part, instead)


def _go_to(opened: SoundFile, part: tuple[float, float]) -> int:
    """Seek to where ``part`` in seconds starts, and return its length in frames."""
    start, end = (min(round(s * opened.samplerate), opened.frames) for s in part)
    lead = min(start, round(_LEAD_S.get(opened.subtype, 0.0) * opened.samplerate))
    opened.seek(start - lead)
    if lead:
        opened.read(lead, dtype="float32")
    return int(end - start)


def _mono_frames(opened: SoundFile, frames: int, mix: Mix) -> Array:
    blocks: list[Array] = []
    while True:
        wanted = min(_BLOCK, max(1, frames))
        block = opened.read(wanted, dtype="float32")
        blocks.append(mix(block, 1) if block.ndim == 2 else block)
        frames -= len(block)
        if len(block) < wanted or frames <= 0:
            break
    samples: Array = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
    return samples


def _reason(error: Exception) -> str:
    """libsndfile's own message, without soundfile's part about the Python object."""
    text = getattr(error, "error_string", "") or str(error) or type(error).__name__
    return text.strip().removeprefix("Error : ").rstrip(".")


def _soundfile(name: str) -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: without libsndfile
        raise UnsupportedError(f"cannot decode {name}: {error}", "pip install soundfile") from error
    return soundfile
