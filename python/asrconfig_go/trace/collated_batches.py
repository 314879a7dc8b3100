"""Batches of a user's own collator, made of rows of the dataset that are as long as a trace asks for."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from .._core.batches import FRAMES_PER_SECOND, INPUTS, TOKENS_PER_SECOND, InputUnit
from .._core.settings import SAMPLING_RATE
from ._arena import SMALL
from .collated_rows import Axis, CollatedRows, Example, Sizes, input_axis, labels_axis, sizes_of, text_sizes, unit_noun
from .made_up_batches import Point, SpeechBatches, known_batches, positions
from .row_resizing import RowResizer

if TYPE_CHECKING:
    from datasets import Dataset
    from torch import nn
    from transformers import PretrainedConfig


_DRAWN = 128  # rows drawn to represent all lengths where nothing else reports them, each collated alone
_FEW = 24  # rows of which the batches of a trace are made
_LONGEST = 2  # clips, and texts, of the whole dataset that are collated besides
_WAVE = 4000  # a longer input holds samples, not frames of a spectrogram
_NEAR, _NEAR_LABELS = 0.03, 0.05  # by how much a row may miss a target and still be used as it is
# By how much the padded clip of a batch is shorter: the seconds that a mask of every eighth frame of 10 ms still shows,
# as a share of the longest clip between the other two.
_SHORTER_S, _LEAST_SHORTER, _MOST_SHORTER = 0.1, 1 / 128, 1 / 32
_SHORTEST = 0.6  # of the longest clip: a length that is traced, where the dataset's are all alike
_SPREAD = (1.0, 0.55, 0.8, 0.3)  # where the traced lengths lie between the shortest and the longest
_LABELS_SPREAD = (0.4, 1.0, 0.0, 0.75, 0.2, 0.9, 0.55)


@dataclass(frozen=True)
class CollatedExamples:
    """Rows of ``dataset``, drawn with ``seed``, as ``collator`` makes them the input of ``model``.

    Nothing is read before it is needed. Errors of the collator are raised as ``InvalidArgumentError``.
    """

    dataset: Dataset
    collator: Callable[[list[Any]], Any]
    model: nn.Module | PretrainedConfig | None = None
    seed: int = 0

    @cached_property
    def unit(self) -> InputUnit:
        """The unit of the input's lengths."""
        name, batches = self.input.name, self._config_batches
        lengths = {example.length for example in self._examples}
        fixed = min(lengths) if len(lengths) == 1 else None
        if batches is not None:
            rate = batches.length_per_second
            return InputUnit(unit_noun(name, rate), rate, batches.fixed_length or fixed)
        if name == "input_ids":
            return InputUnit("tokens", TOKENS_PER_SECOND, fixed, "texts")  # with audio in the batch, audio is the input
        axes = sum(entry == name for entry, _ in self._sized[0])
        wave = (self.input.axis == 1 and axes == 2) or max(lengths) >= _WAVE
        rate = SAMPLING_RATE if wave else FRAMES_PER_SECOND
        return InputUnit(unit_noun(name, rate), rate, fixed)

    def lengths(self) -> list[tuple[int, int]]:
        """The drawn rows and the length of each."""
        return [(row, self.example(row).length) for row in self._drawn]

    def measured(self, row: object) -> tuple[int, int]:
        """The length of the input and of the labels of any row."""
        return self._pair_of(sizes_of(self.rows.batch([row])))

    def example(self, number: int) -> Example:
        """A row of the dataset with its length and labels."""
        return Example(number, *self._pair_of(self.rows.sizes(number)))

    def batches(self, seconds: Sequence[float] = ()) -> CollatedBatches:
        """How to feed the model; with the ``seconds`` of every row's audio, lengths follow from those."""
        rate, fixed = self.unit.per_second, self.unit.fixed
        if len(seconds) != len(self.dataset):
            seconds = ()
        if len(seconds) and fixed is None:
            measured = self._rate(seconds)
            rate = rate if abs(measured / rate - 1) < 0.02 else measured
        usual = sum(e.labels for e in self._examples) / sum(e.length / rate for e in self._examples)
        config, name = self._config_batches, self.input.name
        rows = RowBatches(self, seconds, rate)
        return CollatedBatches(
            rows.batch, rate, fixed,
            config.max_length if config is not None else positions(self.model) if name == "input_ids" else None,
            max_labels=None if config is None else config.max_labels,
            truncates=fixed is not None and (config.truncates if config is not None and self._labels else True),
            row_kind=self.unit.row_kind,
            by_length=name in INPUTS and not self.in_pieces,
            rows=rows,
            **({} if not usual else {"labels_per_second": usual}),
        )  # fmt: skip

    def _rate(self, seconds: Sequence[float]) -> float:
        """The length of a second: that of the clip with the least padding; of texts, the largest that may occur."""
        timed = [(e.length, seconds[e.row]) for e in self._examples if seconds[e.row] > 0]
        if not timed or self.input.name in INPUTS[:2]:
            return min((length / s for length, s in timed), default=self.unit.per_second)
        return max(length for length, _ in timed) / max(s for _, s in timed)

    @cached_property
    def rows(self) -> CollatedRows:
        """The dataset and its collator."""
        return CollatedRows(self.dataset, self.collator, self.model)

    @cached_property
    def input(self) -> Axis:
        """The input and its axis in time."""
        return input_axis(self.rows.batch([self.rows.row(self._few[0])]), self._sized)

    @cached_property
    def in_pieces(self) -> bool:
        """Whether a clip becomes several rows of the input."""
        return any(sizes.get((self.input.name, 0), 1) != 1 for sizes in self._sized)

    @cached_property
    def _labels(self) -> Axis | None:
        return labels_axis(self._sized, self.input)

    def _pair_of(self, sizes: Sizes) -> tuple[int, int]:
        return max(1, self.input.size(sizes)), 0 if self._labels is None else self._labels.size(sizes)

    @cached_property
    def _drawn(self) -> list[int]:
        count = len(self.dataset)
        return sorted(random.Random(self.seed).sample(range(count), min(_DRAWN, count)))

    @property
    def _few(self) -> list[int]:
        return self._drawn[:: max(1, len(self._drawn) // _FEW)]

    @property
    def _sized(self) -> list[Sizes]:
        return [self.rows.sizes(row) for row in self._few]

    @cached_property
    def _examples(self) -> list[Example]:
        return [self.example(row) for row in self._few]

    @cached_property
    def _config_batches(self) -> SpeechBatches | None:
        """The batches that the model's config describes, if the collator's are like them.

        A model of texts may have the same fields in its config.
        """
        batches = known_batches(self.model)
        if batches is None or self.input.name == "input_ids":
            return None
        lengths = {example.length for example in self._examples}
        return batches if batches.fixed_length is None or lengths == {batches.fixed_length} else None


@dataclass(frozen=True)
class Clips:
    """The clips of a batch: its longest, and a little shorter one, so that one is padded."""

    first: Any
    second: Any
    length: int
    labels: int

    def rows(self, count: int) -> list[Any]:
        """``count`` clips; every size of their batch rises evenly with each further one."""
        return [self.first, self.second, *[self.first] * count][: max(2, count)] if count > 1 else [self.first]


@dataclass
class RowBatches:
    """The dataset's batches by batch size, length and labels.

    They are made of the drawn rows, and with the ``seconds`` of all rows of any of them.
    """

    examples: CollatedExamples
    seconds: Sequence[float]
    rate: float
    _clips: dict[tuple[int, int], Clips] = field(default_factory=dict)
    _made: dict[Point, dict[str, torch.Tensor]] = field(default_factory=dict)

    def batch(self, batch: int, length: int, labels: int) -> dict[str, torch.Tensor]:
        """One batch of the shape that ``real`` returns."""
        real = self.real((batch, length, labels))
        if real not in self._made:
            made = self.examples.rows.batch(self.clips(*real[1:]).rows(batch))
            self._made[real] = pytree.tree_map_only(torch.Tensor, _hollow, made)
        # New tensors each time: a recorder notices when they are freed.
        return {**pytree.tree_map_only(torch.Tensor, torch.clone, self._made[real])}

    def real(self, point: Point) -> Point:
        """The shape of the batch made for a ``point``: the same where a row has that length."""
        clips = self.clips(*point[1:])
        return point[0], clips.length, clips.labels

    def clips(self, length: int, labels: int) -> Clips:
        """The rows nearest to a length and labels."""
        if (length, labels) not in self._clips:
            made = self._nearest(length, labels)
            self._clips[length, labels] = self._clips.setdefault((made.length, made.labels), made)
        return self._clips[length, labels]

    def pairs(self) -> list[tuple[int, int]]:
        """Length and labels of the collated rows: drawn ones, and the longest clips and texts."""
        return sorted({example.pair for example in self._collated})

    def points(self) -> list[Point]:
        """The shapes to trace: lengths and labels are spread over the dataset's, independently of each other."""
        pairs = self.pairs()
        longest, shortest = pairs[-1][0], pairs[0][0]
        if self.examples.unit.fixed is None:
            shortest = min(shortest, round(_SHORTEST * longest))
        labels = [n for _, n in pairs]
        spread = [_between(shortest, longest, share) for share in _SPREAD]
        texts = [_between(min(labels), max(labels), share) for share in _LABELS_SPREAD]
        points = zip((2, 3, 5, 4, 1, 1, 1), [*spread, spread[0], spread[2], spread[1]], texts, strict=True)
        return list(dict.fromkeys(self.real(point) for point in points))

    def _nearest(self, length: int, labels: int) -> Clips:
        examples = self._near(length)
        example = min(examples, key=lambda e: _deviation(e, length, labels))
        if _deviation(example, length, labels) <= 1:
            first, pair = self._row(example.row), example.pair
        else:
            row = self._row(min(examples, key=lambda e: (abs(e.length - length), abs(e.labels - labels))).row)
            first = self._resizer.resized(row, length, labels)
            pair = self.examples.measured(first)
        return Clips(first, self._second(first, *pair), *pair)

    def _second(self, first: object, length: int, labels: int) -> Any:
        """A slightly shorter clip with no more labels; of a fixed length one with fewer labels.

        With much shorter ones a model that skips padding would need less than for a batch of the longest clips.
        """
        shorter = 1 - min(_MOST_SHORTER, max(_LEAST_SHORTER, _SHORTER_S * self.rate / length))
        rows = [e for e in self._less(length, labels) if e.length >= shorter * length and e.labels >= shorter * labels]
        fixed = self.examples.unit.fixed is not None
        if not fixed:
            rows = [e for e in rows if e.length < length]
        if rows:  # the one with the most padding
            return self._row(min(rows, key=lambda e: (e.length, -e.labels)).row)
        made = self._resizer.shortened(first, shorter, fixed=fixed)
        if made is not first:
            return made
        # Its rows cannot be cut: the next shorter one. Of clips in pieces fewer pieces would make a smaller batch.
        rows = [] if self.examples.in_pieces else self._less(length, labels)
        return self._row(max(rows, key=lambda e: (e.length < length, e.length)).row) if rows else first

    def _less(self, length: int, labels: int) -> list[Example]:
        """The collated rows that have no more of both, and less of one."""
        return [e for e in self._collated if e.length <= length and e.labels <= labels and e.pair != (length, labels)]

    def _near(self, length: int) -> list[Example]:
        """The rows collated so far, and those that are as long by their seconds."""
        if len(self.seconds) and self.examples.unit.fixed is None:
            order, seconds = self._by_seconds, length / self.rate
            at = sum(self.seconds[row] < seconds for row in order)
            self._numbers.update(dict.fromkeys(order[max(0, at - 2) : at + 2]))
        return self._collated

    @property
    def _collated(self) -> list[Example]:
        """Rows without labels are left out: a batch of them alone is none that a loss takes."""
        examples = [self.examples.example(number) for number in self._numbers]
        return [example for example in examples if example.labels] or examples

    @cached_property
    def _numbers(self) -> dict[int, None]:
        longest = self._by_seconds[-_LONGEST:] if len(self.seconds) else []
        return dict.fromkeys([*self.examples._few, *longest, *self._longest_texts()])

    @cached_property
    def _by_seconds(self) -> list[int]:
        return sorted((row for row, s in enumerate(self.seconds) if s > 0), key=lambda row: self.seconds[row])

    def _longest_texts(self) -> list[int]:
        """The rows with the most characters or labels, where a table or a list holds them."""
        sizes = text_sizes(self.examples.dataset)
        return sorted(range(len(sizes)), key=lambda row: -sizes[row])[:_LONGEST]

    @cached_property
    def _resizer(self) -> RowResizer:
        longest = max(self._collated, key=lambda example: example.pair)
        return RowResizer(self._row(longest.row), self.examples.measured)

    def _row(self, number: int) -> Any:
        return self.examples.rows.row(number)


@dataclass(frozen=True)
class CollatedBatches(SpeechBatches):
    """The batches of a collator: their shapes are the dataset's (see ``RowBatches``)."""

    rows: RowBatches = field(kw_only=True)

    def points(self) -> list[Point]:  # noqa: D102
        return self.rows.points()

    def real(self, point: Point) -> Point:  # noqa: D102
        return self.rows.real(point)

    def pairs(self) -> list[tuple[int, int]]:  # noqa: D102
        return self.rows.pairs()


def _deviation(example: Example, length: int, labels: int) -> float:
    """How far a row is from a length and a number of labels: up to 1 it is used as it is."""
    by_length = abs(example.length - length) / max(1.0, _NEAR * length)
    return max(by_length, abs(example.labels - labels) / max(1.0, _NEAR_LABELS * labels))


def _hollow(tensor: torch.Tensor) -> torch.Tensor:
    """Drops values that a trace does not read: large floats then take no memory while a plan is kept."""
    return torch.empty_like(tensor) if tensor.is_floating_point() and tensor.numel() > SMALL else tensor


def _between(low: int, high: int, share: float) -> int:
    return low + round(share * (high - low))
