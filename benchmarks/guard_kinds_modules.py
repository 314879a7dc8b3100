"""Models that remember or draw something in their forward, for ``guard_kinds.py``."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from tiny_training import Regression


class Averaging(Regression):
    """A moving average of activations that is taken off them: each forward moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        if self.training:
            self.mean.lerp_(x.mean(0).detach(), 0.3)
        return super().forward(x - self.mean, labels, index)


class Warming(Regression):
    """The loss grows with the number of forwards, a buffer."""

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        outputs = super().forward(x, labels, index)
        if self.training:
            outputs["loss"] = outputs["loss"] * (self.batches / 10).clamp(max=1.0)
        return outputs


class PythonWarming(Regression):
    """The same, with a number of Python."""

    calls = 0

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        outputs = super().forward(x, labels, index)
        if self.training:
            self.calls += 1
            outputs["loss"] = outputs["loss"] * min(1.0, self.calls / 10)
        return outputs


class Carrying(Regression):
    """Starts from what the batch before left behind, in a tensor that is no buffer."""

    carried: Any = 0.0

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        outputs = super().forward(x + self.carried, labels, index)
        if self.training:
            self.carried = 0.5 * x.mean(0).detach()
        return outputs


class Normalised(Regression):
    """With batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6)

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        return super().forward(self.norm(x), labels, index)


class Spectral(Regression):
    """With spectral normalisation: each forward of training is one more power iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.utils.parametrizations.spectral_norm(self.first)


class Unpacked(Regression):
    """Gives a tuple."""

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> Any:
        outputs = super().forward(x, labels, index)
        return outputs["loss"], outputs["logits"]


class Sometimes(Regression):
    """Uses a branch only for some batches, by a sample's number."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = torch.nn.Linear(6, 1)

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        outputs = super().forward(x, labels, index)
        chosen = (index % 5 == 0).float()[:, None] if index is not None else torch.zeros(len(x), 1)
        if bool(chosen.any()):
            logits = outputs["logits"] + chosen * self.extra(x)
            outputs = {"loss": torch.nn.functional.mse_loss(logits, labels), "logits": logits}
        return outputs


class Drawing(Regression):
    """Draws the strength of a noise by Python's and numpy's generators."""

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        if self.training:
            x = x * (1 + 0.1 * random.random()) + 0.1 * float(np.random.rand())
        return super().forward(x, labels, index)
