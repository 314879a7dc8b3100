"""The batch of a training that needs the most memory, and the pre-flight that tries it before the first step."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .._core.batches import FRAMES_PER_SECOND, batch_size, like, pick, time_axis
from .._core.output import kind_of, logger
from .._core.render import box, exact, parameter_count, plural
from .._core.settings import SAMPLING_RATE
from .._core.training_session import override
from ..errors import InvalidArgumentError
from ..trace.made_up_batches import known_batches
from .probe import OptimizerStates, optimizer_states, untouched

if TYPE_CHECKING:
    from datasets import Dataset
    from torch import nn
    from transformers import Trainer

Batch = Mapping[str, Any]  # as a collator returns it
_INPUTS = ("input_values", "input_features")
_COLUMNS = ("length", "input_length")
_PADDING = -100
_HINT = "pass a batch with input_values or input_features, or leave seconds out"


def longest(
    batch: Batch, length: int | None = None, samples: int | None = None, *, model: nn.Module | None = None
) -> Batch:
    """``batch`` at the worst: its audio repeated or truncated to ``length`` values in time, its samples to ``samples``.

    Attention masks are all ones, rows of labels full, and as much longer as the audio is; with ``model``, within what
    its positions allow. The mel spectrograms of Whisper have one length, so that only labels and samples change. The
    batch itself stays as it is. Raises ``InvalidArgumentError`` where a length is asked for, and no input is known.
    """
    name = next((name for name in _INPUTS if name in batch), None)
    if length is not None and name is None:
        raise InvalidArgumentError(f"a batch of {sorted(batch)} has no known audio", _HINT)
    made = dict(batch)
    if name is not None:
        ratio = _stretch(made, name, length, model)
        most_labels = getattr(getattr(model, "config", None), "max_target_positions", None)
        for key in [key for key in made if "labels" in key and _is_table(made[key])]:
            made[key] = _full(made[key], max(1, math.ceil(made[key].shape[1] * ratio)), most_labels)
    stretched: Batch = like(batch, made)
    n = batch_size(batch)
    return stretched if samples in (None, n) else pick(stretched, [i % n for i in range(samples or n)])


def _stretch(made: dict[str, Any], name: str, length: int | None, model: nn.Module | None) -> float:
    """Stretch the audio and everything of its length to ``length``; returns the ratio of lengths."""
    before = made[name].shape[1]
    fixed = is_mel(made, model)
    after = before if fixed or length is None else length
    for key, value in made.items():
        if hasattr(value, "shape") and value.dim() > 1 and "labels" not in key:
            stretched = _tiled(value, after) if value.shape[1] == before and not fixed else value
            made[key] = torch.ones_like(stretched) if "attention_mask" in key else stretched
    return float(after / before)


def is_mel(batch: Batch, model: nn.Module | None = None) -> bool:
    """Whether the input is a spectrogram of fixed length, (samples, bins, frames), and not (samples, time, width)."""
    if "input_features" not in batch:
        return False
    batches = known_batches(model)
    return time_axis(batch, "input_features") == 2 if batches is None else batches.fixed_length is not None


def _tiled(value: torch.Tensor, length: int) -> torch.Tensor:
    times = -(-length // value.shape[1])
    return torch.cat([value] * times, dim=1)[:, :length].contiguous() if length != value.shape[1] else value


def _is_table(value: Any) -> bool:
    return hasattr(value, "shape") and value.dim() == 2 and value.shape[1] > 0 and not value.is_floating_point()


def _full(labels: torch.Tensor, width: int, limit: int | None) -> torch.Tensor:
    """Rows of ``width`` labels, at most ``limit``: each row's own repeated, of an empty one the fullest row's."""
    width = min(width, limit) if limit else width
    rows = [row[row != _PADDING] for row in labels]
    fullest = max(rows, key=len)
    if not len(fullest):
        return _tiled(labels, width)
    return torch.cat([_tiled((row if len(row) else fullest)[None], width) for row in rows])


def worst_batch(
    trainer: Trainer,
    size: int,
    seconds: float | None = None,
    batch: Batch | None = None,
    *,
    dataset: Dataset | None = None,
) -> tuple[Batch, str]:
    """``size`` samples as long as they come, from the trainer's own collator, and a note on how they were found.

    They are the longest by the dataset's column of lengths (``args.length_column_name``, ``length`` or
    ``input_length``), or else ``batch``, the first that was collated, or else the first samples. With ``seconds`` their
    audio is repeated or truncated to that. ``dataset`` replaces the training's. Raises ``InvalidArgumentError`` for a
    stream without ``batch``: taking one from it would lose its samples.
    """
    dataset = trainer.train_dataset if dataset is None else dataset
    column = _length_column(trainer, dataset)
    if column is not None:
        name, lengths = column
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])[:size]
        collated, note = _collate(trainer, dataset, order), f"the longest clips by the column {name!r}"
    elif batch is not None:
        collated, note = batch, "the first batch"
    else:
        count = min(size, _count(dataset))
        collated, note = _collate(trainer, dataset, list(range(count))), "the first clips"
    has_audio = any(name in collated for name in _INPUTS)
    if seconds is not None and has_audio:
        note += f", stretched to {seconds:g} s"
        rate = per_second(collated, trainer.model) or SAMPLING_RATE
        length = max(1, math.ceil(seconds * rate - 1e-6))
        return longest(collated, length, size, model=trainer.model), note
    note += "" if seconds is None else ", as they are: their input is not known"
    return longest(collated, None, size, model=trainer.model), note


def seconds_of(batch: Batch, model: nn.Module | None = None) -> float | None:
    """The duration of a collated batch's audio; None of an unknown input."""
    rate = per_second(batch, model)
    name = next((name for name in _INPUTS if name in batch), None)
    if name is None or rate is None:
        return None
    return float(batch[name].shape[2 if is_mel(batch, model) else 1] / rate)


def per_second(batch: Batch, model: nn.Module | None) -> float | None:
    """Values in time per second of audio: by the model, or else by the input's name."""
    batches = known_batches(model)
    if batches is not None:
        return float(batches.length_per_second)
    return SAMPLING_RATE if "input_values" in batch else FRAMES_PER_SECOND if "input_features" in batch else None


def _length_column(trainer: Trainer, dataset: Dataset) -> tuple[str, list[float]] | None:
    """The name and the values of a dataset's column of lengths; None without one, or of a stream."""
    names = getattr(dataset, "column_names", None)
    if not isinstance(names, list | tuple) or not hasattr(dataset, "__len__") or not len(dataset):
        return None
    for name in (getattr(trainer.args, "length_column_name", None), *_COLUMNS):
        if name in names:
            return str(name), [float(value) for value in dataset[name]]
    return None


def _count(dataset: Dataset) -> int:
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise InvalidArgumentError(
            f"{kind_of(dataset)} is a stream: a batch taken from it would be missing in the training",
            "pass batch=, one that was collated",
        )
    if not len(dataset):
        raise InvalidArgumentError("the dataset is empty", "pass at least one sample")
    return len(dataset)


def _collate(trainer: Trainer, dataset: Dataset, places: list[int]) -> Batch:
    collate: Callable[[list[Any]], Batch] = trainer._get_collator_with_removed_columns(trainer.data_collator)
    return collate([dataset[i] for i in places])


Rehearse = Callable[[str, Any], int | None]


@dataclass(frozen=True)
class Rehearsal:
    """One batch that was tried: ``samples`` of ``seconds`` seconds, None for an unknown input.

    ``source`` is how it was found, ``micro_batch`` how many samples at a time fitted; None when unknown.
    """

    place: str
    samples: int
    seconds: float | None
    source: str
    micro_batch: int | None


@dataclass(frozen=True, repr=False)
class PreflightReport:
    """The trials before the first step: the optimizer's states in bytes, the worst batches, and what was skipped.

    ``seconds`` is the time that they took.
    """

    optimizer: OptimizerStates
    rehearsals: tuple[Rehearsal, ...]
    notes: tuple[str, ...]
    seconds: float

    def __repr__(self) -> str:
        states = self.optimizer
        lines = [
            f"pre-flight in {self.seconds:.1f} s: {states.optimizer} with {exact(states.bytes)} of states for "
            f"{parameter_count(states.parameters)} trainable parameters"
        ]
        lines += [f"  {_rehearsal_text(r)}" for r in self.rehearsals]
        return "\n".join([*lines, *(f"  ! {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return box("Pre-flight", repr(self))


def _rehearsal_text(r: Rehearsal) -> str:
    length = "" if r.seconds is None else f" of {r.seconds:.3g} s"
    fits = "fits, whole or in pieces"
    if r.micro_batch is not None:
        fits = f"fits in micro-batches of {r.micro_batch}" if r.micro_batch < r.samples else "fits"
    return f"{r.place}: {plural(r.samples, 'sample')}{length} ({r.source}): {fits}"


def preflight(trainer: Trainer, rehearse: Rehearse, seconds: float | None = None) -> PreflightReport:
    """Allocate the optimizer's states, and with them try the worst batches of training and evaluation.

    ``rehearse(place, batch)`` computes a batch as a step of ``"training"`` or ``"evaluation"`` does, in pieces as large
    as fit; it may return their size. Batches are the longest clips by the dataset's column of lengths, or else the
    first clips, stretched to ``seconds`` if that is given. Everything is as before afterwards. Raises
    ``InfeasiblePlanError`` when the optimizer's states do not fit, and what ``rehearse`` raises.
    """
    began, rehearsals, notes = time.perf_counter(), list[Rehearsal](), list[str]()
    with untouched(trainer.model), _in_a_window(trainer), optimizer_states(trainer.optimizer) as states:
        if states.note:
            notes.append(f"{states.optimizer}: {states.note}")
        for place, size, dataset in _places(trainer):
            try:
                worst, source = worst_batch(trainer, size, seconds, dataset=dataset)
            except InvalidArgumentError as error:
                notes.append(f"{place} was not tried: {error.message}")
                continue
            samples, length_s = batch_size(worst), seconds_of(worst, trainer.model)
            rehearsals.append(Rehearsal(place, samples, length_s, source, rehearse(place, worst)))
            del worst
    report = PreflightReport(states, tuple(rehearsals), tuple(notes), time.perf_counter() - began)
    logger.info("%s", report)
    return report


@contextlib.contextmanager
def _in_a_window(trainer: Trainer) -> Iterator[None]:
    """Sets how many micro-batches the Trainer divides by, which it does only once it has fetched some."""
    name = "current_gradient_accumulation_steps"
    with contextlib.ExitStack() as stack:
        if name not in vars(trainer):
            stack.callback(override(trainer, name, trainer.args.gradient_accumulation_steps))
        yield


def _places(trainer: Trainer) -> Iterator[tuple[str, int, Any]]:
    yield "training", trainer.args.train_batch_size, trainer.train_dataset
    evaluated = trainer.eval_dataset
    several = evaluated.values() if isinstance(evaluated, dict) else [] if evaluated is None else [evaluated]
    for dataset in several:
        yield "evaluation", trainer.args.eval_batch_size, dataset
