"""Fetches batches, with fewer loader workers after host memory ran out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .._base.out_of_memory import classify, clear_frames, first_line, free_memory
from .._base.random_state import cpu_state, set_cpu_state


class Loading:
    """The batches of one Trainer's epochs.

    When a worker is killed or a batch does not fit into host memory, the epoch continues after the last batch that was
    delivered, in the same order, with half the workers: the order is drawn from the random numbers that there were when
    the epoch began. The signal that a worker was killed may come in the middle of a step. Dataset that draw numbers
    of their own for each sample draw others then.
    """

    def __init__(self, trainer: Any, happened: Callable[..., None]) -> None:
        self._trainer, self._happened = trainer, happened
        self._again: Iterator[Any] | None = None  # in place of the Trainer's iterator of this epoch
        self.delivered = self._epoch = 0
        """Batches of this epoch that the Trainer has been given, those included that a resumed training skips."""
        self._samplers: list[tuple[Any, int]] | None = None  # and their epochs
        self._begin: dict[str, Any] | None = None
        self._short: str | None = None  # why the iterator is not to be used any more

    def epoch_begins(self) -> None:
        """Note where an epoch begins; the Trainer makes its iterator next."""
        state = self._trainer.state
        self._again, self._samplers, self._begin = None, None, cpu_state()
        self._epoch = int(round(state.epoch or 0.0, 6))
        self.delivered = self._done_before()

    def _done_before(self) -> int:
        """Batches of this epoch that a resumed training skips, as the Trainer counts them."""
        if self._trainer.args.ignore_data_skip:
            return 0
        loader, every = self._loader(), self._trainer.args.gradient_accumulation_steps
        try:
            steps = max(1, -(-len(loader) // every))
        except TypeError:  # a stream
            return 0
        return int(self._trainer.state.global_step % steps * every)

    def fetch(self, original: Callable[..., Any], epoch_iterator: Any, *args: Any) -> Any:
        """What ``original``, the Trainer's ``get_batch_samples``, returns; once more if host memory runs out."""
        if self._samplers is None:
            self._samplers = [(s, s.epoch) for s in _with_epochs(self._loader())]
        fetched, undo = None, _nothing
        try:
            if self._short is None:
                fetched = original(self._again or epoch_iterator, *args)
        except Exception as error:
            undo = _ignore_late_signals()
            if self._begin is None or not self._ran_out(error):
                undo()
                raise
            clear_frames(error)
            self._short = first_line(error)
        if fetched is None:
            try:
                free_memory()
                self._happened("loading", self._short, *self._fewer_workers())
            finally:
                undo()
            self._short = None
            fetched = original(self._restarted(), *args)
        self.delivered += len(fetched[0])
        return fetched

    def _ran_out(self, error: Exception) -> bool:
        workers = getattr(self._base(), "num_workers", 0)
        return classify(error)["class"] == "host_oom" or (workers > 0 and _worker_gone(error))

    def ran_short(self, error: Exception) -> bool:
        """Host memory ran out outside of loading: use fewer workers for the next window. False outside of an epoch."""
        if self._begin is not None:
            self._short = first_line(error)
        return self._begin is not None

    def _fewer_workers(self) -> tuple[int, int]:
        """Halve the workers and let each prefetch one batch, from the next iterator on; gives both numbers."""
        loader, base = self._loader(), self._base()
        before = int(base.num_workers)
        after = before // 2
        changed: dict[str, Any] = {"num_workers": after, "prefetch_factor": 1 if after else None, "_iterator": None}
        if base.persistent_workers:
            # A new iterator draws a seed for its workers, which lasting ones would not have repeated.
            changed |= {"persistent_workers": after > 0, "generator": torch.Generator().manual_seed(0)}
        for each in (base, loader):  # DataLoader refuses some of these by assignment: they must agree, and here they do
            each.__dict__.update(changed)
        return before, after

    def _restarted(self) -> Iterator[Any]:
        """The rest of the epoch's batches."""
        from accelerate import skip_first_batches

        stale = self._trainer.accelerator.gradient_state.active_dataloader
        if stale is not None:
            stale.end()
        now = cpu_state()
        assert self._begin is not None
        set_cpu_state(self._begin)
        try:
            rest = skip_first_batches(self._loader(), self.delivered)
            if hasattr(rest, "set_epoch"):
                rest.set_epoch(self._epoch)
            for sampler, epoch in self._samplers or ():  # one that was read to its end has gone on to the next epoch
                sampler.set_epoch(epoch)
            batches = iter(rest)
            first = next(batches, None)  # orders are drawn with the first batch
        finally:
            set_cpu_state(now)
        self._again = _after(first, batches)
        return self._again

    def _loader(self) -> Any:
        return self._trainer.callback_handler.train_dataloader

    def _base(self) -> Any:
        loader = self._loader()
        return getattr(loader, "base_dataloader", loader)


def _worker_gone(error: Exception) -> bool:
    """Whether a batch could not be fetched from its worker because that was killed just then.

    A batch lies in its worker's memory until it is fetched through a socket, which a killed process closes before its
    parent gets the signal. torch then says that a worker "exited unexpectedly", from the socket's error, or raises that
    itself where the process is not quite gone. The dataset's own errors come back as "Caught … in DataLoader worker".
    """
    found = error.__cause__ if "exited unexpectedly" in str(error) else error
    return isinstance(found, ConnectionError | EOFError | FileNotFoundError) and not str(found).startswith("Caught ")


def _nothing() -> None:
    """Nothing is to be undone."""


def _ignore_late_signals() -> Callable[[], None]:
    """While a worker's death is handled: its signal may arrive only now, and torch's handler would raise once more."""
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        return _nothing
    before = signal.signal(signal.SIGCHLD, lambda *_: None)

    def undo() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if before is None else before)

    return undo


def _with_epochs(loader: Any) -> list[Any]:
    """The samplers of a loader that draw another order in each epoch."""
    found, each = [], loader
    while each is not None:
        inside = getattr(each, "batch_sampler", None)  # has no truth of its own: that of a stream has no length
        each = getattr(each, "sampler", None) if inside is None else inside
        if hasattr(each, "set_epoch") and hasattr(each, "epoch"):
            found.append(each)
    return found


def _after(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    if first is not None:
        yield first
        yield from rest
