"""Pieces of models whose allocations are recorded twice: by a trace, and by torch.cuda on the stand-in runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from asrconfig_go.predict import MemoryModel
from asrconfig_go.predict.memory_settings import Target
from asrconfig_go.trace import MemoryRecorder

BATCH = 3
STEPS = 2
_BLOCK = 512  # bytes to which PyTorch's allocator rounds


class Attending(nn.Module):  # type: ignore[misc]
    """Attention of ``heads`` on ``shared`` keys, by torch's function or by a softmax of its own."""

    def __init__(
        self, size: int, heads: int, shared: int = 0, *, mask: bool = False, causal: bool = False, eager: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.shared, self.masked, self.causal, self.eager = heads, shared or heads, mask, causal, eager
        self.head = size // heads
        self.q = nn.Linear(size, size)
        self.k, self.v = (nn.Linear(size, self.shared * self.head) for _ in range(2))
        self.out = nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (layer(x).view(batch, length, -1, self.head).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if self.eager:
            y = self._dropped(torch.softmax(q @ k.transpose(2, 3) * self.head**-0.5, -1)) @ v
        else:
            mask = torch.ones(batch, 1, length, length, dtype=torch.bool, device=x.device) if self.masked else None
            shared = {"enable_gqa": True} if self.shared != self.heads else {}
            y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal, **shared)
        made: torch.Tensor = self.out(y.transpose(1, 2).reshape(batch, length, -1))
        return made

    def _dropped(self, weights: torch.Tensor) -> torch.Tensor:
        return F.dropout(weights, 0.1, self.training)


class Asking(nn.Module):  # type: ignore[misc]
    """A few learnt queries, the same for all clips, that attend to each, as a Q-Former's first layer has them."""

    def __init__(self, size: int, heads: int, *, mask: bool = False) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, heads, 3, size // heads))
        self.shared, self.masked = nn.Linear(size, size), mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, size = x.shape
        keys = self.shared(x).view(batch, length, self.query.shape[1], -1).transpose(1, 2)
        mask = torch.ones(batch, 1, 1, length, dtype=torch.bool, device=x.device) if self.masked else None
        y = F.scaled_dot_product_attention(self.query.to(keys.dtype), keys, keys, mask)
        return y.transpose(1, 2).reshape(batch, 3, size)


class Convolving(nn.Module):  # type: ignore[misc]
    """A convolution over time between transposed layouts, as speech encoders have it."""

    def __init__(self, size: int, taps: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.first = nn.Linear(size, size)
        self.convolution = nn.Conv1d(size, size, taps, stride, padding=taps // 2, groups=groups)
        self.norm = nn.LayerNorm(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.norm(self.convolution(self.first(x).transpose(1, 2)).transpose(1, 2))
        return y


class Image(nn.Module):  # type: ignore[misc]
    """Convolutions over time and frequency, then over channels that lie last."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, 2, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, 2, padding=1, groups=16)
        self.second = nn.Conv2d(16, 32, 1)
        self.norm = nn.BatchNorm2d(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.first(x[:, None]))
        y = self.norm(self.second(self.depthwise(y)))
        return y.transpose(1, 2).flatten(2)


class Recurrent(nn.Module):  # type: ignore[misc]
    """Recurrent layers on an input that is batch first."""

    def __init__(self, kind: str, size: int, **settings: Any) -> None:
        super().__init__()
        self.layers = getattr(nn, kind)(size, size, batch_first=True, **settings)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(x)[0]
        return y


class Transposing(nn.Module):  # type: ignore[misc]
    """Softmax over rows that do not lie together."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x).transpose(1, 2)
        return F.log_softmax(torch.softmax(y, -1) + y, -1)


class Norm(nn.Module):  # type: ignore[misc]
    """A layer norm of which only these parameters are trained, behind a layer that is."""

    def __init__(self, size: int, *trained: str) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(size, size), nn.LayerNorm(size)
        for name, parameter in self.norm.named_parameters():
            parameter.requires_grad = name in trained

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.norm(self.first(x))
        return y


class Offloading(nn.Module):  # type: ignore[misc]
    """Checkpointed layers whose inputs, one of them common to all, are kept in pinned host memory."""

    def __init__(self, size: int, *, reentrant: bool = False) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(size, size)
        self.layers = nn.ModuleList(Convolving(size, 3) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        common = x = self.first(x)
        for layer in self.layers:
            with save_on_cpu(pin_memory=True):
                x = checkpoint(self._mixed, layer, x, common, use_reentrant=self.reentrant)
            x = x.transpose(1, 2).contiguous().transpose(1, 2)  # the next input is put in order before it is copied
        return x

    def _mixed(self, layer: nn.Module, x: torch.Tensor, common: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = F.dropout(layer(F.layer_norm(x, x.shape[-1:])) + common, 0.1)
        return y


class Quantized(nn.Module):  # type: ignore[misc]
    """A frozen layer whose weight bitsandbytes has in 8 or 4 bits, with an adapter in front of it and beside it."""

    def __init__(self, bits: int, size: int, bias: torch.dtype, **settings: Any) -> None:
        super().__init__()
        kind = bnb.nn.Linear8bitLt if bits == 8 else bnb.nn.Linear4bit
        settings |= {"has_fp16_weights": False} if bits == 8 else {"quant_type": "nf4"}
        self.wide = kind(size, 4 * size, **settings).requires_grad_(False)
        self.wide.bias.data = self.wide.bias.data.to(bias)
        self.narrow = kind(4 * size, size, bias=False, **settings).requires_grad_(False)
        self.first, self.beside = nn.Linear(size, size), nn.Linear(size, 4 * size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        y: torch.Tensor = self.narrow(F.gelu(self.wide(x) + self.beside(x)))
        return y


@dataclass(frozen=True)
class Piece:
    """How to build one, its input's sizes, and the type of its autocast.

    Allocations of at most ``least`` bytes are not compared, as a trace leaves out the counters of a reduction's blocks.
    Weights that are ``quantized`` on their way to the GPU are not; what is held then counts from the first input.
    """

    build: Callable[[], nn.Module]
    length: int = 100
    size: int = 128
    dtype: torch.dtype | None = None
    least: int = 0
    quantized: bool = False

    def compared(self, allocations: list[tuple[int, int]]) -> list[tuple[int, int]] | list[int]:
        """What must be equal of each: its size and what is allocated after it, or the larger ones' sizes."""
        if self.quantized:
            first = next(i for i, (size, _) in enumerate(allocations) if size == 4 * BATCH * self.length * self.size)
            return [(size, held - allocations[first][1]) for size, held in allocations[first:]]
        return [size for size, _ in allocations if size > self.least] if self.least else allocations


_HALF, _BRAIN = torch.float16, torch.bfloat16
_ROWS = 22_000  # enough that a norm's gradients are summed up in blocks

PIECES: dict[str, Piece] = {
    "attention": Piece(lambda: Attending(128, 4)),
    "attention fp16": Piece(lambda: Attending(128, 4), dtype=_HALF),
    "attention, heads of 36": Piece(lambda: Attending(144, 4), size=144, dtype=_HALF),
    "attention, bool mask": Piece(lambda: Attending(128, 4, mask=True), length=101, dtype=_HALF),
    "attention, causal bf16": Piece(lambda: Attending(128, 4, causal=True), dtype=_BRAIN),
    "attention of one query for all clips": Piece(lambda: Asking(128, 4)),
    "attention of one query for all clips fp16": Piece(lambda: Asking(128, 4, mask=True), dtype=_HALF),
    "eager attention fp16": Piece(lambda: Attending(128, 4, eager=True), dtype=_HALF),
    "eager attention": Piece(lambda: Attending(128, 4, eager=True)),
    "convolution fp16": Piece(lambda: Convolving(128, 7, 2), dtype=_HALF),
    "convolution in groups": Piece(lambda: Convolving(128, 8, groups=4), dtype=_BRAIN),
    "depthwise convolution fp16": Piece(lambda: Convolving(128, 31, groups=128), dtype=_HALF),
    "depthwise convolution bf16": Piece(lambda: Convolving(128, 31, groups=128), dtype=_BRAIN),
    "image fp16": Piece(Image, dtype=_HALF),
    "image": Piece(Image),
    "transposed softmax fp16": Piece(lambda: Transposing(128), dtype=_HALF),
    "norm": Piece(lambda: Norm(64, "weight", "bias"), _ROWS, 64, least=_BLOCK),
    "norm without a trained bias": Piece(lambda: Norm(64, "weight"), _ROWS, 64, least=_BLOCK),
    "frozen norm": Piece(lambda: Norm(64), _ROWS, 64, least=_BLOCK),
    "LSTM": Piece(lambda: Recurrent("LSTM", 128, num_layers=2, bidirectional=True, dropout=0.1)),
    "LSTM fp16": Piece(lambda: Recurrent("LSTM", 128, num_layers=2, bidirectional=True), dtype=_HALF),
    "offloaded checkpoints": Piece(lambda: Offloading(128)),
    "offloaded checkpoints fp16": Piece(lambda: Offloading(128), dtype=_HALF),
    "offloaded reentrant checkpoints fp16": Piece(lambda: Offloading(128, reentrant=True), dtype=_HALF),
    "GRU": Piece(lambda: Recurrent("GRU", 128, num_layers=2), length=160),
}
_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default._schema
if _ATTENTION.arguments[-1].name != "enable_gqa":  # torch 2.4: its flash attention copies padded heads once more
    del PIECES["attention, heads of 36"]
else:
    PIECES |= {
        "grouped attention": Piece(lambda: Attending(128, 4, 2), dtype=_HALF),
        "grouped attention fp32": Piece(lambda: Attending(128, 4, 2, mask=True)),
    }


if find_spec("bitsandbytes"):
    import bitsandbytes as bnb

    PIECES |= {
        name: Piece(partial(Quantized, bits, 64, bias, **settings), 600, 64, dtype, quantized=True)
        for name, bits, dtype, bias, settings in (
            ("8 bits fp16", 8, _HALF, _HALF, {}),
            ("8 bits", 8, None, torch.float32, {}),
            ("4 bits fp16", 4, _HALF, _HALF, {"compute_dtype": _HALF, "compress_statistics": False}),
            ("4 bits", 4, None, _HALF, {"compute_dtype": _HALF}),
            ("4 bits, scales in 8", 4, _HALF, _HALF, {"compute_dtype": _HALF}),
        )
    }


class Loop:
    """Training steps of a piece on a device; the sum of its outputs is the loss."""

    def __init__(self, piece: Piece, place: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.piece, self.place = piece, place
        self.model = piece.build().to("cuda")

    def step(self) -> None:
        x = self.place(torch.randn(BATCH, self.piece.length, self.piece.size))
        with torch.autocast("cuda", dtype=self.piece.dtype or _HALF, enabled=self.piece.dtype is not None):
            y = self.model(x)
        y.backward(torch.ones_like(y))
        self.model.zero_grad()


def runs_on(piece: Piece) -> bool:
    """Whether the card has the piece's type: without bf16 convolutions are torch's own, which a trace does not know."""
    return piece.dtype is not _BRAIN or torch.cuda.is_bf16_supported(including_emulation=False)


def on_cuda(name: str) -> list[tuple[int, int]]:
    """Each allocation's size and what is allocated after it, in bytes."""
    torch._C._cuda_clearCublasWorkspaces()  # torch before 2.15 keeps those of the piece before
    torch.cuda.memory._record_memory_history(context=None, stacks="python")
    loop = Loop(PIECES[name], lambda x: x.cuda())
    for _ in range(STEPS):
        loop.step()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return list(_allocations(_changes(events)))


def _changes(events: list[dict[str, Any]]) -> Iterator[int]:
    for event in events:
        rounded = -(-event["size"] // _BLOCK) * _BLOCK
        if event["action"] == "alloc":
            yield rounded
        elif event["action"] == "free_requested":
            yield -rounded


def traced(name: str, gpu: str) -> list[tuple[int, int]]:
    """The same, as a trace of the same loop has it."""
    target = Target.find(gpu)
    with MemoryRecorder(compute_capability=target.capability) as recorder:
        loop = Loop(PIECES[name], recorder.place)
        recorder.load(loop.model)
        recorder.segment("iteration")
        for _ in range(STEPS):
            loop.step()
            recorder.step()
        trace = recorder.trace()
    with MemoryModel.load(trace, gpu=gpu, allocator="") as model:
        found = model.as_recorded(STEPS, timeline=100_000).timeline
    assert found is not None
    return list(_allocations(b - a for a, b in pairwise((0, *found.allocated))))


def _allocations(changes: Iterator[int]) -> Iterator[tuple[int, int]]:
    held = 0
    for change in changes:
        held += change
        if change > 0:
            yield change, held
