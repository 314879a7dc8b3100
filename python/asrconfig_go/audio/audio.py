"""One clip as a speech model takes it: mono, float32, at the model's sampling rate."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .._core.checks import checked, checked_list
from .._core.defaults import SAMPLING_RATE
from ..data.source import is_array, kind
from ..errors import CorruptFileError, InvalidArgumentError
from .decoding import Array, Decoded, Mix, decode_bytes, decode_file, resampled

RATES = (1000, 1_000_000)  # hertz; a file that claims another one is damaged, and would become very long or nothing
_ACCEPTED = (
    'pass a path, the bytes of an audio file, {"path": …} or {"bytes": …} as datasets.Audio(decode=False) returns, '
    '{"array": …, "sampling_rate": …}, or an array'
)


def check_rate(sample_rate: int) -> None:
    """Raise ``InvalidArgumentError`` outside 1000 to 1 000 000 Hz."""
    check_count("sample_rate", sample_rate, *RATES, "16000 is usual")


def check_probability(probability: float) -> None:
    """Raise ``InvalidArgumentError`` outside 0 to 1."""
    if not 0 <= checked("probability", probability, float) <= 1:
        raise InvalidArgumentError(f"probability = {probability} is not between 0 and 1", "1.0 changes every clip")


def check_range(name: str, value: object, low: float, high: float, usual: str) -> tuple[float, float]:
    """The two ends of a range within ``low`` to ``high``; ``InvalidArgumentError`` for anything else."""
    numbers = checked_list(name, value, float)
    if len(numbers) != 2 or not low <= numbers[0] <= numbers[1] <= high:
        raise InvalidArgumentError(f"{name} = {value!r} is not a range within {low:g} to {high:g}", usual)
    return numbers[0], numbers[1]


def check_count(name: str, value: object, low: int, high: int, usual: str) -> int:
    """A whole number from ``low`` to ``high``; ``InvalidArgumentError`` for anything else."""
    number = int(checked(name, value, int))
    if not low <= number <= high:
        raise InvalidArgumentError(f"{name} = {number} is not between {low} and {high}", usual)
    return number


def load_audio(source: object, *, sample_rate: int = SAMPLING_RATE) -> Array:
    """The samples of one clip: float32, mono, of shape (samples,), at ``sample_rate`` hertz (1000 to 1 000 000).

    ``source`` is a path, the bytes of an audio file, a dictionary with ``bytes`` or ``path`` (what
    ``datasets.Audio(decode=False)`` returns; the bytes win), a dictionary with ``array`` and ``sampling_rate``, a
    decoder of torchcodec, or an array or tensor, which is taken to be at ``sample_rate``. The path
    ``talk.flac#t=12.5,30`` selects the piece from 12.5 s to 30 s of ``talk.flac``, and only that is read. Several
    channels are averaged; in arrays, the shorter axis is that of the channels. If the channels cancel each other (their
    mean has a hundredth of their energy or less), the loudest one is used instead. Files are decoded by soundfile, and
    resampled by soxr, or by scipy where soxr is not installed.

    Raises ``NotFoundError`` for a missing file, ``CorruptFileError`` for one that is empty, truncated (where its header
    tells: FLAC and MP3), in an unknown format or with samples that are not finite numbers, ``InvalidArgumentError`` for
    what is not audio, and ``UnsupportedError`` where a library is missing; each names the file.

    >>> clip = load_audio(CLIPS / "test-000.mp3")
    >>> clip.dtype, clip.shape
    (dtype('float32'), (9390,))
    """
    return load_clip(source, sample_rate).samples


def load_clip(source: object, sample_rate: int = SAMPLING_RATE) -> Decoded:
    """As ``load_audio``, and whether one channel was taken because all cancel each other."""
    check_rate(sample_rate)
    name = name_of(source)
    samples, rate, one_channel = decode_source(source, name, sample_rate)
    if not RATES[0] <= rate <= RATES[1]:
        raise CorruptFileError(f"{name} has the sampling rate {rate} Hz", "write it again, or leave it out")
    if not np.isfinite(samples).all():
        raise CorruptFileError(f"{name} holds samples that are not finite numbers", "write it again, or leave it out")
    clip: Array = resampled(samples, rate, sample_rate, name) if len(samples) else samples
    if not len(clip):
        raise CorruptFileError(f"{name} holds no audio", "leave it out: filter the dataset by its length")
    return Decoded(clip, sample_rate, one_channel)


def name_of(source: Any) -> str:
    """What to call a clip in messages: its path, or what it is."""
    if isinstance(source, dict):
        path = source.get("path")
        if source.get("bytes") is not None:
            return f"{path} (bytes in the dataset)" if path else name_of(source["bytes"])
        return os.fsdecode(path) if path else "an audio entry"
    if isinstance(source, str | os.PathLike):
        return os.fsdecode(source)
    if isinstance(source, bytes | bytearray | memoryview):
        return f"an audio buffer of {len(source)} bytes"
    return f"an array of shape {tuple(source.shape)}" if is_array(source) else kind(source)


def decode_source(source: object, name: str, rate: int) -> Decoded:
    """The samples of a clip in mono at the rate at which it is stored; ``rate`` is that of arrays without one."""
    if isinstance(source, dict):
        if source.get("array") is not None:
            return _array(source["array"], name, _rate(source.get("sampling_rate", rate), name))
        if source.get("bytes") is not None:
            return decode_bytes(source["bytes"], name, os.fsdecode(source.get("path") or ""))
        source = source.get("path")
        if source is None:
            raise InvalidArgumentError(f"{name} has neither bytes nor a path nor an array", _ACCEPTED)
    if isinstance(source, str | os.PathLike):
        return decode_file(os.fsdecode(source))
    if isinstance(source, bytes | bytearray | memoryview):
        return decode_bytes(source, name)
    if hasattr(source, "get_all_samples"):  # of torchcodec, which datasets returns from version 4 on
        samples = source.get_all_samples()
        return _array(samples.data, name, _rate(samples.sample_rate, name))
    return _array(source, name, rate)


def _array(values: Any, name: str, rate: int) -> Decoded:
    """As mono float32; int16 and int32 are taken as PCM samples of that width."""
    if isinstance(values, str | bytes | dict) or values is None:
        raise InvalidArgumentError(f"{name} is not audio", _ACCEPTED)
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidArgumentError(f"{name} is not audio: {error}", _ACCEPTED) from None
    is_pcm = array.dtype in (np.int16, np.int32)
    if array.ndim not in (1, 2) or not (is_pcm or array.dtype.kind == "f"):
        raise InvalidArgumentError(f"{name} is not audio: {array.dtype} of shape {array.shape}", _ACCEPTED)
    samples: Array = array.astype(np.float32, copy=False)
    if not samples.size:
        return Decoded(samples.reshape(-1), rate)
    if is_pcm:
        samples = samples / np.float32(-float(np.iinfo(array.dtype).min))
    if samples.ndim == 1:
        return Decoded(samples, rate)
    axis, mix = int(np.argmin(samples.shape)), Mix()
    mean = mix(samples, axis)
    instead = mix.channel_instead()
    return Decoded(mean, rate) if instead is None else Decoded(Mix(instead)(samples, axis), rate, True)


def _rate(rate: object, name: str) -> int:
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.number) or not 0 < rate <= RATES[1]:
        raise InvalidArgumentError(f"{name} has the sampling rate {rate!r}", f"it is {RATES[0]} to {RATES[1]} Hz")
    return round(float(rate))
