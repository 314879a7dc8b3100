"""The clips that every block trains on, and the speed of the user's own DataLoader with them."""

from __future__ import annotations

import math
import random
import statistics
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._core.out_of_memory import first_line
from .._core.output import kind_of
from ..config import TrainingConfig
from ..data.scan import scan_audio
from ..data.scan_result import clips_by_use, lengths_of
from ..data.source import open_source
from ..errors import AsrConfigError, EmptyDatasetError, InvalidArgumentError
from .measurements import LoaderResult, Spread

if TYPE_CHECKING:
    from datasets import Dataset
    from torch.utils.data import DataLoader
    from transformers import DataCollator

_LOOKED_AT = 200  # rows


@dataclass(frozen=True)
class ClipSample:
    """``steps`` optimizer steps of ``effective_batch`` clips; ``seconds`` of each, where durations are known."""

    dataset: Dataset
    steps: int
    effective_batch: int
    population: int
    """Usable clips of the whole dataset."""
    seconds: array[float] | None

    @property
    def clips(self) -> int:
        """Clips of all steps."""
        return self.steps * self.effective_batch

    @property
    def audio_s(self) -> float | None:
        """Seconds of audio of all steps, without padding."""
        return None if self.seconds is None else math.fsum(self.seconds)

    @property
    def longest_s(self) -> float | None:
        """Seconds of the longest clip."""
        return None if self.seconds is None else max(self.seconds)


def checked_dataset(dataset: object) -> None:
    """Raise ``InvalidArgumentError`` for what cannot be drawn from, ``EmptyDatasetError`` without clips."""
    source = open_source(dataset)
    if source.kind == "stream":
        raise InvalidArgumentError("the dataset has no length", "load it without streaming, or take a part of it")
    if not source.has_rows:
        raise InvalidArgumentError(
            f"cannot draw clips from {kind_of(dataset)}",
            "pass the Trainer's training set: a datasets.Dataset, a torch Dataset with a length, or a list of rows",
        )
    if not source.length:
        raise EmptyDatasetError("the dataset has no clips", "check what was filtered out of it")


def rows_of_arrays(dataset: Dataset) -> list[Any] | None:
    """The arrays of some rows that are a model's ``input_values`` already; None of rows with audio."""
    if open_source(dataset).kind == "dataset":
        return None  # of the library datasets, whose columns are looked at as they are
    rows = [dataset[i] for i in range(min(len(dataset), _LOOKED_AT))]
    if not all(isinstance(row, Mapping) and "input_values" in row for row in rows):
        return None
    return [row["input_values"] for row in rows]


def durations_of(dataset: Dataset, measured: Sequence[float] | None = None) -> array[float] | None:
    """Seconds of every clip, from ``measured`` or from the headers; None of what has no audio to measure."""
    if measured is not None and len(measured) == len(dataset):
        return array("d", measured)
    try:
        durations = scan_audio(dataset, progress=False, allow_empty=True).durations
    except AsrConfigError:  # rows of features or a custom dataset: lengths then come from the batches
        return None
    return durations if len(durations) == len(dataset) and not all(map(math.isnan, durations)) else None


def draw(
    dataset: Dataset,
    durations: array[float] | None,
    steps: int,
    effective_batch: int,
    longest_s: float | None,
    seed: int,
) -> ClipSample:
    """Choose clips at random, none twice unless there are too few; bad ones and those over ``longest_s`` are out."""
    usable = list(range(len(dataset)) if durations is None else clips_by_use(durations, longest_s)[0])
    if not usable:
        raise EmptyDatasetError(
            f"none of {len(dataset)} clips can be trained on", "check that they can be read, and max_length_s"
        )
    order = random.Random(seed)
    wanted, chosen = steps * effective_batch, list[int]()
    while len(chosen) < wanted:
        chosen += order.sample(usable, min(len(usable), wanted - len(chosen)))
    seconds = None if durations is None else array("d", (durations[i] for i in chosen))
    return ClipSample(open_source(dataset).select(chosen), steps, effective_batch, len(usable), seconds)


def with_lengths(sample: ClipSample, plan: TrainingConfig | None) -> Any:
    """The rows with the column that the Trainer groups by, for plans that want it."""
    rows, source = sample.dataset, open_source(sample.dataset)
    grouped = plan is not None and (plan.length_handling == "grouped" or plan.group_by_length)
    if not grouped or sample.seconds is None or source.kind != "dataset" or "length" in source.columns:
        return rows
    return rows.add_column("length", lengths_of(sample.seconds))


_PASS_S = 1.0  # that a pass without workers lasts, about
_MAX_WORKERS = 8
_PREFETCH = (2, 4)


@dataclass(frozen=True)
class _LoaderSetting:
    workers: int
    prefetch: int | None


@dataclass
class _Timing:
    passes_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    again_s: list[float] = field(default_factory=list)


def measure_loading(
    sample: ClipSample, collator: DataCollator, batch: int, cores: float, *, planned: tuple[int, int | None],
    rounds: int, on_pass: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[LoaderResult, ...]:  # fmt: skip
    """Clips a second of each setting, by passes over the same clips with workers that stay.

    ``batch`` is what the Trainer fetches at once, ``planned`` the plan's own workers and prefetching. Each round tries
    all options alternately, one pass to warm up and one that is measured; ``on_pass`` gets how many of how many are
    done. Raises ``InvalidArgumentError`` where a batch cannot be made.
    """
    settings = _settings(cores, planned)
    try:
        clips, count = _measure(sample, collator, batch, 2 * max(setting.workers for setting in settings))
        timings: dict[_LoaderSetting, _Timing] = defaultdict(_Timing)
        for number, setting in enumerate(rounds * settings):
            _try(clips, collator, batch, setting, timings[setting])
            on_pass(number + 1, rounds * len(settings))
    except InvalidArgumentError:
        raise
    except Exception as error:
        raise InvalidArgumentError(
            f"a batch could not be made: {type(error).__name__}: {first_line(error)}",
            "try collator([dataset[0], dataset[1]]): it must return the model's inputs",
        ) from error
    audio = sum(sample.seconds[i % sample.clips] for i in range(count)) if sample.seconds is not None else None
    return tuple(_result(setting, timings[setting], count, audio) for setting in settings)


def _settings(cores: float, planned: tuple[int, int | None]) -> list[_LoaderSetting]:
    limit = int(max(1, min(cores, _MAX_WORKERS)))
    counts = sorted({n for n in (1, 2, 4, 8) if n <= limit} | {limit})
    settings = [_LoaderSetting(0, None), *(_LoaderSetting(n, ahead) for n in counts for ahead in _PREFETCH)]
    own = _LoaderSetting(planned[0], planned[1] or 2) if planned[0] else settings[0]
    return settings if own in settings else [*settings, own]


def _measure(sample: ClipSample, collator: DataCollator, batch: int, fewest: int) -> tuple[Dataset, int]:
    """As many whole batches as one process loads in a second, at least ``fewest``; returns them, and how many."""
    began, batches = time.perf_counter(), 0
    for _ in _loader(sample.dataset, collator, batch, _LoaderSetting(0, None)):
        batches += 1
        if time.perf_counter() - began > _PASS_S:
            break
    batch_s = (time.perf_counter() - began) / max(1, batches)
    count = batch * max(fewest, min(batches, round(_PASS_S / batch_s)))
    return open_source(sample.dataset).select([i % sample.clips for i in range(count)]), count


def _try(clips: Dataset, collator: DataCollator, batch: int, setting: _LoaderSetting, timing: _Timing) -> None:
    loader = _loader(clips, collator, batch, setting)
    for first in (True, False):
        began = time.perf_counter()
        batches = iter(loader)
        next(batches)
        (timing.start_s if first else timing.again_s).append(time.perf_counter() - began)
        for _ in batches:
            pass
        if not first:
            timing.passes_s.append(time.perf_counter() - began)
        del batches


def _loader(clips: Dataset, collator: DataCollator, batch: int, setting: _LoaderSetting) -> DataLoader:
    import torch
    from torch.utils.data import DataLoader

    options: dict[str, Any] = {"num_workers": setting.workers, "pin_memory": torch.cuda.is_available()}
    if setting.workers:
        options |= {"prefetch_factor": setting.prefetch, "persistent_workers": True}
    return DataLoader(clips, batch_size=batch, collate_fn=collator, **options)


def _result(setting: _LoaderSetting, timing: _Timing, count: int, audio_s: float | None) -> LoaderResult:
    rates = Spread.over([count / seconds for seconds in timing.passes_s])
    audio = None if audio_s is None else Spread.of(audio_s / seconds for seconds in timing.passes_s)
    start_s, again_s = statistics.median(timing.start_s), statistics.median(timing.again_s)
    return LoaderResult(setting.workers, setting.prefetch, rates, audio, start_s, again_s)
