"""Batches of a user's own collator, from a few examples, cut or repeated to the size that a trace asks for."""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from .._base.defaults import SAMPLING_RATE
from .._base.errors import AsrConfigError, InvalidArgumentError
from .._base.input_units import FRAMES_PER_SECOND, INPUTS, TOKENS_PER_SECOND, InputUnit
from .collated_sizes import Example, Key, input_key, line_through, picked, sizes_of, stretched, word_of
from .made_up_batches import SpeechBatches, speech_batches
from .text_batches import positions

_DRAWN = 128  # examples that are collated, each alone
_BASE = 4  # the longest, which every batch is made of
_WAVE = 4000  # a longer input holds samples, not frames of a spectrogram
_OFF = 2  # positions by which a size may miss the line through the shortest and the longest example
_HINT = "check that collator([dataset[0]]) gives the model's keyword arguments, or pass batch_fn(batch, length, labels)"


@dataclass(frozen=True)
class CollatedExamples:
    """Some rows of ``dataset``, drawn with ``seed``, as ``collator`` makes them the input of ``model``.

    Nothing is read before the first question. Errors of the collator are raised as ``InvalidArgumentError``.
    """

    dataset: Any
    collator: Callable[[list[Any]], Any]
    model: Any = None
    seed: int = 0
    _bases: dict[int, dict[str, Any]] = field(default_factory=dict, repr=False)

    @cached_property
    def unit(self) -> InputUnit:
        """What the lengths of the input count."""
        name, _ = self._input
        fixed = self._longest.length if self._longest.length == self._shortest.length else None
        known = self._known
        if known is not None:
            return InputUnit(
                word_of(name, known.length_per_second), known.length_per_second, known.fixed_length or fixed
            )
        if name == "input_ids":
            return InputUnit("tokens", TOKENS_PER_SECOND, fixed)
        axes = [axis for entry, axis in self._longest.sizes if entry == name]
        wave = max(axes, default=1) == 1 or self._longest.length >= _WAVE
        rate = SAMPLING_RATE if wave else FRAMES_PER_SECOND
        return InputUnit(word_of(name, rate), rate, fixed)

    def lengths(self) -> list[tuple[int, int]]:
        """The drawn rows and the length of each."""
        return [(each.row, each.length) for each in self._examples]

    def length(self, row: Any) -> int:
        """The length of one more row."""
        return sizes_of(self._collate([row])).get(self._input, 1)

    def batches(self, seconds: Sequence[float] = ()) -> SpeechBatches:
        """How to feed the model; with the ``seconds`` of every row's audio, lengths are reckoned from those."""
        unit = self.unit
        rate, fixed = unit.per_second, unit.fixed
        if len(seconds) == len(self.dataset) and fixed is None:
            measured = sum(e.length for e in self._examples) / sum(seconds[e.row] for e in self._examples)
            rate = rate if abs(measured / rate - 1) < 0.02 else measured
        widths = [(e.sizes[self._text], e.length / rate) for e in self._examples] if self._text else []
        usual = sum(n for n, _ in widths) / sum(s for _, s in widths) if widths else None
        longest = self._known.max_length if self._known is not None else positions(self.model)
        return SpeechBatches(
            self._batch, rate, fixed, longest,
            max_labels=self._known.max_labels if self._known is not None else None,
            by_length=self._input[0] in INPUTS,
            **({} if not usual else {"labels_per_second": usual}),
        )  # fmt: skip

    def _batch(self, batch: int, length: int, labels: int) -> dict[str, torch.Tensor]:
        count = min(batch, _BASE, len(self._examples))
        if count not in self._bases:
            self._bases[count] = self._collate([self.dataset[e.row] for e in self._padded[:count]])
        rows = [i % count for i in range(batch)]
        base = self._bases[count]
        return {name: self._resized(name, picked(value, rows, count), length, labels) for name, value in base.items()}

    def _resized(self, name: str, value: Any, length: int, labels: int) -> Any:
        if not isinstance(value, torch.Tensor) or not value.dim():
            return value
        for axis in range(value.dim()):
            size = self._size((name, axis), length, labels)
            if size is None:
                continue
            if axis == 0:
                value = (value * (size / max(1, int(value.max())))).round().clamp(min=1).to(value.dtype)
            elif value.shape[axis] != size:
                value = stretched(value, axis, max(1, size))
        return value

    def _size(self, key: Key, length: int, labels: int) -> int | None:
        """How large an axis is in a batch of this length; None where that does not depend on it."""
        if key == self._input:
            return length
        if key in self._texts:
            return labels
        line = self._lines.get(key)
        return None if line is None else max(1, round(line(length)))

    @cached_property
    def _lines(self) -> dict[Key, Callable[[float], float]]:
        """The axes that grow with the input."""
        found = {key: line_through(key, self._shortest, self._longest) for key in self._varying if key != self._input}
        return {key: line for key, line in found.items() if self._follows(key, line)}

    def _follows(self, key: Key, line: Callable[[float], float]) -> bool:
        """Whether an axis is as long as the input tells; of labels only where it is just as long."""
        if "label" in key[0] or "decoder" in key[0]:
            return all(e.sizes[key] == e.length for e in self._examples)
        return all(abs(line(e.length) - e.sizes[key]) <= _OFF for e in self._examples)

    @cached_property
    def _texts(self) -> set[Key]:
        """The axes that change with something else than the input: the labels."""
        return {key for key in self._varying if key != self._input and key not in self._lines}

    @property
    def _text(self) -> Key | None:
        return min(self._texts, default=None)

    @cached_property
    def _varying(self) -> list[Key]:
        return [key for key in self._longest.sizes if len({e.sizes.get(key) for e in self._examples}) > 1]

    @cached_property
    def _known(self) -> SpeechBatches | None:
        try:
            return speech_batches(self.model)
        except AsrConfigError:
            return None

    @property
    def _by_length(self) -> list[Example]:
        return sorted(self._examples, key=lambda e: e.length)

    @property
    def _padded(self) -> list[Example]:
        """The longest, then shorter ones: few batches need no mask, and attention without takes less."""
        first, rest = self._longest, self._by_length[-2::-1]
        return [first, *(e for e in rest if e.length < first.length), *(e for e in rest if e.length == first.length)]

    @property
    def _shortest(self) -> Example:
        return self._by_length[0]

    @property
    def _longest(self) -> Example:
        return self._by_length[-1]

    @cached_property
    def _input(self) -> Key:
        return input_key(self._sized)

    @cached_property
    def _examples(self) -> list[Example]:
        return [Example(row, sizes, sizes.get(self._input, 1)) for row, sizes in self._sized.items()]

    @cached_property
    def _sized(self) -> dict[int, dict[Key, int]]:
        count = len(self.dataset)
        rows = sorted(random.Random(self.seed).sample(range(count), min(_DRAWN, count)))
        return {row: sizes_of(self._collate([self.dataset[row]])) for row in rows}

    def _collate(self, rows: list[Any]) -> dict[str, Any]:
        try:
            batch = self.collator(rows)
        except Exception as error:
            batch = self._without_unused(rows, error)
        if not isinstance(batch, Mapping) or not any(isinstance(value, torch.Tensor) for value in batch.values()):
            raise InvalidArgumentError(f"the collator gave a {type(batch).__name__} without tensors", _HINT)
        return dict(batch)

    def _without_unused(self, rows: list[Any], error: Exception) -> Any:
        """As the Trainer collates where ``remove_unused_columns`` is left on."""
        if hasattr(self.model, "forward") and isinstance(rows[0], Mapping):
            taken = {*inspect.signature(self.model.forward).parameters, "label", "label_ids"}
            with contextlib.suppress(Exception):  # the first error says more
                return self.collator([{name: row[name] for name in row if name in taken} for row in rows])
        raise InvalidArgumentError(
            f"the collator {type(self.collator).__name__} fails: {type(error).__name__}: {error}", _HINT
        ) from error
