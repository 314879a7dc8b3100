"""The speed of the user's own DataLoader for workers × prefetching."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._base.errors import InvalidArgumentError
from .._base.out_of_memory import first_line
from .benchmark_clips import ClipSample, picked
from .measurements import LoaderResult, Spread

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
    sample: ClipSample, collator: Any, batch: int, cores: float, *, planned: tuple[int, int | None], rounds: int,
    on_pass: Callable[[int, int], None] = lambda done, total: None,
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


def _measure(sample: ClipSample, collator: Any, batch: int, fewest: int) -> tuple[Any, int]:
    """As many clips as one process loads in a second, whole batches, at least ``fewest`` of them."""
    began, batches = time.perf_counter(), 0
    for _ in _loader(sample.dataset, collator, batch, _LoaderSetting(0, None)):
        batches += 1
        if time.perf_counter() - began > _PASS_S:
            break
    batch_s = (time.perf_counter() - began) / max(1, batches)
    count = batch * max(fewest, min(batches, round(_PASS_S / batch_s)))
    return picked(sample.dataset, [i % sample.clips for i in range(count)]), count


def _try(clips: Any, collator: Any, batch: int, setting: _LoaderSetting, timing: _Timing) -> None:
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


def _loader(clips: Any, collator: Any, batch: int, setting: _LoaderSetting) -> Any:
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
