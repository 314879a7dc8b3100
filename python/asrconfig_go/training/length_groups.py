"""A Trainer that groups clips by length, of a dataset without a column of lengths."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from typing import Any

from .._base.defaults import SAMPLING_RATE
from .._base.errors import InvalidArgumentError
from .._base.override import override
from ..plan.plan_record import PlanRecord
from .planned_batches import known_seconds

_KEY = "_asrconfig_length_groups"
_BY_LENGTH = ("group_by_length", "batch_rebalance")


def group_by_durations(trainer: Any, config: PlanRecord | None, durations: array[float]) -> Callable[[], None]:
    """Let ``trainer`` group clips by the ``durations`` that were measured, where its dataset has no column of lengths.

    By itself it would decode every clip to find their lengths, or fail, as it does with a column of a dataset with a
    transform. The groups are those of a column that ``add_durations`` makes. Evaluation keeps the dataset's order
    without one. Nothing is looked at before the Trainer makes its samplers; where the lengths are not known then,
    ``InvalidArgumentError`` is raised. Returns the function that undoes it.
    """
    if _KEY in trainer.__dict__:
        return lambda: None
    train, evaluate = trainer._get_train_sampler, trainer._get_eval_sampler

    def get_train_sampler(*args: Any) -> Any:
        dataset = args[0] if args else trainer.train_dataset
        if not _groups(trainer.args) or not hasattr(dataset, "__len__"):
            return train(*args)
        # The Trainer may have removed the column from what it loads, as the model does not take it.
        lengths = _column(trainer, trainer.train_dataset) or _measured(len(dataset), config, durations)
        if lengths is not None:
            return _by_lengths(trainer, lengths, lambda column: train(*(column for _ in args)))
        try:
            return train(*args)
        except ValueError as error:
            column, rows = trainer.args.length_column_name, len(durations)
            counts = f"were measured of {rows} rows, not of these {len(dataset)}"
            raise InvalidArgumentError(
                f"rows cannot be grouped by length: the training set has no column {column!r}, and durations "
                + (counts if rows else "of all rows were not measured"),
                f"dataset = asrconfig_go.add_durations(dataset, {column!r}), or plan from the whole training set",
            ) from error

    def get_eval_sampler(dataset: Any) -> Any:
        if not _groups(trainer.args) or not hasattr(dataset, "__len__"):
            return evaluate(dataset)
        if (lengths := _column(trainer, dataset)) is not None:
            return _by_lengths(trainer, lengths, evaluate)
        names = getattr(getattr(trainer, "processing_class", None), "model_input_names", None) or ("input_ids",)
        if names[0] in (getattr(dataset, "column_names", None) or ()):  # the Trainer takes the lengths of that column
            return evaluate(dataset)
        name, value = _setting(trainer.args)
        undo = override(trainer.args, name, False if value is True else "random")
        try:
            return evaluate(dataset)
        finally:
            undo()

    back = [
        override(trainer, "_get_train_sampler", get_train_sampler),
        override(trainer, "_get_eval_sampler", get_eval_sampler),
        override(trainer, _KEY, True),
    ]

    def leave() -> None:
        for undo in back:
            undo()

    return leave


def _setting(args: Any) -> tuple[str, Any]:
    """The argument that makes a Trainer group by length, and its value; its name depends on transformers' version."""
    for name in ("train_sampling_strategy", "group_by_length"):
        if hasattr(args, name):
            return name, getattr(args, name)
    return "", None


def _groups(args: Any) -> bool:
    value = _setting(args)[1]
    return value is True or value in _BY_LENGTH


def _column(trainer: Any, dataset: Any) -> list[Any] | None:
    """The dataset's column of lengths, past a transform that would make whole rows; None without one."""
    name = trainer.args.length_column_name
    if name not in (getattr(dataset, "column_names", None) or ()) or not hasattr(dataset, "with_format"):
        return None
    return list(dataset.with_format(None)[name][:])


def _measured(clips: int, config: PlanRecord | None, durations: array[float]) -> list[int] | None:
    """The measured lengths as ``add_durations`` writes them; None unless they are of this training set."""
    readable = array("d", (0.0 if math.isnan(s) else s for s in durations))
    seconds = known_seconds(clips, config, readable)
    return None if seconds is None else [round(s * SAMPLING_RATE) for s in seconds]


def _by_lengths(trainer: Any, lengths: list[Any], make: Callable[[Any], Any]) -> Any:
    """The Trainer's own sampler, made with a dataset of the lengths alone."""
    from datasets import Dataset

    column = Dataset.from_dict({trainer.args.length_column_name: lengths})
    undo = override(trainer, "train_dataset", column)  # which older versions take instead of what they are passed
    try:
        sampler = make(column)
    finally:
        undo()
    if hasattr(sampler, "lengths"):
        sampler.lengths = lengths  # a column is read row by row, which takes long
    return sampler
