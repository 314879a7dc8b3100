"""The other readers of audio headers, each by its quickest call, in processes of their own."""

from __future__ import annotations

import logging
import multiprocessing
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any


def _soundfile(path: str) -> float:
    import soundfile

    info = soundfile.info(path)
    return float(info.frames / info.samplerate)


def _mutagen(path: str) -> float:
    import mutagen

    file = mutagen.File(path)
    if file is None:
        raise ValueError("not recognised")
    return float(file.info.length)


def _mutagen_typed(path: str) -> float:
    """Without looking at the file to find its type: quicker, for files whose names tell it."""
    return float(_mutagen_types()[Path(path).suffix](path).info.length)


def _mutagen_types() -> dict[str, Any]:
    if not _TYPES:
        from mutagen import flac, mp3, mp4, oggopus, oggvorbis, wave

        _TYPES.update({".wav": wave.WAVE, ".flac": flac.FLAC, ".mp3": mp3.MP3, ".ogg": oggvorbis.OggVorbis})
        _TYPES.update({".opus": oggopus.OggOpus, ".m4a": mp4.MP4})
    return _TYPES


_TYPES: dict[str, Any] = {}


def _tinytag(path: str) -> float:
    from tinytag import TinyTag

    seconds = TinyTag.get(path, tags=False).duration
    if seconds is None:
        raise ValueError("no duration")
    return float(seconds)


def _ffprobe(path: str) -> float:
    command = ["ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0", path]
    return float(subprocess.run(command, capture_output=True, timeout=20).stdout)


READERS: dict[str, Callable[[str], float]] = {
    "soundfile": _soundfile,
    "mutagen": _mutagen,
    "mutagen typed": _mutagen_typed,
    "tinytag": _tinytag,
    "ffprobe": _ffprobe,
}
TRUTH_PEERS = ("soundfile", "mutagen", "tinytag", "ffprobe")
LIMIT_S = 20.0
CRASHED, HUNG = "crashed", "took over 20 s"


def read(reader: str, path: str) -> float | str:
    """Seconds, or what went wrong."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    try:
        return READERS[reader](path)
    except Exception as error:
        return f"{type(error).__name__}: {error}".split("\n")[0][:120]


def total(job: tuple[str, list[str]]) -> tuple[float, int, float]:
    """The seconds of many files, how many could not be read, and the CPU time it took: work for a pool."""
    start = time.process_time()
    read_one, seconds, failed = READERS[job[0]], 0.0, 0
    for path in job[1]:
        try:
            seconds += read_one(path)
        except Exception:
            failed += 1
    return seconds, failed, time.process_time() - start


def read_each(reader: str, paths: Iterable[Path]) -> list[float | str]:
    """Every file by one reader in a process of its own, so that a crash or a hang costs one file."""
    answers: list[float | str] = []
    pool = None
    for path in paths:
        pool = pool or ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            answers.append(pool.submit(read, reader, str(path)).result(LIMIT_S))
        except BrokenProcessPool:
            answers.append(CRASHED)
            pool = None
        except TimeoutError:
            answers.append(HUNG)
            for process in list(pool._processes.values()):
                process.kill()
            pool = None
    if pool:
        pool.shutdown()
    return answers
