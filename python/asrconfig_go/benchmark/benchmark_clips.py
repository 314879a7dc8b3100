"""The clips that every block trains on: the same for both sides, drawn by a seed."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._base.defaults import SAMPLING_RATE
from .._base.errors import AsrConfigError, EmptyDatasetError, InvalidArgumentError
from ..config import TrainingConfig
from ..data.scan import scan_audio

_LOOKED_AT = 200  # rows


@dataclass(frozen=True)
class ClipSample:
    """``steps`` optimizer steps of ``effective_batch`` clips; ``seconds`` of each, where durations are known."""

    dataset: Any
    steps: int
    effective_batch: int
    population: int
    """Usable clips of the whole dataset."""
    seconds: array[float] | None

    @property
    def clips(self) -> int:
        """In all steps."""
        return self.steps * self.effective_batch

    @property
    def audio_s(self) -> float | None:
        """Seconds of audio of all steps, without padding."""
        return None if self.seconds is None else math.fsum(self.seconds)

    @property
    def longest_s(self) -> float | None:
        """Seconds of the longest clip."""
        return None if self.seconds is None else max(self.seconds)


def checked_dataset(dataset: Any) -> None:
    """Raise ``InvalidArgumentError`` for what cannot be drawn from, ``EmptyDatasetError`` without clips."""
    if isinstance(dataset, str | bytes | dict) or not hasattr(dataset, "__getitem__"):
        raise InvalidArgumentError(
            f"cannot draw clips from a {type(dataset).__name__}",
            "pass the Trainer's training set: a datasets.Dataset, a torch Dataset with a length, or a list of rows",
        )
    if not hasattr(dataset, "__len__"):
        raise InvalidArgumentError("the dataset has no length", "load it without streaming, or take a part of it")
    if len(dataset) == 0:
        raise EmptyDatasetError("the dataset has no clips", "check what was filtered out of it")


def rows_of_arrays(dataset: Any) -> list[Any] | None:
    """The arrays of some rows that are a model's ``input_values`` already; None of rows with audio."""
    if hasattr(dataset, "column_names"):
        return None  # of the library datasets, whose columns are looked at as they are
    rows = [dataset[i] for i in range(min(len(dataset), _LOOKED_AT))]
    if not all(isinstance(row, Mapping) and "input_values" in row for row in rows):
        return None
    return [row["input_values"] for row in rows]


def durations_of(dataset: Any, measured: Sequence[float] | None = None) -> array[float] | None:
    """Seconds of every clip, from ``known`` or from the headers; None of what has no audio to measure."""
    if measured is not None and len(measured) == len(dataset):
        return array("d", measured)
    try:
        durations = scan_audio(dataset, progress=False, allow_empty=True).durations
    except AsrConfigError:  # rows of features or a custom dataset: lengths then come from the batches
        return None
    return durations if len(durations) == len(dataset) and not all(map(math.isnan, durations)) else None


def draw(
    dataset: Any, durations: array[float] | None, steps: int, effective_batch: int, longest_s: float | None, seed: int
) -> ClipSample:
    """Choose clips at random, none twice unless there are too few; bad ones and those over ``longest_s`` are out."""
    limit = math.inf if longest_s is None else longest_s
    usable = list(range(len(dataset)))
    if durations is not None:
        usable = [i for i in usable if durations[i] <= limit]  # not a number is not
    if not usable:
        raise EmptyDatasetError(
            f"none of {len(dataset)} clips can be trained on", "check that they can be read, and max_length_s"
        )
    order = random.Random(seed)
    wanted, chosen = steps * effective_batch, list[int]()
    while len(chosen) < wanted:
        chosen += order.sample(usable, min(len(usable), wanted - len(chosen)))
    seconds = None if durations is None else array("d", (durations[i] for i in chosen))
    return ClipSample(picked(dataset, chosen), steps, effective_batch, len(usable), seconds)


def picked(dataset: Any, chosen: list[int]) -> Any:
    """Those rows, as the kind of dataset that the Trainer knows."""
    if hasattr(dataset, "select") and hasattr(dataset, "column_names"):
        return dataset.select(chosen)
    from torch.utils.data import Subset

    return Subset(dataset, chosen)


def with_lengths(sample: ClipSample, plan: TrainingConfig | None) -> Any:
    """The rows with the column that the Trainer groups by, for plans that want it."""
    rows = sample.dataset
    grouped = plan is not None and (plan.length_handling == "grouped" or plan.group_by_length)
    if not grouped or sample.seconds is None or not hasattr(rows, "column_names") or "length" in rows.column_names:
        return rows
    return rows.add_column("length", [round(SAMPLING_RATE * s) for s in sample.seconds])
