"""The speed of the user's own DataLoader for workers × prefetching."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .._base.errors import InvalidArgumentError
from .._base.out_of_memory import first_line
from .benchmark_clips import ClipSample, picked
from .measurements import LoaderResult, Spread

_PASS_S = 1.0  # that a pass without workers lasts, about
_MOST_WORKERS = 8
_PREFETCH = (2, 4)


@dataclass(frozen=True)
class _Way:
    workers: int
    prefetch: int | None


@dataclass
class _Taken:
    passes_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    again_s: list[float] = field(default_factory=list)


def measure_loading(
    sample: ClipSample, collator: Any, batch: int, cores: float, *, planned: tuple[int, int | None], rounds: int,
    on_pass: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[LoaderResult, ...]:  # fmt: skip
    """Clips a second of each way, by passes over the same clips with workers that stay.

    ``batch`` is what the Trainer fetches at once, ``planned`` the plan's own workers and prefetching. Each round tries
    all options alternately, one pass to warm up and one that is measured; ``on_pass`` gets how many of how many are
    done. Raises ``InvalidArgumentError`` where a batch cannot be made.
    """
    ways = _ways(cores, planned)
    with _checking():
        clips, count = _measure(sample, collator, batch, 2 * max(way.workers for way in ways))
        taken: dict[_Way, _Taken] = defaultdict(_Taken)
        for number, way in enumerate(rounds * ways):
            _try(clips, collator, batch, way, taken[way])
            on_pass(number + 1, rounds * len(ways))
    audio = sum(sample.seconds[i % sample.clips] for i in range(count)) if sample.seconds is not None else None
    return tuple(_result(way, taken[way], count, audio) for way in ways)


def _ways(cores: float, planned: tuple[int, int | None]) -> list[_Way]:
    most = int(max(1, min(cores, _MOST_WORKERS)))
    counts = sorted({n for n in (1, 2, 4, 8) if n <= most} | {most})
    ways = [_Way(0, None), *(_Way(n, ahead) for n in counts for ahead in _PREFETCH)]
    own = _Way(planned[0], planned[1] or 2) if planned[0] else ways[0]
    return ways if own in ways else [*ways, own]


def _measure(sample: ClipSample, collator: Any, batch: int, fewest: int) -> tuple[Any, int]:
    """As many clips as one process loads in a second, whole batches, at least ``fewest`` of them."""
    began, batches = time.perf_counter(), 0
    for _ in _loader(sample.dataset, collator, batch, _Way(0, None)):
        batches += 1
        if time.perf_counter() - began > _PASS_S:
            break
    each = (time.perf_counter() - began) / max(1, batches)
    count = batch * max(fewest, min(batches, round(_PASS_S / each)))
    return picked(sample.dataset, [i % sample.clips for i in range(count)]), count


def _try(clips: Any, collator: Any, batch: int, way: _Way, taken: _Taken) -> None:
    loader = _loader(clips, collator, batch, way)
    for first in (True, False):
        began = time.perf_counter()
        batches = iter(loader)
        next(batches)
        (taken.start_s if first else taken.again_s).append(time.perf_counter() - began)
        for _ in batches:
            pass
        if not first:
            taken.passes_s.append(time.perf_counter() - began)
        del batches


def _loader(clips: Any, collator: Any, batch: int, way: _Way) -> Any:
    import torch
    from torch.utils.data import DataLoader

    options: dict[str, Any] = {"num_workers": way.workers, "pin_memory": torch.cuda.is_available()}
    if way.workers:
        options |= {"prefetch_factor": way.prefetch, "persistent_workers": True}
    return DataLoader(clips, batch_size=batch, collate_fn=collator, **options)


def _result(way: _Way, taken: _Taken, count: int, audio_s: float | None) -> LoaderResult:
    rates = Spread.over([count / seconds for seconds in taken.passes_s])
    audio = None if audio_s is None else Spread.of(audio_s / seconds for seconds in taken.passes_s)
    start_s, again_s = statistics.median(taken.start_s), statistics.median(taken.again_s)
    return LoaderResult(way.workers, way.prefetch, rates, audio, start_s, again_s)


def default_collator(collator: Any) -> Any:
    """The Trainer's own where none is given."""
    if collator is not None:
        return collator
    from transformers import default_data_collator

    return default_data_collator


@contextlib.contextmanager
def _checking() -> Iterator[None]:
    try:
        yield
    except InvalidArgumentError:
        raise
    except Exception as error:
        raise InvalidArgumentError(
            f"a batch could not be made: {type(error).__name__}: {first_line(error)}",
            "try collator([dataset[0], dataset[1]]): it must give the model's inputs",
        ) from error
