"""Which rows of a dataset are in the batches that its loader delivers.

A loader asks its batch sampler for the rows of a batch and delivers batches in that order, however many workers there
are. What the sampler gave is kept by the batch's number in the epoch, of the newest batches. Each process keeps its
own: its sampler is the sharded one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

_NEWEST = 10_000  # batches, more than loaders fetch ahead


class _Numbered:
    """Wraps a batch sampler, and keeps the rows of the newest batches."""

    def __init__(self, sampler: Any) -> None:
        self.numbered = sampler
        self.batches: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        batches = self.batches = {}
        for number, rows in enumerate(self.numbered):
            batches[number] = rows
            batches.pop(number - _NEWEST, None)
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
        """Keep the rows that the loader's sampler yields to the next iterator."""
        base, self.dataset = getattr(loader, "base_dataloader", loader), dataset
        self.unknown = _unknown(loader, base)
        if self.unknown or isinstance(base.batch_sampler, _Numbered):
            return
        self.remove()
        self._sampler = _Numbered(base.batch_sampler)
        for part in (base, loader):
            if "batch_sampler" in vars(part):  # which DataLoader refuses to have assigned
                self._undo.append(partial(vars(part).update, batch_sampler=self._sampler.numbered))
                vars(part)["batch_sampler"] = self._sampler

    def remove(self) -> None:
        """Leave the loader as it was found."""
        for undo in self._undo:
            undo()
        self._undo, self._sampler = [], None

    def of(self, batch: int, remaining: list[int] | None, clips: int) -> list[int] | None:
        """The rows of a batch of ``clips`` clips, or of its ``remaining`` ones; None where they are not known.

        ``batch`` counts from the last one that was delivered, which is -1.
        """
        batches = {} if self._sampler is None else self._sampler.batches
        rows = batches.get(self._delivered() + batch, ())
        fits = len(rows) == clips if remaining is None else len(rows) > max(remaining, default=-1)
        if not rows or not fits or not all(isinstance(row, int) for row in rows):
            self.unknown = self.unknown or "a batch has not one clip for each row that its sampler gave"
            return None
        return [rows[i] for i in (range(clips) if remaining is None else remaining)]


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
