"""A trace that the library has opened: its shapes, lengths and limits, and the largest micro-batch for each length."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from .._core import native
from .._core.batches import input_length
from .._core.checks import checked
from .._core.declared import RowKind
from .._core.defaults import SAMPLING_RATE
from ..errors import InvalidArgumentError
from .memory_settings import (
    MAX_BATCH,
    Calibration,
    MemorySettings,
    Shape,
    Target,
    check_labels,
    find_calibration,
    positive,
)
from .shape_traces import ShapeTraces, close_trace

Table = tuple[tuple[float, int], ...]
"""Rows of seconds and the largest micro-batch of clips of up to this length."""

GRID_S = 0.5
"""Lengths are rounded up to this where the memory model is asked, so that few of them are simulated."""
_LONGEST_S = 65_536  # of a clip in a table
_SHAPE = ("batch", "length", "labels")
STEPS = 3  # optimizer steps replayed: the first makes the optimizer's state, the third repeats the second


class OpenedTrace:
    """One model with its training settings: what every question about its memory is made of."""

    def __init__(
        self,
        opened: dict[str, Any],
        settings: MemorySettings,
        target: Target,
        model_key: str | None = None,
        label: str = "",
        shapes: ShapeTraces | None = None,
    ) -> None:
        self.about: dict[str, Any] = opened["about"]
        """Model, versions and settings as the trace has them."""
        self.points: list[dict[str, Any]] = opened["points"]
        """The shapes that were traced."""
        self.over_time: bool = opened["over_time"]
        """Whether a layer normalizes over time, so that results depend on how much a clip is padded."""
        self.settings: MemorySettings = settings
        self.model_key: str | None = model_key
        self.target: Target
        self.calibration: Calibration | None
        """What ``calibrate`` measured of this model on this GPU, if it did."""
        self.aim(target)
        self._label = label
        self._trace = opened["trace"]
        self._shapes = shapes
        self._finalizer = weakref.finalize(self, close_trace, self._trace)

    @property
    def name(self) -> str:
        """The name of the model, and the traced class."""
        traced = str(self.about.get("model") or "model")
        return traced if self._label in ("", traced) else f"{self._label} ({traced})"

    def aim(self, target: Target) -> None:
        """Answer for another GPU from here on; its kernels must be the traced ones (``kernel_class``)."""
        self.target = target
        self.apply(find_calibration(self.model_key, target.name))

    def apply(self, calibration: Calibration | None) -> None:
        """Correct every answer from here on by a calibration; None removes it."""
        self.calibration = calibration
        if calibration is not None and calibration.context_bytes is not None:
            measured = calibration.context_bytes
            self.target = dataclasses.replace(
                self.target, context_bytes=measured, context_high_bytes=measured, context_source="measured"
            )

    def largest_batch(
        self,
        seconds: float,
        limit_bytes: int | None = None,
        labels: int | None = None,
        *,
        near: int = 1,
        most: int = MAX_BATCH,
    ) -> int:
        """The largest micro-batch up to ``most`` that fits, 0 when even one sample does not, by simulations.

        A batch fits whose peak of reserved memory stays within the limit, without giving cached memory back on its way.
        ``limit_bytes`` is what the allocator may reserve in all; without it, what the given GPU leaves. The search
        begins at ``near``, in steps that double until the answer lies between two sizes, and then by bisection; where
        each batch has to be traced, at the size to which two smaller ones point.
        """
        return self.largest_batches([Shape(1, seconds, labels)], limit_bytes, near=near, most=most)[0]

    def largest_batches(
        self, longest: Sequence[Shape], limit_bytes: int | None = None, *, near: int = 1, most: int = MAX_BATCH
    ) -> list[int]:
        """``largest_batch`` for the ``longest`` samples of several lengths, the shortest first; it never rises.

        Lengths between two of the same answer are not simulated.
        """
        limit = self.target.limit_bytes if limit_bytes is None else positive("limit_bytes", limit_bytes, 1 << 50)
        if limit is None:
            raise InvalidArgumentError("there is no GPU to fit into", 'pass limit_bytes, or trace with gpu="L4"')
        most = positive("most", most, MAX_BATCH)
        rows = [dict(zip(_SHAPE[1:], self._lengths_of(shape), strict=True)) for shape in longest]
        request = {
            **self.common_request(limit),
            "rows": rows,
            "near": min(positive("near", near, MAX_BATCH), most),
            "most": most,
            "exactly": self._shapes is not None,
            "accumulation": self.settings.accumulation,
            "steps": STEPS,
        }
        if self._shapes is not None:
            return self._shapes.largest(request)
        return list(native.call("memory.largest", request)["batches"])

    def beside_inputs(self, limit_bytes: int, clips: int, longest_s: float) -> int:
        """What a limit leaves for the micro-batches of a step that is on the GPU as one collated batch.

        Args:
            limit_bytes: What the allocator may reserve in all.
            clips: The clips of the step.
            longest_s: The seconds to which they are padded.

        Returns:
            The limit without the inputs of the step; at least 1.
        """
        shape = Shape(2, longest_s)  # formulas cover batches of two and more clips
        step = native.call("memory.simulate", {**self._question(shape, "train"), "limit_bytes": None, "steps": 1})
        held: int = step["at_peak"]["components"].get("inputs", 0)
        return max(1, limit_bytes - clips * held // (shape.batch * self.settings.accumulation))

    def determines(self, batch: int, seconds: float, labels: int | None = None) -> bool:
        """Whether formulas answer exactly for this shape; else it is traced when it is asked about."""
        request = self._question(Shape(batch, seconds, labels), "train")
        return bool(native.call("memory.determined", {key: request[key] for key in ("trace", *_SHAPE)})["exactly"])

    def prepare(self, shapes: Sequence[Shape]) -> None:
        """Trace those shapes together that formulas do not determine, which takes less than one after the other."""
        if self._shapes is None:
            return
        missing = [self._shapes.missing(self._question(shape, "train")) for shape in shapes]
        if points := [point for point in missing if point is not None]:
            self._shapes.several(points)

    @contextlib.contextmanager
    def by_formulas(self) -> Iterator[None]:
        """Inside, nothing is traced: what no formula determines is answered by bounds, or raises."""
        shapes, self._shapes = self._shapes, None
        try:
            yield
        finally:
            self._shapes = shapes

    def work(self, batch: int, seconds: float, labels: int | None = None) -> dict[str, Any]:
        """What the kernels of one micro-batch of this shape do, as ``timing.step`` takes it.

        Raises ``UnsupportedError`` where the trace does not hold it.
        """
        request = self.step_request(Shape(batch, seconds, labels))
        return dict(native.call("memory.work", {key: request[key] for key in ("trace", *_SHAPE)}))

    @property
    def length_per_second(self) -> float:
        """Units of input length in a second of audio: samples, or frames of features."""
        return float(self.about.get("length_per_second") or SAMPLING_RATE)

    @property
    def row_kind(self) -> RowKind:
        """What people call the rows of its batches."""
        return "texts" if self.about.get("row_kind") == "texts" else "clips"

    def length(self, seconds: float) -> int:
        """The input length of a batch whose longest clip has this duration, in samples or frames of features."""
        about = self.about
        return input_length(
            seconds, self.length_per_second, fixed=about.get("fixed_length"), longest=about.get("max_length"),
            truncates=bool(about.get("truncates")), row_kind=self.row_kind, model=self.name,
        )  # fmt: skip

    def labels(self, seconds: float) -> int:
        """A usual number of label tokens for this duration."""
        usual = max(1, round(seconds * float(self.about.get("labels_per_second") or 15)))
        longest = self.about.get("max_labels")
        return min(usual, int(longest)) if longest else usual

    def cache_bytes(self, tokens: int) -> int:
        """Keys and values, in float16, of a text of so many tokens and of the frames that it is made of.

        Each token and, for cross-attention, each frame has a key and a value in each layer
        (transformers.cache_utils.EncoderDecoderCache). 0 of a model that does not generate.
        """
        layers, width = self.about.get("decoder_layers"), self.about.get("decoder_width")
        if not layers or not width:
            return 0
        tokens = min(tokens, int(self.about.get("max_labels") or tokens))
        return int(2 * layers * width * 2 * (tokens + self.about["source_frames"]))

    @property
    def is_open(self) -> bool:
        """Whether it still answers: ``close`` was not called."""
        return self._finalizer.alive

    def close(self) -> None:
        """Give the trace's memory back; a second call does nothing."""
        self._finalizer()
        if self._shapes is not None:
            self._shapes.close()

    def evaluated(self, shape: Shape) -> dict[str, Any]:
        """The simulation of evaluation batches of this shape, without a limit."""
        return dict(native.call("memory.simulate", {**self.step_request(shape, "evaluate"), "limit_bytes": None}))

    @property
    def factor(self) -> float:
        """The calibration's factor of reserved memory; 1.0 without one."""
        return 1.0 if self.calibration is None else self.calibration.factor

    def _uncorrected(self, limit: int | None) -> int | None:
        """The simulation's limit, so that its answer times the factor stays within ``limit``."""
        return None if limit is None else max(1, int(limit / self.factor))

    def common_request(self, limit: int | None) -> dict[str, Any]:
        """The part that all requests share, for an allocator that may reserve ``limit`` bytes."""
        if not self.is_open:
            raise InvalidArgumentError("the memory model is closed", "ask inside the with block, or trace again")
        return {
            "trace": self._trace,
            "settings": self.settings.allocator,
            "limit_bytes": self._uncorrected(limit),
            "device_bytes": self.target.context_bytes,
            "multiprocessors": self.target.multiprocessors,
            "threads_per_multiprocessor": self.target.threads_per_multiprocessor,
        }

    def _check_positions(self, labels: int) -> int:
        longest = self.about.get("max_labels")
        if longest and labels > longest:
            raise InvalidArgumentError(
                f"labels = {labels} is more than the {longest} tokens that {self.name} takes",
                "shorten or drop longer texts",
            )
        return labels

    def label_lengths(self, durations: list[float], labels: Sequence[int] | None) -> list[int]:
        """The label length of every clip, as passed or as usual."""
        if labels is None:
            return [self.labels(s) for s in durations]
        if len(labels) != len(durations):
            raise InvalidArgumentError(
                f"{len(labels)} labels for {len(durations)} clips", "pass one label length for each clip"
            )
        return [self._check_positions(check_labels(f"labels[{i}]", n)) for i, n in enumerate(labels)]

    def step_request(self, shape: Shape, kind: str = "train") -> dict[str, Any]:
        """The request for steps or evaluations of this shape, which is traced where no formula is exact."""
        request = self._question(shape, kind)
        return request if self._shapes is None else self._shapes.exactly(request)

    def _question(self, shape: Shape, kind: str) -> dict[str, Any]:
        return {
            **self.common_request(self.target.limit_bytes),
            "batch": shape.batch,
            **dict(zip(_SHAPE[1:], self._lengths_of(shape), strict=True)),
            "accumulation": self.settings.accumulation,
            "steps": STEPS,
            "kind": kind,
        }

    def _lengths_of(self, shape: Shape) -> tuple[int, int]:
        """The input length and the labels of a shape, in the model's units."""
        labels = self.labels(shape.seconds) if shape.labels is None else self._check_positions(shape.labels)
        return self.length(shape.seconds), labels


def memory_table(memory: OpenedTrace, longest_s: float, limit_bytes: int | None = None) -> Table:
    """Rows of seconds and the largest micro-batch of clips of up to that length that is predicted to fit.

    Rows are half seconds up to ``longest_s``, as the guard asks: micro-batches that are full by this table are full for
    the guard. Of lengths with the same micro-batch the longest is a row. ``limit_bytes`` is what the allocator may
    reserve in all; without it, what the GPU that the model was traced for leaves. Raises ``InvalidArgumentError`` as
    ``MemoryModel.largest_batch`` does.

    >>> from asrconfig_go.recipe.model_building import small_model
    >>> with MemoryModel.trace(small_model(tokens=12, seed=0), gpu="T4", progress=False) as memory:
    ...     table = memory_table(memory, 2.0)
    >>> [seconds for seconds, _ in table]
    [0.5, 1.0, 1.5, 2.0]
    """
    longest_s = checked("longest_s", longest_s, float)
    if not 0 < longest_s <= _LONGEST_S:
        raise InvalidArgumentError(
            f"longest_s = {longest_s:g} is out of range", f"pass seconds above 0, up to {_LONGEST_S}"
        )
    last = max(1, math.ceil(longest_s / GRID_S - 1e-9))
    lengths = [step * GRID_S for step in range(1, last + 1)]
    sizes = memory.largest_batches([Shape(1, s) for s in lengths], limit_bytes)
    after = [*sizes[1:], -1]
    return tuple((s, size) for s, size, other in zip(lengths, sizes, after, strict=True) if size != other)


def fits_in(table: Sequence[tuple[float, int]], seconds: float) -> int:
    """The largest micro-batch of clips of up to this length; 0 beyond the table's last row."""
    at = bisect_left(table, seconds, key=lambda row: row[0])
    return table[at][1] if at < len(table) else 0
