"""Warm-up steps in the same pass over the data, so that workers run and the queue is full."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from .._base.errors import UnsupportedError
from .._base.override import override


class WarmedUp:
    """A batch sampler whose first ``extra`` batches come once more, before all of them."""

    def __init__(self, batches: Any, extra: int) -> None:
        self._batches, self._extra = batches, extra

    def __iter__(self) -> Iterator[Any]:
        yield from islice(cycle(self._batches), self._extra)
        yield from self._batches

    def __len__(self) -> int:
        return len(self._batches) + self._extra

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # looked up by pickle and copy before __init__
            raise AttributeError(name)
        return getattr(self._batches, name)


def with_warm_up(loader: Any, batches: int) -> Any:
    """A loader as ``loader``, which accelerate made, with this number of batches before it."""
    from accelerate import skip_first_batches

    made = skip_first_batches(loader, 0)  # the one public way to a loader with other batches
    wrapper: Any = getattr(made, "batch_sampler", None)
    if not hasattr(wrapper, "batch_sampler"):
        raise UnsupportedError(
            f"the batches of a {type(loader).__name__} cannot be repeated", "benchmark a dataset with a length"
        )
    wrapper.batch_sampler = WarmedUp(wrapper.batch_sampler, batches)
    return made


@contextlib.contextmanager
def warmed_up(trainer: Any, batches: int) -> Iterator[None]:
    """Put this number of batches before those of ``trainer``, and end its loader's workers afterwards.

    The garbage collector would end them only after 5 s, since it destroys their queues first.
    """
    make, made = trainer.get_train_dataloader, list[Any]()

    def with_more() -> Any:
        made.append(with_warm_up(make(), batches))
        return made[-1]

    override(trainer, "get_train_dataloader", with_more)
    try:
        yield
    finally:
        for loader in made:
            base = getattr(loader, "base_dataloader", loader)  # accelerate's loaders are around torch's
            if hasattr(base, "_iterator"):
                base._iterator = None
