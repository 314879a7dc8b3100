"""Measures how fast one DataLoader worker prepares the user's own audio; rates of the last day are kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import sys
import time
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, TypedDict

from .._core.checks import in_range
from .._core.files import cache_folder, read_object, user_path, write_whole
from .._core.modules import versions
from .._core.output import first_of, shortened
from .._core.records import from_json, to_json
from .._core.settings import SAMPLING_RATE
from ..data.scan_result import DatasetProfile
from ..data.source import Source, open_source
from ..errors import AsrConfigError, EmptyDatasetError, InvalidArgumentError, NotFoundError
from .decoding import check_rate, find_resampler
from .loader_sources import Reading, loader_items

_FIRST = 0.6  # of the time for the first pass; the same clips are read again in the remaining time
_GROUPS = 10  # of clips, for the spread
_PATIENCE = 8  # bad clips, when time is up and there was no good one
_now = time.perf_counter
_MAX_AGE_S = 24 * 3600
_READERS = ("numpy", "soundfile", "soxr", "scipy", "datasets", "torchcodec", "transformers")


class LoaderNotMeasuredWarning(UserWarning):
    """Clips could not be decoded here to see how fast that is; the plan assumes a usual rate."""


@dataclass(frozen=True)
class CodecRate:
    """The rate at which clips of one codec were prepared.

    Attributes:
        codec: The name of the codec.
        clips: How many clips were read.
        audio_s: Their seconds.
        rate: Seconds of audio per second and worker.
    """

    codec: str
    clips: int
    audio_s: float
    rate: float


@dataclass(frozen=True, repr=False)
class LoaderRate:
    """How much audio one process prepared in a second, without collating and handing over to the trainer.

    JSON-able: ``dataclasses.asdict`` returns plain numbers and texts.

    Attributes:
        clips: Clips that were read in the first pass.
        audio_s: Their seconds.
        codecs: The rate of each codec, the most frequent one first.
        notes: Sentences on what was resampled, substituted or failed.
    """

    rate: float
    """Seconds of audio per second and worker, as the files were found: from disk, unless something read them before."""
    low: float
    high: float
    """The slowest and the fastest tenth of the clips in the order they were read."""
    warm_rate: float | None
    """The rate of reading the same clips again, from the page cache; None when there was no time for it."""
    clips: int
    bad: int
    """Clips that could not be read."""
    audio_s: float
    took_s: float
    """Seconds that the first pass took."""
    size_bytes: int
    """Bytes of the files as stored."""
    codecs: tuple[CodecRate, ...]
    resampled: int
    """Clips of another sampling rate than the model's."""
    how: str
    """What read them."""
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        warm = "" if self.warm_rate is None else f", read again {self.warm_rate:.0f}"
        mib = self.size_bytes / 2**20
        lines = [
            f"one worker prepares {self.rate:.0f} s of audio a second ({self.low:.0f} to {self.high:.0f}{warm})",
            f"  {self.clips} clips, {self.audio_s:.0f} s, {mib:.1f} MiB in {self.took_s:.2f} s by {self.how}",
            f"  {', '.join(f'{c.codec} {c.rate:.0f} ({c.clips})' for c in self.codecs)}; {self.resampled} resampled",
        ]
        bad = [f"  {self.bad} clips could not be read"] if self.bad else []
        return "\n".join([*lines, *bad, *(f"  note: {shortened(note)}" for note in first_of(self.notes))])


class LoaderSettings(TypedDict, total=False):
    """Keywords of ``measure_loader`` besides ``processor``."""

    seconds: float
    sampling_rate: int
    seed: int
    row_seconds: Callable[[object], float] | None


def measure_loader(
    dataset: object,
    *,
    seconds: float = 1.0,
    sampling_rate: int = SAMPLING_RATE,
    processor: object = None,
    seed: int = 0,
    row_seconds: Callable[[object], float] | None = None,
) -> LoaderRate | None:
    """Measure how many seconds of audio one DataLoader worker prepares in a second, on a random sample.

    Files are decoded by soundfile, rows of a ``datasets.Dataset`` by its own ``__getitem__``, transforms included (and
    by soundfile where datasets lacks torchcodec), and a dataset of your own by its ``__getitem__``. After a first pass
    the same clips are read again, from the page cache. At least one clip is read however long it takes, and of a file
    at most five minutes. One thread is used, as in a worker; random number generators are left as they are; bad files
    are counted. Nothing is downloaded.

    Args:
        dataset: What ``scan_audio`` takes, or its result, whose clips are not listed again.
        seconds: How long to measure, 0.05 to 60.
        sampling_rate: The model's rate in hertz. Clips of another one are resampled where soxr or scipy is installed.
        processor: A feature extractor, or what holds one, that makes the model's input unless the dataset has done so;
            None measures reading alone.
        seed: Draws the sample.
        row_seconds: A function from a row that holds a model's input to its seconds: nothing is then decoded. None for
            rows with audio.

    Returns:
        The rate; None for arrays in memory without a ``processor``, of which there is nothing to measure.

    Raises:
        NotFoundError: The dataset does not exist.
        UnsupportedError: The dataset is a stream, or soundfile is not installed.
        EmptyDatasetError: No clip can be read.
        InvalidArgumentError: The processor fails, or an option is out of its range.

    Example:
        >>> rate = measure_loader(CLIPS, seconds=0.05)
        >>> rate.how, rate.resampled
        ('soundfile', 0)
    """
    budget = in_range("seconds", seconds, 0.05, 60, "1.0 is enough")
    check_rate(sampling_rate, "sampling_rate")
    source = loader_items(open_source(dataset), sampling_rate=sampling_rate, seed=seed, row_seconds=row_seconds)
    if source.in_memory and processor is None:
        return None
    prepare = _Preparing(processor, sampling_rate)
    with _as_in_a_worker():
        _Pass(prepare).run(source.items(), _now(), limit=1)  # imports, and what is made when first used
        began = _now()
        first = _Pass(prepare).run(source.items(), began + _FIRST * budget)
        if not first.clips:
            raise EmptyDatasetError(
                f"none of {first.bad} {'clips' if row_seconds is None else 'rows'} could be read: {first.error}",
                f"they were read by {source.reader}; check them",
            )
        over_and_over = (read for _ in repeat(None) for read in source.items())
        again = _Pass(prepare).run(over_and_over, began + budget)
    notes = (*source.notes, *prepare.notes)
    return _rate_of(first, again, source.reader, (*notes, f"first error: {first.error}") if first.bad else notes)


class _Preparing:
    """What a worker does with a decoded clip."""

    def __init__(self, processor: Any, sampling_rate: int) -> None:
        self._make = getattr(processor, "feature_extractor", processor)
        self.sampling_rate = sampling_rate
        self.notes: tuple[str, ...] = ()

    @cached_property
    def _resampler(self) -> tuple[str, Any]:
        return find_resampler()

    def __call__(self, reading: Reading) -> None:
        """Make the model's input."""
        if reading.audio is None:
            return
        audio = reading.audio
        if reading.sampling_rate != self.sampling_rate:
            name, resample = self._resampler
            note = f"resampled by {name}" if name else "neither soxr nor scipy: resampling is not included"
            audio, self.notes = resample(audio, reading.sampling_rate, self.sampling_rate) if name else audio, (note,)
        if self._make is not None:
            try:
                self._make(audio, sampling_rate=self.sampling_rate)
            except Exception as error:
                raise InvalidArgumentError(
                    f"the processor {type(self._make).__name__} failed: {type(error).__name__}: {error}",
                    "pass a feature extractor that is called as processor(array, sampling_rate=…)",
                ) from error


class _Pass:
    def __init__(self, prepare: _Preparing) -> None:
        self.prepare = prepare
        self.clips: list[Reading] = []
        self.tried = self.bad = 0
        self.error = ""

    def run(self, items: Iterator[Callable[[], Reading]], until: float, limit: int | None = None) -> _Pass:
        for read in items:
            self.tried += 1
            began = _now()
            try:
                reading = read()
            except Exception as error:  # whatever a decoder or the dataset raises: the clip is bad
                self.bad += 1
                self.error = self.error or f"{type(error).__name__}: {str(error).strip()[:200]}"
            else:
                self.prepare(reading)
                self.clips.append(replace(reading, audio=None, took_s=_now() - began))
            late = _now() >= until and (self.clips or self.tried >= _PATIENCE)
            if late or self.tried == limit:
                break
        return self


def _rate_of(first: _Pass, again: _Pass, reader: str, notes: tuple[str, ...]) -> LoaderRate:
    clips = first.clips
    size = max(1, -(-len(clips) // _GROUPS))
    spread = [_rate(clips[at : at + size]) for at in range(0, len(clips), size)]
    codecs: Counter[str] = Counter(clip.codec for clip in clips)
    complete = again.clips and again.tried >= first.tried
    return LoaderRate(
        rate=_rate(clips), low=min(spread), high=max(spread),
        warm_rate=_rate(again.clips) if complete else None,
        clips=len(clips), bad=first.bad, audio_s=sum(clip.seconds for clip in clips),
        took_s=sum(clip.took_s for clip in clips), size_bytes=sum(clip.size_bytes for clip in clips),
        codecs=tuple(_of_codec(codec, clips) for codec, _ in codecs.most_common()),
        resampled=sum(clip.stored_rate != first.prepare.sampling_rate for clip in clips), how=reader, notes=notes,
    )  # fmt: skip


def _of_codec(codec: str, clips: list[Reading]) -> CodecRate:
    own = [clip for clip in clips if clip.codec == codec]
    return CodecRate(codec, len(own), sum(clip.seconds for clip in own), _rate(own))


def _rate(clips: list[Reading]) -> float:
    return sum(clip.seconds for clip in clips) / max(sum(clip.took_s for clip in clips), 1e-9)


@contextlib.contextmanager
def _as_in_a_worker() -> Iterator[None]:
    """Run with one thread of torch, and restore the state of the global random number generators."""
    torch: Any = sys.modules.get("torch")
    with contextlib.ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        if torch is not None:
            from .._core.random_state import cpu_generators_kept

            stack.enter_context(cpu_generators_kept())
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        yield


@dataclass(frozen=True)
class Measured:
    """The comparable things that a rate depends on: files by their path, lengths and sizes, the machine, settings."""

    source: Source
    profile: DatasetProfile | None
    durations: array[float]
    machine: object
    processor: object
    options: Mapping[str, object]

    def measure(self, remember: bool, options: LoaderSettings) -> LoaderRate | None:
        """The rate of the last day, if ``remember``, or else a new one; None, with a warning, where there is none."""
        try:
            rate = self.find() if remember else None
            if rate is None:
                rate = measure_loader(self.source, processor=self.processor, **options)
                if rate is not None:
                    self.store(rate)
        except NotFoundError:  # of the dataset itself
            raise
        except AsrConfigError as error:
            warnings.warn(f"the loader was not measured: {error.message}", LoaderNotMeasuredWarning, stacklevel=3)
            return None
        return rate

    def find(self) -> LoaderRate | None:
        """The rate that was measured in the last day, or None."""
        path = self._file
        try:
            if path is None or time.time() - path.stat().st_mtime > _MAX_AGE_S:
                return None
            return from_json(LoaderRate, read_object(path, "loader rate", ""))
        except (OSError, AsrConfigError):
            return None

    def store(self, rate: LoaderRate) -> None:
        """Keep a rate, and remove those that are too old. A folder that cannot be written changes nothing."""
        path = self._file
        if path is None:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(to_json(rate)).encode(), durable=False)
            for other in path.parent.iterdir():
                if time.time() - other.stat().st_mtime > _MAX_AGE_S:
                    other.unlink()

    @cached_property
    def _file(self) -> Path | None:
        where, identity = _place(self.source), _identity(self.processor)
        if where is None or identity is None or not self.durations:
            return None
        parts = [where, to_json(self.profile), to_json(self.machine), identity, self.options, versions(_READERS)]
        text = json.dumps(parts, sort_keys=True, default=str).encode()
        digest = hashlib.sha256(text + self.durations.tobytes()).hexdigest()[:32]
        return cache_folder("loader") / f"{digest}.json"


def _place(source: Source) -> str | None:
    """Identifies a path, and rows of the package datasets; None for other datasets, which may run code of their own."""
    if source.kind == "path":
        return str(user_path(source.data, "dataset").absolute())
    if source.kind == "dataset" and source.data.format["type"] != "custom":  # of a transform
        return f"{source.data._fingerprint} {source.data.format}"
    return None


def _identity(processor: object) -> str | list[str] | None:
    """Identifies a processor by its settings; None for one without ``to_json_string``."""
    if processor is None:
        return "none"
    extractor = getattr(processor, "feature_extractor", processor)
    to_json_string = getattr(extractor, "to_json_string", None)
    return None if to_json_string is None else [type(extractor).__qualname__, to_json_string()]
