"""The lengths that a model derives from its input's, found by watching convolutions over time."""

from __future__ import annotations

from typing import Any

import torch

_FIELDS = ("kernel", "stride", "padding", "dilation")


class Lengths:
    """A ladder: the input's length, and each length that a convolution made of one of them."""

    def __init__(self) -> None:
        self.rungs: list[dict[str, Any]] = [{"name": "input"}]
        self._seen: dict[tuple[int, ...], None] = {}  # in order: length before, then _FIELDS

    def saw(self, weight: torch.Tensor, source: torch.Tensor, stride: Any, padding: Any, dilation: Any) -> None:
        """One convolution; time is the first of its spatial axes."""
        if source.dim() > 2:
            pad, spread = (padding[0] if padding else 0), (dilation[0] if dilation else 1)
            self._seen[(source.shape[2], weight.shape[2], stride[0], pad, spread)] = None

    def settle(self, length: int | None) -> None:
        """The batch seen since the last call had this length: add what its convolutions made of it."""
        seen, self._seen = list(self._seen), {}
        rung_of = {} if length is None else {length: 0}
        for before, kernel, stride, padding, dilation in seen:
            after = (before + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            if before in rung_of and after not in rung_of:
                made = {"of": rung_of[before], **dict(zip(_FIELDS, (kernel, stride, padding, dilation), strict=True))}
                rung_of[after] = self._rung(made)

    def _rung(self, made: dict[str, int]) -> int:
        for number, known in enumerate(self.rungs):
            if known.items() >= made.items():
                return number
        self.rungs.append({"name": f"length{len(self.rungs)}", **made})
        return len(self.rungs) - 1
