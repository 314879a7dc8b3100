"""Audio files by soundfile, with errors that name the file."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.errors import CorruptFileError, NotFoundError, UnsupportedError
from .._base.files import user_path
from .._base.storage import from_storage, read_through
from .channels import Decoded, Mix
from .clip_ranges import split_range

if TYPE_CHECKING:
    from .padded_clips import Array

_BLOCK = 1 << 23  # frames read at once, so that a header that claims days of audio reserves no memory
_CUT_OFF = 0.98  # of the frames that the header claims; lossy formats may miss a few at the ends
# Seconds decoded before a piece, by codec: an Opus decoder converges to its output from the beginning in that time.
_LEAD_S = {"OPUS": 5.0}


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


def _go_to(opened: Any, part: tuple[float, float]) -> int:
    """Seek to where ``part`` in seconds starts, and return its length in frames."""
    start, end = (min(round(s * opened.samplerate), opened.frames) for s in part)
    lead = min(start, round(_LEAD_S.get(opened.subtype, 0.0) * opened.samplerate))
    opened.seek(start - lead)
    if lead:
        opened.read(lead, dtype="float32")
    return int(end - start)


def _mono_frames(opened: Any, frames: int, mix: Mix) -> Array:
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
