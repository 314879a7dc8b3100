"""Traces of the shapes that no formula covers, recorded when they are needed.

A trace's formulas of batch, length and labels answer for every shape where they are exact. Where they are not, as for a
model that works on chunks of audio or loops over labels, the shape itself is traced: alone for one request, with three
batches for several, as formulas that are exact in the batch answer for all of them.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .._core import native
from ..errors import AsrConfigError

Point = tuple[int, int, int]  # batch, length, labels

_BATCHES = (2, 3, 5)  # of one length and one text, which prove formulas of the batch
_OTHER = 1009  # a batch that is never traced
_SHAPE = ("batch", "length", "labels")
_DECIDES = (*_SHAPE, "trace", "accumulation", "kind")  # of a request: which segments answer it


@dataclass
class ShapeTraces:
    """Finds the trace that answers a request exactly.

    ``record`` opens a trace of some shapes; ``real`` returns the shape of the batch that is made for another one.
    """

    record: Callable[[tuple[Point, ...]], dict[str, Any]]
    real: Callable[[Point], Point]
    _traces: dict[tuple[int, int], list[Any]] = field(default_factory=dict)  # by length and labels
    _answers: dict[tuple[Any, ...], bool] = field(default_factory=dict)
    _by_batch: bool = True  # whether three batches have predicted others so far
    _closing: list[weakref.finalize[..., Any]] = field(default_factory=list)

    def exactly(self, request: dict[str, Any]) -> dict[str, Any]:
        """The request with the trace and the real shape that answer it exactly."""
        if self.determined(request):
            return request
        batch, length, labels = real = self.real((request["batch"], request["length"], request["labels"]))
        traces = self._traces.setdefault((length, labels), [])
        if (answer := self._of(traces, request, real)) is not None:
            return answer
        with_others = bool(traces) and batch > 1 and self._by_batch
        others = [n for n in _BATCHES if n != batch][: len(_BATCHES) - 1] if with_others else []
        self.several((n, length, labels) for n in (*others, batch))
        if with_others:  # whether they answer for a batch that is in none of them
            self._by_batch = self._of(traces, request, (_OTHER, length, labels)) is not None
        return {**request, **dict(zip(_SHAPE, real, strict=True)), "trace": traces[-1]}

    def missing(self, request: dict[str, Any]) -> Point | None:
        """The real shape of a request that no trace so far answers exactly; None where one does."""
        if self.determined(request):
            return None
        real = self.real((request["batch"], request["length"], request["labels"]))
        return real if self._of(self._traces.get(real[1:], []), request, real) is None else None

    def several(self, points: Iterable[Point]) -> Any:
        """Trace shapes together, which is faster than one after the other; returns the trace."""
        wanted = tuple(dict.fromkeys(self.real(point) for point in points))
        trace = self.record(wanted)["trace"]
        self._closing.append(weakref.finalize(self, close_trace, trace))
        for place in dict.fromkeys(point[1:] for point in wanted):
            self._traces.setdefault(place, []).append(trace)
        return trace

    def largest(self, question: dict[str, Any]) -> list[int]:
        """The answer to ``memory.largest``, for which the shapes are traced that it asks for."""
        rows: list[dict[str, Any]] = question["rows"]
        while True:
            answer = native.call("memory.largest", {**question, "by_batch": self._by_batch})
            self._by_batch = answer["by_batch"]
            if (missing := answer["missing"]) is None:
                return list(answer["batches"])
            for row, batch in zip(rows, answer["batches"], strict=True):
                row["known"] = batch
            row, batches = rows[missing["row"]], missing["batches"]
            real = self.real((batches[0], row["length"], row["labels"]))
            traces = self._traces.setdefault(real[1:], [])
            if len(traces) == len(row.get("traces", ())):  # all are known there
                self.several((batch, *real[1:]) for batch in batches)
            row |= {"traces": list(traces), "real_length": real[1], "real_labels": real[2]}

    def determined(self, request: dict[str, Any]) -> bool:
        """Whether the trace of a request answers it exactly."""
        key = tuple(request.get(name) for name in _DECIDES)
        if key not in self._answers:
            question = {name: value for name, value in zip(_DECIDES, key, strict=True) if value is not None}
            self._answers[key] = bool(native.call("memory.determined", question)["exactly"])
        return self._answers[key]

    def close(self) -> None:
        """Free the memory of all traces."""
        for closing in self._closing:
            closing()

    def _of(self, traces: list[Any], request: dict[str, Any], real: Point) -> dict[str, Any] | None:
        questions = ({**request, **dict(zip(_SHAPE, real, strict=True)), "trace": trace} for trace in reversed(traces))
        return next((question for question in questions if self.determined(question)), None)


def by_formulas(memory: object) -> contextlib.AbstractContextManager[None]:
    """Inside, a memory model traces nothing, as during a training: without a formula it returns bounds, or raises."""
    inside: contextlib.AbstractContextManager[None] = getattr(memory, "by_formulas", contextlib.nullcontext)()
    return inside


def close_trace(trace: int) -> None:
    """Free the memory of an opened trace."""
    with contextlib.suppress(AsrConfigError):  # a library that fails, or was replaced, does not have it
        native.call("memory.close", {"trace": trace})
