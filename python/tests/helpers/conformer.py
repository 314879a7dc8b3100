"""A module of a user's own, whose config says nothing: a small conformer with CTC over log-mel features."""

from __future__ import annotations

from typing import Any

import torch


class Layer(torch.nn.Module):  # type: ignore[misc]
    """A layer of a conformer: feed-forward, attention, convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(4))
        self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.gates, self.out = torch.nn.Linear(width, 2 * width), torch.nn.Linear(width, width)
        self.depthwise = torch.nn.Conv1d(width, width, 31, padding=15, groups=width)

    def forward(self, x: Any) -> Any:
        x = x + self.narrow(torch.nn.functional.silu(self.wide(self.norms[0](x))))
        y = self.norms[1](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = torch.nn.functional.glu(self.gates(self.norms[2](x)), -1)
        x = x + self.out(torch.nn.functional.silu(self.depthwise(y.transpose(1, 2)).transpose(1, 2)))
        return self.norms[3](x)


class Conformer(torch.nn.Module):  # type: ignore[misc]
    """A small conformer with CTC over log-mel features."""

    def __init__(self, width: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.first = torch.nn.Conv1d(80, width, 3, stride=2, padding=1)
        self.second = torch.nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.layers = torch.nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = torch.nn.Linear(width, 32)

    def forward(self, input_features: Any, labels: Any) -> dict[str, Any]:
        x = self.second(self.first(input_features.transpose(1, 2)).relu()).relu().transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        scores = self.head(x).log_softmax(-1).transpose(0, 1).float()
        frames = torch.full((x.shape[0],), x.shape[1])
        texts = torch.full((x.shape[0],), labels.shape[1])
        return {"loss": torch.nn.functional.ctc_loss(scores, labels, frames, texts, zero_infinity=True)}


def features(batch: int, samples: int, labels: int) -> dict[str, Any]:
    return {
        "input_features": torch.zeros(batch, samples // 160, 80),
        "labels": torch.ones(batch, labels, dtype=torch.long),
    }
