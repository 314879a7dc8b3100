"""How large micro-batches may be."""

from __future__ import annotations

from typing import Any

from .split import batch_size

_INPUTS = ("input_values", "input_features", "input_ids")


class Budget:
    """At most ``samples`` a micro-batch, and once one has not fitted, at most so many values of the model's input.

    What a step needs grows with the padded batch, samples × length: half of a batch that failed is a limit that lets
    short clips ride in larger micro-batches than long ones.
    """

    def __init__(self, samples: int | None) -> None:
        self.samples = samples
        self.values: int | None = None

    def size(self, inputs: Any) -> int:
        """The samples of a micro-batch of ``inputs``; at least 1, at most all of them."""
        n = batch_size(inputs)
        size = min(n, self.samples or n)
        return size if self.values is None else max(1, min(size, self.values // values_per_sample(inputs)))

    def shrink(self, inputs: Any, size: int) -> None:
        """From now on no more than ``size`` samples like those of ``inputs``, which did not fit."""
        self.values = size * values_per_sample(inputs)


def values_per_sample(inputs: Any) -> int:
    """Numbers of the model's input for each sample, padding included; 1 of an input of another name: samples count."""
    known = [inputs[name] for name in _INPUTS if hasattr(inputs.get(name), "shape")]
    if not known:
        return 1
    count = 1
    for length in known[0].shape[1:]:
        count *= int(length)
    return max(1, count)
