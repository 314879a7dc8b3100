"""``StreamBatches``: a stream of clips as the batches of optimizer steps, window by window."""

from __future__ import annotations

import hashlib
import json
import math
import random
import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from torch.utils.data import IterableDataset

from .._core.checks import check_seed, checked
from .._core.output import logger
from ..data.columns import audio_column
from ..data.scan import clip_seconds
from ..data.scan_result import clips_by_use
from ..data.scan_rows import axes_of, input_unit, with_bytes
from ..data.source import open_source
from ..data.table_sources import no_rows, prepared_column, resolved, schema_of
from ..errors import CorruptFileError, EmptyDatasetError, InvalidArgumentError

if TYPE_CHECKING:
    import torch

StreamMode = Literal["random", "bucketed"]
"""How a stream makes the steps of a window: of any clips, or each of clips of similar length."""
_HASHED = 64  # numbers of a list that tell a row from another
_NUMBER_BYTES = 32  # of a Python float in a list
WINDOW_CLIPS, WINDOW_BYTES = 1024, 1 << 28
_EPOCHS = 1 << 20  # with different orders for each seed


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
    """Reads windows of ``stream`` for process ``rank`` of ``ranks``, ``share`` clips a step.

    A window has at least one step, and ends with the step that reaches the process's part of the stream's clips or
    bytes. Steps of processes come in the same order of lengths.
    """

    stream: StreamBatches
    share: int
    rank: int = 0
    ranks: int = 1

    def windows(self, start: StreamPosition, stop: threading.Event) -> Iterator[Window]:
        """The windows from ``start`` on, without end; none after ``stop``.

        The first one must have the clips of ``start``'s digest, if it has one. Where the dataset's own state leads
        elsewhere, as with a shuffle buffer, the epoch is read from its begin. Raises ``CorruptFileError`` where that
        does not give them either, ``EmptyDatasetError`` where no clip can be used.
        """
        rows, window, after = self._first(start, stop)
        if start.digest not in ("", window.position.digest) and not stop.is_set():
            raise CorruptFileError(
                f"the stream yields other clips than the run had after {start.step} steps",
                "pass the same files in the same order, or start a new run by manager.train(trainer, resume=False)",
            )
        while not stop.is_set():
            yield window
            window, after = self._read(rows, replace(after, state=rows.state()), stop)

    def _first(self, start: StreamPosition, stop: threading.Event) -> tuple[Rows, Window, StreamPosition]:
        """The window at ``start``, by the dataset's own state if that leads there."""
        if start.state is not None:
            try:
                rows = Rows(self._opened, start)
                window, after = self._read(rows, start, stop)
                if window.position.digest == start.digest or stop.is_set():
                    return rows, window, after
            except (LookupError, TypeError, ValueError):  # the state of another version of datasets
                pass
            logger.warning("the stream's own state does not lead back to its clips: its epoch is read again")
        rows = Rows(self._opened, replace(start, state=None))
        return rows, *self._read(rows, start, stop)

    def _opened(self, epoch: int) -> Any:
        """The dataset of an epoch, this process's part."""
        from datasets.distributed import split_dataset_by_node

        dataset = split_dataset_by_node(self.stream.stored, self.rank, self.ranks)
        # Epoch 0 would leave shards in the order of the stream.
        dataset.set_epoch(1 + self.stream.seed % _EPOCHS * _EPOCHS + epoch)
        return dataset

    def _read(self, rows: Rows, at: StreamPosition, stop: threading.Event) -> tuple[Window, StreamPosition]:
        """The window at a position, and the position of the next, without the dataset's state."""
        clips, seconds, size, digest = list[dict[str, Any]](), array("d"), 0, hashlib.blake2b(digest_size=16)
        counts, stream = [at.too_long, at.unreadable], self.stream
        longest_s = math.inf if stream.max_length_s is None else stream.max_length_s
        while not stop.is_set():
            rows_of_step = list(rows.take(self.share - len(clips) % self.share))
            lengths = stream.seconds(rows_of_step)
            usable, *left_out = clips_by_use(lengths, longest_s)
            counts = [count + len(numbers) for count, numbers in zip(counts, left_out, strict=True)]
            for number, row in enumerate(rows_of_step):
                _feed(digest, row)
                if number in usable:
                    clips.append(row)
                    seconds.append(lengths[number])
                    size += _bytes(row)
            if not clips and rows.epoch > at.epoch + 1:
                long = f"{counts[0]} are over {longest_s:g} s, " if counts[0] else ""
                raise EmptyDatasetError(
                    f"no clip of the stream can be used: {long}{counts[1]} cannot be read",
                    "raise max_length_s, or name the column of the audio: column=…",
                )
            is_full = len(clips) + self.share > stream.window_clips // self.ranks
            if clips and len(clips) % self.share == 0 and (is_full or size >= stream.window_bytes // self.ranks):
                break
        steps = [[clips[i] for i in step] for step in self._steps(seconds, at.window)]
        if sum(counts).bit_length() > (at.too_long + at.unreadable).bit_length():  # whenever their number has doubled
            logger.warning(
                "left out of the stream so far: %d clips longer than %g s, %d that cannot be read",
                counts[0], longest_s, counts[1],
            )  # fmt: skip
        after = StreamPosition(at.window + 1, at.step + len(steps), rows.epoch, rows.rows, counts[0], counts[1])
        return Window(replace(at, digest=digest.hexdigest()), steps), after

    def _steps(self, seconds: array[float], window: int) -> list[list[int]]:
        """The clips of each step, by their places in the window."""
        order, seed = list(range(len(seconds))), self.stream.seed
        random.Random(f"{seed} {window} {self.rank}").shuffle(order)
        if self.stream.mode == "bucketed":
            order.sort(key=seconds.__getitem__)
        steps = [order[i : i + self.share] for i in range(0, len(order), self.share)]
        random.Random(f"{seed} {window}").shuffle(steps)
        # Micro-batches are neighbours then, and the step's peak of memory comes first.
        return [sorted(step, key=lambda i: -seconds[i]) for step in steps]


def _feed(digest: hashlib.blake2b, value: object) -> None:
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


def _bytes(value: object) -> int:
    """The approximate size of a value in memory."""
    if isinstance(value, dict):
        return sum(map(_bytes, value.values()))
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, list | tuple):
        return len(value) * _bytes(value[0]) if value and isinstance(value[0], list) else len(value) * _NUMBER_BYTES
    return int(getattr(value, "nbytes", _NUMBER_BYTES))


class StreamSettings(TypedDict, total=False):
    """What ``config.stream`` takes of ``StreamBatches`` by keyword."""

    max_length_s: float | None
    mode: StreamMode
    seed: int
    column: str | None
    model: torch.nn.Module
    window_clips: int
    window_bytes: int


class StreamBatches(IterableDataset):  # type: ignore[misc]
    """A stream of clips as a Trainer's ``train_dataset``: ``manager.train(trainer)`` reads its optimizer steps.

    A window of whole steps is read ahead while the one before it is trained on: memory stays constant. Every step has
    exactly as many clips as the Trainer's arguments require, and where the stream ends it begins again. Clips that are
    too long and those that cannot be read are left out, counted and logged.

    Audio comes to the collator as ``Audio(decode=False)`` stores it: ``make_collator`` and ``load_audio`` take it. The
    stream is read in the Trainer's process, in a thread; its workers collate. Several processes divide the stream by
    ``split_dataset_by_node``.

    Args:
        dataset: A ``datasets.IterableDataset``, or the address of tar shards (WebDataset) or Parquet files that fsspec
            opens, or a list of addresses.
        max_length_s: The seconds of the longest clip to train on; None for no limit.
        mode: How the steps of a window are made: ``"random"`` of any clips, ``"bucketed"`` of clips of similar length.
        seed: The seed of the order of steps and clips, 0 or more and below 2**32.
        column: The column of the audio or of a model's input; None for the usual names.
        model: The model, which determines how long a frame lasts where the column holds frames; None for audio.
        window_clips: The number of clips at which a window ends, 1 to 1 000 000.
        window_bytes: The number of stored bytes at which a window ends, approximately; at least 1. A window has at
            least one step.

    Attributes:
        column: The column that is read.

    Raises:
        InvalidArgumentError: A value is out of its range, the dataset is no stream, or it has no column of audio.
        EmptyDatasetError: The stream has no rows.
        UnsupportedError: An address is passed, and the package datasets is not installed.

    Example:
        >>> import datasets
        >>> rows = datasets.Dataset.from_dict({"input_values": [[0.0] * 800] * 6}).to_iterable_dataset()
        >>> [len(step) for step in StreamBatches(rows).steps(4, count=2)]
        [4, 4]
    """

    def __init__(
        self,
        dataset: Any,
        *,
        max_length_s: float | None = None,
        mode: StreamMode = "random",
        seed: int = 0,
        column: str | None = None,
        model: torch.nn.Module | None = None,
        window_clips: int = WINDOW_CLIPS,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        check_seed(seed)
        clips, size = checked("window_clips", window_clips, int), checked("window_bytes", window_bytes, int)
        if not 1 <= clips <= 1_000_000 or size < 1:
            raise InvalidArgumentError(
                f"a window of {clips} clips and {size} bytes is out of range", "leave window_clips and window_bytes out"
            )
        self.max_length_s: float | None = checked("max_length_s", max_length_s, float | None)
        self.mode: StreamMode = checked("mode", mode, StreamMode)
        self.seed, self.window_clips, self.window_bytes = seed, window_clips, window_bytes
        from ..data.hf_datasets import stored

        dataset = resolved(open_source(dataset).stream())
        schema = schema_of(dataset)
        prepared = prepared_column(schema)
        self.column: str = column or prepared or audio_column(schema)
        self.stored = stored(dataset)
        """The dataset, whose audio is not decoded."""
        self._prepared, self._model = self.column == prepared, model

    def settings(self, share: int, rank: int, ranks: int) -> dict[str, Any]:
        """Return what the order of clips depends on, which a resumed run must have in common with its beginning.

        Args:
            share: The clips of this process in an optimizer step.
            rank: The rank of this process.
            ranks: The number of processes.

        Returns:
            The values by their names, as a checkpoint stores them.
        """
        return {
            "clips a step": share * ranks, "processes": ranks, "rank": rank, "mode": self.mode, "seed": self.seed,
            "max_length_s": self.max_length_s, "window_clips": self.window_clips, "window_bytes": self.window_bytes,
        }  # fmt: skip

    def steps(
        self, share: int, *, count: int | None = None, start: StreamPosition | None = None, rank: int = 0,
        ranks: int = 1, begun: Callable[[StreamPosition], None] = lambda position: None,
    ) -> Iterator[list[dict[str, Any]]]:  # fmt: skip
        """Iterate over optimizer steps: the clips of this process in each.

        Args:
            share: The clips of this process in an optimizer step.
            count: The number of steps; None for steps without end.
            start: The position of the window to begin with, from ``begun`` of an earlier run; None for the first.
            rank: The rank of this process.
            ranks: The number of processes.
            begun: A function that is called with the position of each window when it begins.

        Returns:
            An iterator over lists of rows, the longest clip first.

        Raises:
            EmptyDatasetError: No clip of the stream can be used.
            CorruptFileError: The stream does not lead to the clips of ``start``.
        """
        stop, made = threading.Event(), 0
        windows = WindowReader(self, share, rank, ranks).windows(start or StreamPosition(), stop)
        with ThreadPoolExecutor(1, "asrconfig-stream") as thread:
            try:
                reading = thread.submit(next, windows)
                while count is None or made < count:
                    window = reading.result()
                    begun(window.position)
                    made += len(window.steps)
                    if count is None or made < count:
                        reading = thread.submit(next, windows)
                    remaining = len(window.steps) if count is None else len(window.steps) - max(0, made - count)
                    yield from window.steps[:remaining]
            finally:
                stop.set()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        raise InvalidArgumentError(
            "a StreamBatches has no clips without a batch size", "train by manager.train(trainer), which knows it"
        )

    def seconds(self, rows: list[dict[str, Any]]) -> array[float]:
        """Measure the duration of rows.

        Args:
            rows: The rows of the stream. The address of a remote file is replaced by the file's bytes in them.

        Returns:
            The seconds of each row, NaN for those that cannot be read.

        Raises:
            InvalidArgumentError: How long a frame lasts does not follow from the model.
        """
        if self._prepared:
            unit = input_unit(self.column, axes_of(rows[0][self.column]), self._model)
            return array("d", (unit.seconds(len(row[self.column])) for row in rows))
        for row in rows:
            row[self.column] = with_bytes(row[self.column])
        return clip_seconds([row[self.column] for row in rows])

    def __repr__(self) -> str:
        limit = "" if self.max_length_s is None else f", clips up to {self.max_length_s:g} s"
        return f"StreamBatches({self.mode} steps of column {self.column!r}{limit}, seed {self.seed})"
