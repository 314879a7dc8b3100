"""Models that transformers has not: recurrent, convolutional, and a transducer's joint network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 32


class RecurrentCtc(nn.Module):
    """Two convolutions over frequency and time, recurrent layers, CTC, as Deep Speech 2 has them."""

    def __init__(self, kind: str = "LSTM", hidden: int = 512, layers: int = 4, mels: int = 80) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, 11, (2, 2), padding=5),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(32, 32, 11, (2, 1), padding=5),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20, inplace=True),
        )
        self.recurrent = getattr(nn, kind)(
            32 * mels // 4, hidden, layers, batch_first=True, bidirectional=True, dropout=0.1
        )
        self.head = nn.Linear(2 * hidden, VOCABULARY)

    def forward(self, input_features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.convolutions(input_features.transpose(1, 2)[:, None])
        x = x.permute(0, 3, 1, 2).flatten(2)
        x, _ = self.recurrent(x)
        return {"loss": ctc(self.head(x), labels)}


def ctc(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """torch's own kernel, with lengths that cuDNN's would refuse."""
    log_probs = F.log_softmax(logits, -1, dtype=torch.float32).transpose(0, 1)
    frames = torch.full((logits.shape[0],), logits.shape[1], dtype=torch.long)
    lengths = torch.full((labels.shape[0],), labels.shape[1], dtype=torch.long)
    with torch.backends.cudnn.flags(enabled=False):
        return F.ctc_loss(log_probs, labels, frames, lengths, zero_infinity=True)


class Transducer(nn.Module):
    """An LSTM encoder, an LSTM over labels, and the joint network over all pairs of frames and labels."""

    def __init__(self, hidden: int = 320, layers: int = 3, vocabulary: int = 128, mels: int = 80) -> None:
        super().__init__()
        self.encoder = nn.LSTM(4 * mels, hidden, layers, batch_first=True)
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.predictor = nn.LSTM(hidden, hidden, batch_first=True)
        self.joint = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, vocabulary))

    def forward(self, input_features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        batch, frames, mels = input_features.shape
        x = input_features[:, : frames // 4 * 4].reshape(batch, frames // 4, 4 * mels)
        heard = self.encoder(x)[0]
        said = self.predictor(self.embedding(labels))[0]
        logits = self.joint(heard[:, :, None] + said[:, None])
        return {"loss": -F.log_softmax(logits, -1)[..., 0].mean()}


class Block(nn.Module):
    """Separable convolutions with a residual, as Jasper and QuartzNet have them; ``separable`` False: whole ones."""

    def __init__(self, width: int, taps: int, repeats: int, separable: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(layer for _ in range(repeats) for layer in _layers(width, taps, separable)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.layers(x))


def _layers(width: int, taps: int, separable: bool) -> Iterator[nn.Module]:
    padding = taps // 2
    if separable:
        yield nn.Conv1d(width, width, taps, padding=padding, groups=width, bias=False)
        yield nn.Conv1d(width, width, 1, bias=False)
    else:
        yield nn.Conv1d(width, width, taps, padding=padding, bias=False)
    yield nn.BatchNorm1d(width)
    yield nn.ReLU(inplace=True)


class ConvolutionalCtc(nn.Module):
    """A strided convolution over mel frames, blocks, CTC."""

    def __init__(self, width: int = 256, blocks: int = 6, separable: bool = True, mels: int = 80) -> None:
        super().__init__()
        self.first = nn.Conv1d(mels, width, 33, 2, padding=16)
        self.blocks = nn.Sequential(*(Block(width, 33 + 6 * n, 3, separable) for n in range(blocks)))
        self.head = nn.Conv1d(width, VOCABULARY, 1)

    def forward(self, input_features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        x = F.relu(self.first(input_features.transpose(1, 2)))
        return {"loss": ctc(self.head(self.blocks(x)).transpose(1, 2), labels)}


BUILDERS: dict[str, Any] = {
    "bilstm-ctc": RecurrentCtc,
    "bilstm-ctc-1024": lambda: RecurrentCtc(hidden=1024, layers=5),
    "gru-ctc": lambda: RecurrentCtc("GRU"),
    "transducer": Transducer,
    "quartznet": ConvolutionalCtc,
    "jasper": lambda: ConvolutionalCtc(separable=False),
}
