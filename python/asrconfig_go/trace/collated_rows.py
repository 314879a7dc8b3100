"""Rows of a dataset through the user's collator, which keeps no trace of it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from torch.utils import _pytree as pytree

from .._base.errors import AsrConfigError, InvalidArgumentError
from .._base.random_state import cpu_generators_kept, seed_cpu
from .._base.wrapped_model import bare
from .collated_sizes import Sizes, sizes_of
from .collator_copies import collator_copy

_HINT = "check that collator([dataset[0]]) gives the model's keyword arguments, or pass batch_fn(batch, length, labels)"


class CollatedRows:
    """``batch`` of any rows, and the sizes of each row alone.

    The collator is a copy and starts from the same random numbers each time; the generators are put back. Its errors
    are raised as ``InvalidArgumentError``.
    """

    def __init__(self, dataset: Any, collator: Any, model: Any) -> None:
        self._dataset, self._given, self._model = dataset, collator, model
        self._sizes: dict[int, Sizes] = {}

    def row(self, number: int) -> Any:
        """One row of the dataset."""
        with cpu_generators_kept():  # a dataset may augment
            seed_cpu(0)
            return self._dataset[number]

    def sizes(self, number: int) -> Sizes:
        """Of a batch of one row of the dataset."""
        if number not in self._sizes:
            self._sizes[number] = sizes_of(self.batch([self.row(number)]))
        return self._sizes[number]

    def batch(self, rows: list[Any]) -> dict[str, Any]:
        """What the collator makes of ``rows``."""
        with cpu_generators_kept():
            seed_cpu(0)
            try:
                batch = self._collator(rows)
            except AsrConfigError:
                raise
            except Exception as error:
                batch = self._without_unused(rows, error)
        made = dict(batch) if hasattr(batch, "keys") and hasattr(batch, "__getitem__") else {}
        if not any(getattr(value, "shape", None) for value in pytree.tree_leaves(made)):
            raise InvalidArgumentError(f"the collator gave a {type(batch).__name__} without tensors", _HINT)
        return made

    @cached_property
    def _collator(self) -> Any:
        return collator_copy(self._given)

    def _without_unused(self, rows: list[Any], error: Exception) -> Any:
        """As the Trainer collates where ``remove_unused_columns`` is left on."""
        if hasattr(self._model, "forward") and isinstance(rows[0], Mapping):
            taken = {*inspect.signature(bare(self._model).forward).parameters, "label", "label_ids"}
            with contextlib.suppress(Exception):  # the first error says more
                return self._collator([{name: row[name] for name in row if name in taken} for row in rows])
        raise InvalidArgumentError(
            f"the collator {type(self._given).__name__} fails: {type(error).__name__}: {error}", _HINT
        ) from error
