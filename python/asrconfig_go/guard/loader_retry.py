"""Fetches batches, with fewer loader workers after host memory ran out."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from .._base.errors import StorageError
from .._base.out_of_memory import classify, clear_frames, first_line, free_memory
from .._base.random_state import cpu_state, set_cpu_state

logger: logging.Logger = logging.getLogger("asrconfig_go")


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
        """What ``original``, the Trainer's ``get_batch_samples``, returns.

        As often again, each time with half the workers, as host memory runs out; without any of them, once. A few times
        again, with growing pauses, where the storage that a dataset reads from does not answer.
        """
        if self._samplers is None:
            self._samplers = [(s, s.epoch) for s in _with_epochs(self._loader())]
        restart, attempts = False, 0
        while True:
            if self._short is not None:
                with _late_signals_ignored():
                    self._use_fewer_workers(self._short)
                self._short, restart = None, True
            try:
                fetched = original(self._restarted() if restart else self._again or epoch_iterator, *args)
                self.delivered += len(fetched[0])
                return fetched
            except Exception as error:
                with _late_signals_ignored():
                    if self._begin is not None and self._comes_back(error, attempts):
                        attempts += 1
                    elif self._is_final(error, restart):
                        raise
                    else:
                        clear_frames(error)
                        self._use_fewer_workers(first_line(error))
            restart = True

    def _use_fewer_workers(self, reason: str) -> None:
        free_memory()
        self._happened("loading", reason, *fewer_workers(self._loader()))

    def _is_final(self, error: Exception, restarted: bool) -> bool:
        """Whether fewer workers would not help, or there are none left."""
        last = restarted and not self._base().num_workers
        return last or self._begin is None or not ran_out(error, self._base())

    def _comes_back(self, error: Exception, attempts: int) -> bool:
        """Whether to try again, after a pause, as storage did not answer. Raises ``StorageError`` after the last pause.

        ``attempts`` were made before. What this package read has had its pauses.
        """
        from .._base import storage

        reason = None if isinstance(error, StorageError) else storage.unanswered(error, files_alone=False)
        if reason is None:
            return False
        if attempts == len(storage.PAUSES_S):
            raise storage.storage_error("", reason, len(storage.PAUSES_S) + 1) from error
        text = storage.reason_of(reason)
        logger.warning("a batch cannot be read (%s): trying again in %g s", text, storage.PAUSES_S[attempts])
        clear_frames(error)
        storage.pause_for(storage.PAUSES_S[attempts])
        return True

    def ran_short(self, error: Exception) -> bool:
        """Host memory ran out outside of loading: use fewer workers for the next window. False outside of an epoch."""
        if self._begin is not None:
            self._short = first_line(error)
        return self._begin is not None

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
        return _inside(self._loader())


def _inside(loader: Any) -> Any:
    """What is wrapped by accelerate's loader."""
    return getattr(loader, "base_dataloader", loader)


def fewer_workers(loader: Any) -> tuple[int, int]:
    """Halve the workers and let each prefetch one batch, from the next iterator on; gives both numbers."""
    base = _inside(loader)
    before = int(base.num_workers)
    after = before // 2
    changed: dict[str, Any] = {"num_workers": after, "prefetch_factor": 1 if after else None, "_iterator": None}
    if base.persistent_workers:
        # A new iterator draws a seed for its workers, which lasting ones would not have repeated.
        changed |= {"persistent_workers": after > 0, "generator": torch.Generator().manual_seed(0)}
    for each in (base, loader):  # DataLoader refuses some of these by assignment: they must agree, and here they do
        each.__dict__.update(changed)
    return before, after


def ran_out(error: Exception, loader: Any) -> bool:
    """Whether ``loader`` failed for a lack of host memory, shared memory included."""
    workers = getattr(_inside(loader), "num_workers", 0)
    return classify(error)["class"] == "host_oom" or (workers > 0 and (_worker_gone(error) or _no_queue(error)))


def _no_queue(error: Exception) -> bool:
    """Whether there are no workers because /dev/shm has no room for a semaphore, or is not there; it is not named."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, OSError) and bool(frames) and Path(frames[-1].filename).parent.name == "multiprocessing"


def _worker_gone(error: Exception) -> bool:
    """Whether a batch could not be fetched from its worker because that was killed just then.

    A batch lies in its worker's memory until it is fetched through a socket, which a killed process closes before its
    parent gets the signal. torch then says that a worker "exited unexpectedly", from the socket's error, or raises that
    itself where the process is not quite gone. The dataset's own errors come back as "Caught … in DataLoader worker".
    """
    found = error.__cause__ if "exited unexpectedly" in str(error) else error
    return isinstance(found, ConnectionError | EOFError | FileNotFoundError) and not str(found).startswith("Caught ")


@contextlib.contextmanager
def _late_signals_ignored() -> Iterator[None]:
    """While a worker's death is handled: its signal may arrive only now, and torch's handler would raise once more."""
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    before = _ignore_dead_children()
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if before is None else before)


def _ignore_dead_children() -> Any:
    """The handler of the signal before; where that signal waits already, Python calls it first, once."""
    try:
        return signal.signal(signal.SIGCHLD, lambda *_: None)
    except RuntimeError:
        return signal.signal(signal.SIGCHLD, lambda *_: None)


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
