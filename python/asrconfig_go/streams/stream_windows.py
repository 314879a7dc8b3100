"""Windows of a stream: as many clips as make some whole optimizer steps, grouped by length. Memory stays constant."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import random
import threading
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from .._base.errors import CorruptFileError, EmptyDatasetError
from ..data.stream_sources import no_rows

logger: logging.Logger = logging.getLogger("asrconfig_go")

_HASHED = 64  # numbers of a list that tell a row from another
_NUMBER_BYTES = 32  # of a Python float in a list


@dataclass(frozen=True)
class StreamPosition:
    """Where a window begins, as a checkpoint keeps it.

    ``window`` windows and ``step`` optimizer steps of the run come before it; ``rows`` rows of ``epoch`` were read by
    then, after which the dataset's own state was ``state`` (None where it has none), and ``too_long`` and
    ``unreadable`` clips had been left out. ``digest`` is of the window's clips.
    """

    window: int = 0
    step: int = 0
    epoch: int = 0
    rows: int = 0
    too_long: int = 0
    unreadable: int = 0
    state: dict[str, Any] | None = None
    digest: str = ""


@dataclass(frozen=True)
class Window:
    """The clips of some optimizer steps, of one process; the clips of a step come longest first."""

    position: StreamPosition
    steps: list[list[dict[str, Any]]]


class Rows:
    """The rows of a stream, epoch after epoch, and where it is."""

    def __init__(self, opened: Callable[[int], Any], at: StreamPosition) -> None:
        self._opened = opened
        self.epoch, self.rows = at.epoch, at.rows
        self._dataset = opened(at.epoch)
        has_state = at.state is not None and hasattr(self._dataset, "load_state_dict")
        if has_state:
            self._dataset.load_state_dict(at.state)
        self._rows = islice(iter(self._dataset), 0 if has_state else at.rows, None)

    def take(self, count: int) -> Iterator[dict[str, Any]]:
        """The next rows; those of the next epoch follow the last of an epoch."""
        for _ in range(count):
            while (row := next(self._rows, None)) is None:
                if not self.rows:
                    raise no_rows()
                self.epoch, self.rows = self.epoch + 1, 0
                self._dataset = self._opened(self.epoch)
                self._rows = islice(iter(self._dataset), None)
            self.rows += 1
            yield row

    def state(self) -> dict[str, Any] | None:
        """The dataset's own, None where it has none that can be written down."""
        if not self.rows or not hasattr(self._dataset, "state_dict"):
            return None
        state: dict[str, Any] = self._dataset.state_dict()
        try:
            return state if json.loads(json.dumps(state)) == state else None
        except (TypeError, ValueError):
            return None


@dataclass(frozen=True)
class WindowReader:
    """Reads windows of ``share`` clips a step.

    ``opened(epoch)`` is the dataset of an epoch, ``seconds`` measures rows, not a number for those that cannot be read.
    A window has at least one step, and ends with the step that reaches ``clips`` clips or ``bytes`` bytes. Steps of
    processes with the same ``seed`` come in the same order of lengths; ``rank`` is that of this one.
    """

    opened: Callable[[int], Any]
    seconds: Callable[[list[dict[str, Any]]], array[float]]
    share: int
    clips: int
    bytes: int
    longest_s: float
    bucketed: bool
    seed: int
    rank: int = 0

    def windows(self, start: StreamPosition, stop: threading.Event) -> Iterator[Window]:
        """The windows from ``start`` on, without end; none after ``stop``.

        The first one must have the clips of ``start``'s digest, if it has one. Where the dataset's own state leads
        elsewhere, as with a shuffle buffer, the epoch is read from its begin. Raises ``CorruptFileError`` where that
        does not give them either, ``EmptyDatasetError`` where no clip can be used.
        """
        rows, window, after = self._first(start, stop)
        if start.digest not in ("", window.position.digest) and not stop.is_set():
            raise CorruptFileError(
                f"the stream gives other clips than the run had after {start.step} steps",
                "pass the same files in the same order, or start a new run by manager.train(trainer, resume=False)",
            )
        while not stop.is_set():
            yield window
            window, after = self._read(rows, replace(after, state=rows.state()), stop)

    def _first(self, start: StreamPosition, stop: threading.Event) -> tuple[Rows, Window, StreamPosition]:
        """The window at ``start``, by the dataset's own state if that leads there."""
        if start.state is not None:
            try:
                rows = Rows(self.opened, start)
                window, after = self._read(rows, start, stop)
                if window.position.digest == start.digest or stop.is_set():
                    return rows, window, after
            except (LookupError, TypeError, ValueError):  # the state of another version of datasets
                pass
            logger.warning("the stream's own state does not lead back to its clips: its epoch is read from the begin")
        rows = Rows(self.opened, replace(start, state=None))
        return rows, *self._read(rows, start, stop)

    def _read(self, rows: Rows, at: StreamPosition, stop: threading.Event) -> tuple[Window, StreamPosition]:
        """The window at a position, and the position of the next, without the dataset's state."""
        clips, seconds, size, digest = list[dict[str, Any]](), array("d"), 0, hashlib.blake2b(digest_size=16)
        counts = [at.too_long, at.unreadable]
        while not stop.is_set():
            rows_of_step = list(rows.take(self.share - len(clips) % self.share))
            for row, length in zip(rows_of_step, self.seconds(rows_of_step), strict=True):
                _feed(digest, row)
                if math.isnan(length) or length > self.longest_s:
                    counts[math.isnan(length)] += 1
                else:
                    clips.append(row)
                    seconds.append(length)
                    size += _bytes(row)
            if not clips and rows.epoch > at.epoch + 1:
                long = f"{counts[0]} are over {self.longest_s:g} s, " if counts[0] else ""
                raise EmptyDatasetError(
                    f"no clip of the stream can be used: {long}{counts[1]} cannot be read",
                    "raise max_length_s, or name the column of the audio: column=…",
                )
            if clips and len(clips) % self.share == 0 and (len(clips) + self.share > self.clips or size >= self.bytes):
                break
        steps = [[clips[i] for i in step] for step in self._steps(seconds, at.window)]
        if sum(counts).bit_length() > (at.too_long + at.unreadable).bit_length():  # whenever their number has doubled
            logger.warning(
                "left out of the stream so far: %d clips longer than %g s, %d that cannot be read",
                counts[0], self.longest_s, counts[1],
            )  # fmt: skip
        after = StreamPosition(at.window + 1, at.step + len(steps), rows.epoch, rows.rows, counts[0], counts[1])
        return Window(replace(at, digest=digest.hexdigest()), steps), after

    def _steps(self, seconds: array[float], window: int) -> list[list[int]]:
        """The clips of each step, by their places in the window."""
        order = list(range(len(seconds)))
        random.Random(f"{self.seed} {window} {self.rank}").shuffle(order)
        if self.bucketed:
            order.sort(key=seconds.__getitem__)
        steps = [order[i : i + self.share] for i in range(0, len(order), self.share)]
        random.Random(f"{self.seed} {window}").shuffle(steps)
        # Micro-batches are neighbours then, and the step's peak of memory comes first.
        return [sorted(step, key=lambda i: -seconds[i]) for step in steps]


def _feed(digest: Any, value: Any) -> None:
    """Hash a row: bytes and texts completely, lists of numbers by their beginning and length."""
    if isinstance(value, dict):
        for name in sorted(value):
            digest.update(name.encode())
            _feed(digest, value[name])
    elif isinstance(value, bytes):
        digest.update(value)
    elif isinstance(value, list | tuple):
        digest.update(f"[{len(value)}".encode())
        for item in value[:_HASHED]:
            _feed(digest, item)
    elif hasattr(value, "tobytes"):
        digest.update(value.tobytes())
    else:
        digest.update(repr(value).encode())


def _bytes(value: Any) -> int:
    """The approximate size of a value in memory."""
    if isinstance(value, dict):
        return sum(map(_bytes, value.values()))
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, list | tuple):
        return len(value) * _bytes(value[0]) if value and isinstance(value[0], list) else len(value) * _NUMBER_BYTES
    return int(getattr(value, "nbytes", _NUMBER_BYTES))
