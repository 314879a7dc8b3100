"""A Trainer's loader: batches fetched with fewer workers after host memory ran out, and the rows of each batch.

A loader asks its batch sampler for the rows of a batch and delivers batches in that order, however many workers there
are. What the sampler gave is kept by the batch's number in the epoch, of the newest batches. Each process keeps its
own: its sampler is the sharded one.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .._core.files import from_storage
from .._core.out_of_memory import classify, clear_frames, first_line, free_memory
from .._core.output import kind_of
from .._core.random_state import cpu_state, set_cpu_state

if TYPE_CHECKING:
    from transformers import Trainer

_NEWEST = 10_000  # batches, more than loaders fetch ahead
_OTHER_ORDER = "; a stream's order follows its workers: from here on clips of this epoch may come twice, or not at all"


class Loading:
    """The batches of one Trainer's epochs.

    When a worker is killed or a batch does not fit into host memory, the epoch continues after the last batch that was
    delivered, in the same order, with half the workers: the order is drawn from the random numbers that there were when
    the epoch began. The order of a stream follows the number of its workers, which is halved only where the same
    number fails again. The signal that a worker was killed may come in the middle of a step. Datasets that draw random
    numbers for each example draw other ones then.
    """

    def __init__(self, trainer: Trainer, note: Callable[..., None]) -> None:
        """``note`` notes a retry: see ``Attempts``."""
        self._trainer, self._note = trainer, note
        self._again: Iterator[Any] | None = None  # in place of the Trainer's iterator of this epoch
        self.delivered = 0
        """Batches of this epoch that the Trainer has been given, those included that a resumed training skips."""
        self._epoch: int | None = None  # as the Trainer counts them, which begins again with each training
        self._samplers: list[tuple[Any, int]] | None = None  # and their epochs
        self._begin: dict[str, Any] | None = None
        self._short: str | None = None  # why the iterator is not to be used any more

    def training_begins(self) -> None:
        """Count epochs from the one in which the training begins."""
        self._epoch = None

    def epoch_begins(self) -> None:
        """Note where an epoch begins; the Trainer makes its iterator next."""
        self._again, self._samplers, self._begin = None, None, cpu_state()
        self.delivered = 0
        if self._epoch is not None:
            self._epoch += 1
            return
        args, steps = self._trainer.args, self._trainer.args.max_steps
        with contextlib.suppress(TypeError):  # a stream has no length: its first epoch has all steps
            steps = max(1, -(-len(self._loader()) // args.gradient_accumulation_steps))
        self._epoch, done = divmod(self._trainer.state.global_step, steps)
        if not args.ignore_data_skip:
            self.delivered = done * args.gradient_accumulation_steps

    def fetch(self, original: Callable[..., Any], epoch_iterator: Iterator[Any], *args: object) -> Any:
        """What ``original``, the Trainer's ``get_batch_samples``, returns.

        It is repeated with half the workers each time that host memory runs out, without workers once, and as a stream
        with the same number first; and a few times, with growing pauses, where the storage that a dataset reads from
        does not answer.
        """
        if self._samplers is None:
            self._samplers = [(s, s.epoch) for s in _with_epochs(self._loader())]
        tries = 0

        def fetch() -> Any:
            nonlocal tries
            tries += 1
            return original(self._restarted() if tries > 1 else self._again or epoch_iterator, *args)

        while True:
            if self._short is not None:
                with _late_signals_ignored():
                    self._use_fewer_workers(self._short, tries)
                self._short, tries = None, 1
            try:
                fetched = fetch() if self._begin is None else from_storage("", fetch, files_alone=False)
                self.delivered += len(fetched[0])
                return fetched
            except Exception as error:
                with _late_signals_ignored():
                    last = tries > 1 and not _inside(self._loader()).num_workers
                    if last or self._begin is None or not ran_out(error, self._loader()):
                        raise
                    clear_frames(error)
                    self._use_fewer_workers(first_line(error), tries - 1)

    def _use_fewer_workers(self, reason: str, tries: int) -> None:
        """Use fewer workers after ``tries`` that failed before; a stream has its order only with as many."""
        free_memory()
        is_stream = isinstance(_inside(self._loader()).dataset, torch.utils.data.IterableDataset)
        before, after = fewer_workers(self._loader(), keep=is_stream and not tries)
        changes_order = is_stream and after < before > 1  # one worker reads as none does
        self._note("loading", reason + _OTHER_ORDER * changes_order, before=before, after=after)

    def ran_short(self, error: Exception) -> bool:
        """Host memory ran out outside of loading: use fewer workers for the next window. False outside of an epoch."""
        if self._begin is not None:
            self._short = first_line(error)
        return self._begin is not None

    def _restarted(self) -> Iterator[Any]:
        from accelerate import skip_first_batches

        stale = self._trainer.accelerator.gradient_state.active_dataloader
        if stale is not None:
            stale.end()
        now = cpu_state()
        assert self._begin is not None
        set_cpu_state(self._begin)
        try:
            remaining = skip_first_batches(self._loader(), self.delivered)
            if hasattr(remaining, "set_epoch"):
                remaining.set_epoch(self._epoch)
            for sampler, epoch in self._samplers or ():  # one that was read to its end has gone on to the next epoch
                sampler.set_epoch(epoch)
            batches = iter(remaining)
            first = list(itertools.islice(batches, 1))  # orders are drawn with the first batch
        finally:
            set_cpu_state(now)
        self._again = itertools.chain(first, batches)
        return self._again

    def _loader(self) -> Any:
        return self._trainer.callback_handler.train_dataloader


def _inside(loader: torch.utils.data.DataLoader) -> Any:
    return getattr(loader, "base_dataloader", loader)


def fewer_workers(loader: torch.utils.data.DataLoader, *, keep: bool = False) -> tuple[int, int]:
    """Halve the workers and let each prefetch one batch, from the next iterator on; returns both numbers.

    ``keep`` keeps their number.
    """
    base = _inside(loader)
    before = int(base.num_workers)
    after = before if keep else before // 2
    changed: dict[str, Any] = {"num_workers": after, "prefetch_factor": 1 if after else None, "_iterator": None}
    if base.persistent_workers:
        # A new iterator draws a seed for its workers, which lasting ones would not have repeated.
        changed |= {"persistent_workers": after > 0, "generator": torch.Generator().manual_seed(0)}
    for part in (base, loader):  # DataLoader refuses some of these by assignment: they must agree, and here they do
        part.__dict__.update(changed)
    return before, after


def ran_out(error: Exception, loader: torch.utils.data.DataLoader) -> bool:
    """Whether ``loader`` failed for a lack of host memory, shared memory included."""
    is_host_oom: bool = classify(error)["class"] == "host_oom"
    if is_host_oom or not getattr(_inside(loader), "num_workers", 0):
        return is_host_oom
    # multiprocessing raises an OSError without a name where /dev/shm has no room for a semaphore, or does not exist.
    frames = traceback.extract_tb(error.__traceback__) if isinstance(error, OSError) else []
    return _worker_gone(error) or (bool(frames) and Path(frames[-1].filename).parent.name == "multiprocessing")


def _worker_gone(error: Exception) -> bool:
    """Whether a batch could not be fetched from its worker because that was killed just then.

    A batch lies in its worker's memory until it is fetched through a socket, which a killed process closes before its
    parent gets the signal. torch then says that a worker "exited unexpectedly", from the socket's error, or raises that
    itself where the process is not quite gone. The dataset's own errors come back as "Caught … in DataLoader worker".
    """
    cause = error.__cause__ if "exited unexpectedly" in str(error) else error
    return isinstance(cause, ConnectionError | EOFError | FileNotFoundError) and not str(cause).startswith("Caught ")


@contextlib.contextmanager
def _late_signals_ignored() -> Iterator[None]:
    """Ignore a worker's signal that arrives while its death is handled: torch's handler would raise again."""
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    try:
        before = signal.signal(signal.SIGCHLD, lambda *_: None)
    except RuntimeError:  # by torch's handler, which Python calls first, once, where the signal waits already
        before = signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if before is None else before)


def _with_epochs(loader: torch.utils.data.DataLoader) -> list[Any]:
    """The samplers of a loader that draw another order in each epoch."""
    samplers, sampler = [], loader
    while sampler is not None:
        inside = getattr(sampler, "batch_sampler", None)  # has no truth of its own: that of a stream has no length
        sampler = getattr(sampler, "sampler", None) if inside is None else inside
        if hasattr(sampler, "set_epoch") and hasattr(sampler, "epoch"):
            samplers.append(sampler)
    return samplers


class _Numbered:
    """Wraps a batch sampler, and keeps the rows of the newest batches."""

    def __init__(self, sampler: torch.utils.data.Sampler) -> None:
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

    def __init__(self, trainer: Trainer, delivered: Callable[[], int]) -> None:
        """``delivered`` is how many batches of the epoch the loader has delivered."""
        self.trainer, self._delivered = trainer, delivered
        self.dataset: torch.utils.data.Dataset | None = None
        self._sampler: _Numbered | None = None
        self._undo: list[Callable[[], None]] = []
        self.unknown: str = "no epoch has begun"
        """Why rows are not known, "" where they are."""

    def epoch_begins(self) -> None:
        """The Trainer makes its iterator next."""
        self.follow(self.trainer.callback_handler.train_dataloader, self.trainer.train_dataset)

    def follow(self, loader: torch.utils.data.DataLoader, dataset: torch.utils.data.Dataset) -> None:
        """Keep the rows that the loader's sampler yields to the next iterator."""
        base, self.dataset = _inside(loader), dataset
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


def _unknown(loader: torch.utils.data.DataLoader, base: torch.utils.data.DataLoader) -> str:
    from torch.utils.data import DataLoader, IterableDataset

    if not isinstance(base, DataLoader):
        return f"the loader is {kind_of(base)}, which has no batch sampler"
    if isinstance(base.dataset, IterableDataset) or base.batch_sampler is None:
        return "the dataset is a stream, whose rows have no numbers"
    if type(loader).__name__ == "DataLoaderDispatcher":
        return "one process dispatches the batches of all"
    if not getattr(base, "in_order", True):
        return "the loader's workers deliver batches in any order (in_order=False)"
    return ""
