"""``StreamBatches``: a stream of clips as the batches of optimizer steps."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypedDict

from torch.utils.data import IterableDataset

from .._base.checks import check_seed, checked
from .._base.choices import StreamMode
from .._base.errors import InvalidArgumentError
from ..data.hf_sources import audio_column, prepared_column
from ..data.prepared_rows import axes_of, input_unit
from ..data.scan import clip_seconds
from ..data.stream_sources import open_stream, resolved, with_bytes
from .stream_windows import StreamPosition, WindowReader

WINDOW_CLIPS, WINDOW_BYTES = 1024, 1 << 28
_EPOCHS = 1 << 20  # with different orders for each seed
_HINT = 'pass a dataset that was loaded with streaming=True, or addresses such as "hf://datasets/me/mine/*.parquet"'


class StreamSettings(TypedDict, total=False):
    """What ``config.stream`` takes of ``StreamBatches`` by keyword."""

    max_length_s: float | None
    mode: StreamMode
    seed: int
    column: str | None
    model: Any
    window_clips: int
    window_bytes: int


class StreamBatches(IterableDataset):  # type: ignore[misc]
    """A stream of clips as a Trainer's ``train_dataset``: ``manager.train(trainer)`` reads its optimizer steps.

    ``dataset`` is a ``datasets.IterableDataset``, or the address of tar shards (WebDataset) or Parquet files that
    fsspec opens, or a list of addresses. A window of whole steps is read ahead, at most about ``window_clips`` clips (1
    to 1 000 000) or ``window_bytes`` bytes as stored, while the one before it is trained on: memory stays constant. Of
    each window, ``mode`` ``"random"`` makes steps of any clips, ``"bucketed"`` of clips of similar length; the order of
    steps and clips follows ``seed``. Every step has exactly as many clips as the Trainer's arguments tell, and where
    the stream ends it begins again. Clips longer than ``max_length_s`` seconds and those that cannot be read are left
    out, counted and logged. ``column`` is that of the audio or of a model's input (None: the usual names); of frames,
    ``model`` tells how long one lasts.

    Audio comes to the collator as ``Audio(decode=False)`` stores it: ``make_collator`` and ``load_audio`` take it. The
    stream is read in the Trainer's process, in a thread; its workers collate. Several processes divide the stream by
    ``split_dataset_by_node``. Raises ``InvalidArgumentError``.

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
        model: Any = None,
        window_clips: int = WINDOW_CLIPS,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        if isinstance(dataset, str | list):
            dataset = open_stream([dataset] if isinstance(dataset, str) else dataset)
        if not hasattr(dataset, "column_names") or hasattr(dataset, "__len__"):
            raise InvalidArgumentError(f"a {type(dataset).__name__} is no stream of clips", _HINT)
        check_seed(seed)
        clips, size = checked("window_clips", window_clips, int), checked("window_bytes", window_bytes, int)
        if not 1 <= clips <= 1_000_000 or size < 1:
            raise InvalidArgumentError(
                f"a window of {clips} clips and {size} bytes is out of range", "leave window_clips and window_bytes out"
            )
        self.max_length_s: float | None = checked("max_length_s", max_length_s, float | None)
        self.mode: StreamMode = checked("mode", mode, StreamMode)
        self.seed, self.window_clips, self.window_bytes = seed, window_clips, window_bytes
        self._dataset = resolved(dataset)
        prepared = prepared_column(self._dataset)
        self.column: str = column or prepared or audio_column(self._dataset)
        from ..data.undecoded_audio import stored

        self._dataset = stored(self._dataset)
        self._prepared, self._model = self.column == prepared, model

    def settings(self, share: int, rank: int, ranks: int) -> dict[str, Any]:
        """What the order of clips depends on: another one makes another run."""
        return {
            "clips a step": share * ranks, "processes": ranks, "rank": rank, "mode": self.mode, "seed": self.seed,
            "max_length_s": self.max_length_s, "window_clips": self.window_clips, "window_bytes": self.window_bytes,
        }  # fmt: skip

    def reader(self, share: int, rank: int = 0, ranks: int = 1) -> WindowReader:
        """What reads the part of process ``rank`` of ``ranks``, ``share`` clips a step."""
        longest = math.inf if self.max_length_s is None else self.max_length_s
        return WindowReader(
            partial(self._opened, rank, ranks), self._seconds, share, max(1, self.window_clips // ranks),
            max(1, self.window_bytes // ranks), longest, self.mode == "bucketed", self.seed, rank,
        )  # fmt: skip

    def steps(
        self, share: int, *, count: int | None = None, start: StreamPosition | None = None, rank: int = 0,
        ranks: int = 1, begun: Callable[[StreamPosition], None] = lambda position: None,
    ) -> Iterator[list[dict[str, Any]]]:  # fmt: skip
        """The clips of each of ``count`` optimizer steps (None: without end), ``share`` of them by process ``rank``.

        ``begun`` is called with the position at which each window begins.
        """
        reader, stop = self.reader(share, rank, ranks), threading.Event()
        windows, made = reader.windows(start or StreamPosition(), stop), 0
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

    def _opened(self, rank: int, ranks: int, epoch: int) -> Any:
        from datasets.distributed import split_dataset_by_node

        dataset = split_dataset_by_node(self._dataset, rank, ranks)
        dataset.set_epoch(1 + self.seed % _EPOCHS * _EPOCHS + epoch)  # 0 would leave shards in the stream's order
        return dataset

    def _seconds(self, rows: list[dict[str, Any]]) -> array[float]:
        if self._prepared:
            unit = input_unit(self.column, axes_of(rows[0][self.column]), self._model)
            return array("d", (unit.seconds(len(row[self.column])) for row in rows))
        for row in rows:
            row[self.column] = with_bytes(row[self.column])
        return clip_seconds([row[self.column] for row in rows])

    def __repr__(self) -> str:
        limit = "" if self.max_length_s is None else f", clips up to {self.max_length_s:g} s"
        return f"StreamBatches({self.mode} steps of column {self.column!r}{limit}, seed {self.seed})"
