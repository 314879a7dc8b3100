"""A trace that the library has opened: its shapes, lengths and limits, and the largest micro-batch for each length."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from .._core import native
from .._core.settings import SAMPLING_RATE
from ..errors import InvalidArgumentError
from ..trace.input_lengths import FACTS, InputLengths
from .memory_settings import MAX_BATCH, Calibration, MemorySettings, Shape, Target, find_calibration, positive
from .shape_traces import ShapeTraces, close_trace

_SHAPE = ("batch", "length", "labels")
STEPS = 3  # optimizer steps replayed: the first makes the optimizer's state, the third repeats the second


class OpenedTrace(InputLengths):
    """One traced model with its training settings, and the lengths, limits and requests of its memory questions."""

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
        self.length_per_second = SAMPLING_RATE
        vars(self).update({name: self.about[name] for name in FACTS if self.about.get(name)})
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
        """Answer for another GPU from now on.

        Args:
            target: The GPU. Its kernels must be the traced ones (``kernel_class``).
        """
        self.target = target
        self.apply(find_calibration(self.model_key, target.name))

    def apply(self, calibration: Calibration | None) -> None:
        """Correct every answer from now on by a calibration.

        Args:
            calibration: The measurement; None removes the correction.
        """
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
        """Return the largest micro-batch that fits, found by simulations.

        A batch fits if its peak of reserved memory stays within the limit without the allocator freeing its cache on
        the way. The search begins at ``near``, in steps that double until the answer lies between two sizes, and
        continues by bisection; where each batch has to be traced, at the size to which two smaller ones point.

        Args:
            seconds: The seconds of the longest clip, above 0.
            limit_bytes: The bytes that the allocator may reserve in all; None for what the GPU of this model leaves.
            labels: The tokens of the longest text; None for the usual number of that duration.
            near: The size at which the search begins.
            most: The largest size to consider, up to 65536.

        Returns:
            The clips of the micro-batch, at most ``most``; 0 if not even one fits.

        Raises:
            InvalidArgumentError: A value is out of its range, a clip or text is longer than the model takes, there is
                neither a limit nor a GPU, or the memory model is closed.
            UnsupportedError: No formula answers for a batch, and it cannot be traced.
        """
        return self.largest_batches([Shape(1, seconds, labels)], limit_bytes, near=near, most=most)[0]

    def largest_batches(
        self, longest: Sequence[Shape], limit_bytes: int | None = None, *, near: int = 1, most: int = MAX_BATCH
    ) -> list[int]:
        """Return the largest micro-batch that fits for each of several lengths.

        Lengths between two with the same answer are not simulated.

        Args:
            longest: The longest clip of each length, as a ``Shape``, the shortest first.
            limit_bytes: The bytes that the allocator may reserve in all; None for what the GPU of this model leaves.
            near: The size at which the search begins.
            most: The largest size to consider, up to 65536.

        Returns:
            The clips of the micro-batch of each length, as by ``largest_batch``; they never increase with the length.

        Raises:
            InvalidArgumentError: As ``largest_batch``.
            UnsupportedError: No formula answers for a batch, and it cannot be traced.
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
        """Return whether formulas answer exactly for this shape; any other shape is traced when it is asked about.

        Args:
            batch: The clips of a micro-batch, at least 1.
            seconds: The seconds of its longest clip, above 0.
            labels: The tokens of its longest text; None for the usual number of that duration.

        Returns:
            Whether the trace determines the shape.

        Raises:
            InvalidArgumentError: A value is out of its range, a clip or text is longer than the model takes, or the
                memory model is closed.
        """
        request = self._question(Shape(batch, seconds, labels), "train")
        return bool(native.call("memory.determined", {key: request[key] for key in ("trace", *_SHAPE)})["exactly"])

    def prepare(self, shapes: Sequence[Shape]) -> None:
        """Trace together those shapes that formulas do not determine, which is faster than one after the other.

        Args:
            shapes: The micro-batches that will be asked about.

        Raises:
            InvalidArgumentError: A clip or text is longer than the model takes, or the memory model is closed.
            UnsupportedError: A shape cannot be traced.
        """
        if self._shapes is None:
            return
        missing = [self._shapes.missing(self._question(shape, "train")) for shape in shapes]
        if points := [point for point in missing if point is not None]:
            self._shapes.several(points)

    @contextlib.contextmanager
    def by_formulas(self) -> Iterator[None]:
        """Trace nothing inside: what no formula determines is answered by bounds, or raises ``UnsupportedError``."""
        shapes, self._shapes = self._shapes, None
        try:
            yield
        finally:
            self._shapes = shapes

    def work(self, batch: int, seconds: float, labels: int | None = None) -> dict[str, Any]:
        """Return what the kernels of one micro-batch compute and move.

        Args:
            batch: The clips of the micro-batch, at least 1.
            seconds: The seconds of its longest clip, above 0.
            labels: The tokens of its longest text; None for the usual number of that duration.

        Returns:
            The work, as the library's ``timing.step`` takes it.

        Raises:
            InvalidArgumentError: A value is out of its range, a clip or text is longer than the model takes, or the
                memory model is closed.
            UnsupportedError: The trace does not contain the work of this shape.
        """
        request = self.step_request(Shape(batch, seconds, labels))
        return dict(native.call("memory.work", {key: request[key] for key in ("trace", *_SHAPE)}))

    def cache_bytes(self, tokens: int) -> int:
        """Return the bytes of the keys and values that generating one text keeps, in float16.

        Each token and, for cross-attention, each frame has a key and a value in each layer
        (transformers.cache_utils.EncoderDecoderCache).

        Args:
            tokens: The tokens of the text; more than the model's positions count as that many.

        Returns:
            The bytes for one clip; 0 for a model that does not generate.
        """
        layers, width = self.about.get("decoder_layers"), self.about.get("decoder_width")
        if not layers or not width:
            return 0
        tokens = min(tokens, self.max_labels or tokens)
        return int(2 * layers * width * 2 * (tokens + self.about["source_frames"]))

    @property
    def is_open(self) -> bool:
        """Whether the trace is open: ``close`` was not called."""
        return self._finalizer.alive

    def close(self) -> None:
        """Free the memory of the trace. A second call does nothing."""
        self._finalizer()
        if self._shapes is not None:
            self._shapes.close()

    def evaluated(self, shape: Shape) -> dict[str, Any]:
        """Simulate evaluation batches of one shape, without a limit.

        Args:
            shape: The batch.

        Returns:
            The answer of the library's ``memory.simulate``.

        Raises:
            InvalidArgumentError: A clip or text is longer than the model takes, or the memory model is closed.
            UnsupportedError: The trace has no evaluation, or none of this shape.
        """
        return dict(native.call("memory.simulate", {**self.step_request(shape, "evaluate"), "limit_bytes": None}))

    @property
    def factor(self) -> float:
        """The calibration's factor of reserved memory; 1.0 without one."""
        return 1.0 if self.calibration is None else self.calibration.factor

    def common_request(self, limit: int | None) -> dict[str, Any]:
        """Build the part that all requests to the library share.

        Args:
            limit: The bytes that the allocator may reserve in all; None for no limit.

        Returns:
            The fields of the request.

        Raises:
            InvalidArgumentError: The memory model is closed.
        """
        if not self.is_open:
            raise InvalidArgumentError("the memory model is closed", "ask inside the with block, or trace again")
        return {
            "trace": self._trace,
            "settings": self.settings.allocator,
            # So that the simulation's answer times the factor stays within the limit.
            "limit_bytes": None if limit is None else max(1, int(limit / self.factor)),
            "device_bytes": self.target.context_bytes,
            "multiprocessors": self.target.multiprocessors,
            "threads_per_multiprocessor": self.target.threads_per_multiprocessor,
        }

    def step_request(self, shape: Shape, kind: str = "train") -> dict[str, Any]:
        """Build the request for steps or evaluations of one shape, which is traced first where no formula is exact.

        Args:
            shape: The micro-batch.
            kind: ``"train"`` or ``"evaluate"``.

        Returns:
            The fields of the request.

        Raises:
            InvalidArgumentError: A clip or text is longer than the model takes, or the memory model is closed.
            UnsupportedError: The shape cannot be traced.
        """
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
        labels = self.labels(shape.seconds) if shape.labels is None else self.allowed_labels(shape.labels)
        return self.length(shape.seconds), labels
