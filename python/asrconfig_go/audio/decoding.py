"""One clip as a speech model takes it: decoded by soundfile, mono, float32, at the model's sampling rate."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._core.checks import in_range
from .._core.files import from_storage, read_through, user_path
from .._core.output import kind_of
from .._core.settings import SAMPLING_RATE
from .._core.stored_clip import StoredClip
from ..data.segments import split_range
from ..data.source import is_array
from ..errors import CorruptFileError, InvalidArgumentError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from soundfile import SoundFile

Array = np.ndarray[Any, Any]
Resample = Callable[[Array, int, int], Array]  # (audio, from, to)
# In hertz. A file that claims another rate is damaged: resampling would make it very long, or leave nothing of it.
RATE_RANGE = (1000, 1_000_000)
_ACCEPTED = (
    'pass a path, the bytes of an audio file, {"path": …} or {"bytes": …} as datasets.Audio(decode=False) returns, '
    '{"array": …, "sampling_rate": …}, or an array'
)
# Channels cancel each other where their mean has less than this share of the energy that the mean of unrelated channels
# would have: for two equally loud channels, where it is 20 dB below either.
_CANCELS = 0.02
_SILENT = 1e-4  # of full scale: -80 dB, three steps of 16 bits
_BLOCK = 1 << 23  # frames read at once, so that a header that claims days of audio reserves no memory
# Least share of the frames in its header to which a whole file decodes: lossy formats may miss a few at the ends.
_WHOLE = 0.98
# Seconds decoded before a piece, by codec. After them an Opus decoder that started in the middle gives what one does
# that started at the beginning of the file.
_LEAD_S = {"OPUS": 5.0}


class Decoded(NamedTuple):
    """Mono samples of a clip and their rate in hertz.

    ``one_channel`` says that they are those of one channel alone, since in the mean the channels cancel each other.
    """

    samples: Array
    rate: int
    one_channel: bool = False


class Mix:
    """Mixes a clip to mono, block by block: the mean of its channels, or ``channel`` alone."""

    def __init__(self, channel: int | None = None) -> None:
        self._channel = channel
        self._energy = 0.0
        self._energies: list[float] = []

    def __call__(self, block: Array, axis: int) -> Array:
        """The mono samples of ``block``, whose ``axis`` is that of the channels."""
        if self._channel is not None:
            samples: Array = np.ascontiguousarray(block.take(self._channel, axis))
            return samples
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
    """Whether no sample of a clip is as loud as -80 dB of full scale; a clip without samples is not silent."""
    return bool(len(samples)) and max(float(samples.max()), -float(samples.min())) < _SILENT


def _energy(samples: Array) -> float:
    return float(np.dot(samples, samples))


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
    """The name of the installed resampling package, and a function that resamples by it; "" and None without one.

    Both packages keep float32. soxr takes a third of scipy's time at rates with small common divisors.
    """
    if importlib.util.find_spec("soxr"):
        soxr: Any = importlib.import_module("soxr")
        return "soxr", lambda audio, old, new: soxr.resample(audio, old, new)
    if importlib.util.find_spec("scipy"):
        signal: Any = importlib.import_module("scipy.signal")
        return "scipy", lambda audio, old, new: signal.resample_poly(audio, new, old).astype("float32", copy=False)
    return "", None


def decode_file(path: str) -> Decoded:
    """The mono samples of a file, or of the piece of it that a path such as ``talk.flac#t=12.5,30`` selects."""
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
        # Raises the error of storage that does not answer, which libsndfile does not pass on. Where the file can be
        # read now, the storage may have failed for a moment only, so the file is decoded once more.
        read_through(path)
    return _decode(path, path, part)


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
    if len(samples) < _WHOLE * claimed:
        raise CorruptFileError(
            f"{name} is truncated: {len(samples) / rate:.2f} s of {claimed / rate:.2f} s could be decoded",
            "fetch it again, or leave it out; asrconfig_go.scan_audio finds all such files",
        )
    loudest = mix.channel_instead()
    if loudest is None:
        return Decoded(samples, rate, channel is not None)
    if isinstance(file, io.BytesIO):
        file.seek(0)
    return _decode(file, name, part, loudest)  # again, for only the mean was kept


def _go_to(opened: SoundFile, part: tuple[float, float]) -> int:
    """Seek to where ``part`` in seconds starts, and return its length in frames."""
    start, end = (min(round(s * opened.samplerate), opened.frames) for s in part)
    lead = min(start, round(_LEAD_S.get(opened.subtype, 0.0) * opened.samplerate))
    opened.seek(start - lead)
    if lead:
        opened.read(lead, dtype="float32")
    return int(end - start)


def _mono_frames(opened: SoundFile, frames: int, mix: Mix) -> Array:
    """The next ``frames`` of a file, fewer where it ends before."""
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


def check_rate(sample_rate: int, name: str = "sample_rate") -> None:
    """Raise ``InvalidArgumentError`` outside 1000 to 1 000 000 Hz; ``name`` is the argument's."""
    in_range(name, sample_rate, *RATE_RANGE, "16000 is usual", int)


def load_audio(source: object, *, sample_rate: int = SAMPLING_RATE) -> Array:
    """Load one clip as float32, in mono, at the sampling rate of a model.

    Several channels are averaged. If they cancel each other (their mean has a hundredth of their energy or less), the
    loudest one is used instead. Files are decoded by soundfile, and resampled by soxr, or by scipy where soxr is not
    installed.

    Args:
        source: A path, the bytes of an audio file, a dictionary with ``bytes`` or ``path`` (what
            ``datasets.Audio(decode=False)`` returns; the bytes win), a dictionary with ``array`` and ``sampling_rate``,
            a decoder of torchcodec, or an array or tensor, which is taken to be at ``sample_rate``. Of a 2-D array the
            shorter axis is that of the channels. The path ``talk.flac#t=12.5,30`` selects the piece from 12.5 s to 30 s
            of ``talk.flac``, and only that is read.
        sample_rate: The rate of the result in hertz, 1000 to 1 000 000.

    Returns:
        The samples, of shape (samples,).

    Raises:
        NotFoundError: The file does not exist or cannot be read.
        CorruptFileError: The file is empty, truncated (where its header reports it: FLAC and MP3), in an unknown
            format, or holds samples that are not finite numbers.
        StorageError: The disk or the mount of the file does not answer.
        InvalidArgumentError: ``source`` is not audio, or ``sample_rate`` is out of its range.
        UnsupportedError: soundfile, or a library to resample with, is not installed.

    Example:
        >>> clip = load_audio(CLIPS / "test-000.mp3")
        >>> clip.dtype, clip.shape
        (dtype('float32'), (9390,))
    """
    return load_clip(source, sample_rate).samples


def load_clip(source: object, sample_rate: int = SAMPLING_RATE) -> Decoded:
    """Like ``load_audio``, and whether one channel was taken because the channels cancel each other."""
    check_rate(sample_rate)
    name = name_of(source)
    samples, rate, one_channel = decode_source(source, name, sample_rate)
    if not RATE_RANGE[0] <= rate <= RATE_RANGE[1]:
        raise CorruptFileError(f"{name} has the sampling rate {rate} Hz", "write it again, or leave it out")
    if not np.isfinite(samples).all():
        raise CorruptFileError(f"{name} holds samples that are not finite numbers", "write it again, or leave it out")
    clip: Array = resampled(samples, rate, sample_rate, name) if len(samples) else samples
    if not len(clip):
        raise CorruptFileError(f"{name} holds no audio", "leave it out: filter the dataset by its length")
    return Decoded(clip, sample_rate, one_channel)


def name_of(source: object) -> str:
    """What to call a clip in messages: its path, or what it is."""
    clip = StoredClip.of(source)
    if clip.kind == "bytes":
        return f"{clip.path} (bytes in the dataset)" if clip.path else f"an audio buffer of {len(clip.value)} bytes"
    if clip.path or clip.kind in ("path", "missing"):
        return clip.path or "an audio entry"
    return f"an array of shape {tuple(clip.value.shape)}" if is_array(clip.value) else kind_of(clip.value)


def decode_source(source: object, name: str, rate: int) -> Decoded:
    """The samples of a clip in mono at the rate at which it is stored; ``rate`` is that of arrays without one."""
    clip = StoredClip.of(source)
    match clip.kind:
        case "path":
            return decode_file(clip.path)
        case "bytes":
            return _decode(io.BytesIO(clip.value), name, split_range(clip.path, file=False)[1])
        case "decoder":  # of torchcodec, which datasets returns from version 4 on
            samples = clip.value.get_all_samples()
            return _array(samples.data, name, _stored_rate(samples.sample_rate, name))
        case "missing":
            raise InvalidArgumentError(f"{name} has neither bytes nor a path nor an array", _ACCEPTED)
    return _array(clip.value, name, rate if clip.rate is None else _stored_rate(clip.rate, name))


def _array(values: Any, name: str, rate: int) -> Decoded:
    """The samples of an array or tensor as mono float32; int16 and int32 are PCM samples of that width."""
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
    loudest = mix.channel_instead()
    return Decoded(mean, rate) if loudest is None else Decoded(Mix(loudest)(samples, axis), rate, True)


def _stored_rate(rate: object, name: str) -> int:
    """The rate in hertz that a clip in memory comes with, as a whole number."""
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.number) or not 0 < rate <= RATE_RANGE[1]:
        raise InvalidArgumentError(
            f"{name} has the sampling rate {rate!r}", f"it is {RATE_RANGE[0]} to {RATE_RANGE[1]} Hz"
        )
    return round(float(rate))
