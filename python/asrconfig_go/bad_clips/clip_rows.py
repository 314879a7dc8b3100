"""Which rows of a dataset are in the batches that its loader delivers.

A loader asks its batch sampler for the rows of a batch and delivers batches in that order, however many workers there
are. What the sampler gave is kept by the batch's number in the epoch, of the newest batches. Each process keeps its
own: its sampler is the sharded one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_KEPT = 10_000  # batches, more than loaders fetch ahead


class _Numbered:
    """A batch sampler in whose place it stands, in all but its iterator, which keeps what it gives."""

    def __init__(self, sampler: Any) -> None:
        self.numbered = sampler
        self.given: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        given = self.given = {}
        for number, rows in enumerate(self.numbered):
            given[number] = rows
            given.pop(number - _KEPT, None)
            yield rows

    def __len__(self) -> int:
        return len(self.numbered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["numbered"], name)


class ClipRows:
    """The rows of each batch that one loader of a Trainer has delivered; ``dataset`` is the one that they are of."""

    def __init__(self, trainer: Any, delivered: Callable[[], int]) -> None:
        """``delivered`` is how many batches of the epoch the loader has delivered."""
        self.trainer, self._delivered = trainer, delivered
        self.dataset: Any = None
        self._sampler: _Numbered | None = None
        self._undo: list[Callable[[], None]] = []
        self.unknown: str = "no epoch has begun"
        """Why rows are not known, "" where they are."""

    def epoch_begins(self) -> None:
        """The Trainer makes its iterator next."""
        self.follow(self.trainer.callback_handler.train_dataloader, self.trainer.train_dataset)

    def follow(self, loader: Any, dataset: Any) -> None:
        """Have the loader's sampler keep what it gives to the iterator that is made next."""
        base, self.dataset = getattr(loader, "base_dataloader", loader), dataset
        self.unknown = _unknown(loader, base)
        if self.unknown or isinstance(base.batch_sampler, _Numbered):
            return
        self.remove()
        self._sampler = _Numbered(base.batch_sampler)
        for each in (base, loader):
            if "batch_sampler" in vars(each):  # which DataLoader refuses to have assigned
                self._put(each, self._sampler)

    def _put(self, loader: Any, sampler: _Numbered) -> None:
        loader.__dict__["batch_sampler"] = sampler
        self._undo.append(lambda: loader.__dict__.update(batch_sampler=sampler.numbered))

    def remove(self) -> None:
        """Leave the loader as it was found."""
        for undo in self._undo:
            undo()
        self._undo, self._sampler = [], None

    def of(self, batch: int, kept: list[int] | None, clips: int) -> list[int] | None:
        """The rows of the clips that are left of a batch, ``kept``, or of all of so many clips; None where not known.

        ``batch`` counts from the last one that was delivered, which is -1.
        """
        given = {} if self._sampler is None else self._sampler.given
        rows = given.get(self._delivered() + batch)
        fits = rows is not None and (len(rows) == clips if kept is None else len(rows) > max(kept, default=-1))
        if rows is None or not fits or not all(isinstance(row, int) for row in rows):
            self.unknown = self.unknown or "a batch has not one clip for each row that its sampler gave"
            return None
        return [rows[i] for i in (range(clips) if kept is None else kept)]


def _unknown(loader: Any, base: Any) -> str:
    from torch.utils.data import DataLoader, IterableDataset

    if not isinstance(base, DataLoader):
        return f"the loader is a {type(base).__name__}, which has no batch sampler"
    if isinstance(base.dataset, IterableDataset) or base.batch_sampler is None:
        return "the dataset is a stream, whose rows have no numbers"
    if type(loader).__name__ == "DataLoaderDispatcher":
        return "one process dispatches the batches of all"
    if not getattr(base, "in_order", True):
        return "the loader's workers deliver batches in any order (in_order=False)"
    return ""
