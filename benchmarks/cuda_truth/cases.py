"""The trainings: each model in settings that take turns, so that all of them meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from models import MODELS


@dataclass(frozen=True)
class Case:
    """One training of three optimizer steps. ``checkpointing`` is "", "reentrant" or "non_reentrant"."""

    model: str
    loop: str  # "trainer" or "plain"
    gpu: str
    precision: str
    optimizer: str
    batch: int
    seconds: float
    checkpointing: str = ""
    every_n_layers: int = 1
    offload_checkpoints: bool = False
    accumulation: int = 1
    allocator: str = ""

    def __str__(self) -> str:
        depth = f" each {self.every_n_layers}" if self.every_n_layers > 1 else ""
        depth += " offloaded" if self.offload_checkpoints else ""
        settings = [
            self.model, self.loop, self.gpu, self.precision, self.optimizer, f"{self.batch} x {self.seconds:g} s",
            f"checkpoints {self.checkpointing}{depth}" if self.checkpointing else "",
            f"accumulation {self.accumulation}" if self.accumulation > 1 else "",
            "expandable" if self.allocator else "",
        ]  # fmt: skip
        return ", ".join(filter(None, settings))


_EXPANDABLE = "expandable_segments:True"
_TURNS = (
    {"loop": "trainer", "gpu": "T4", "precision": "fp16", "optimizer": "adamw_torch_fused"},
    {"loop": "trainer", "gpu": "A100", "precision": "bf16", "optimizer": "adamw_torch", "accumulation": 2,
     "checkpointing": "non_reentrant"},
    {"loop": "trainer", "gpu": "T4", "precision": "fp32", "optimizer": "sgd", "allocator": _EXPANDABLE},
    {"loop": "plain", "gpu": "A100", "precision": "fp16", "optimizer": "adamw_torch"},
    {"loop": "trainer", "gpu": "T4", "precision": "fp16", "optimizer": "adafactor", "checkpointing": "reentrant"},
    {"loop": "trainer", "gpu": "H100", "precision": "bf16", "optimizer": "adamw_torch_fused",
     "allocator": _EXPANDABLE, "accumulation": 3},
    {"loop": "plain", "gpu": "T4", "precision": "fp32", "optimizer": "sgd", "accumulation": 2},
)  # fmt: skip
_SHAPES = ((8, 10.0), (4, 15.0), (6, 7.3), (3, 12.5), (8, 15.0), (2, 20.0), (5, 5.1))
# transformers 5.23: WavLM's backward pass never ends, SEW-D's goes through a graph twice.
_NOT_REENTRANT = ("wavlm-base", "sew-d")
# Of every n-th layer: the Trainer's argument, in versions of transformers that have it.
_DEPTHS = (("xls-r-300m", 2), ("xls-r-300m", 4), ("wav2vec2-base", 3), ("whisper-small", 2), ("w2v-bert", 2))
# What checkpoints save in pinned host memory, of every n-th layer.
_OFFLOADED = (("wav2vec2-base", 1), ("xls-r-300m", 1), ("whisper-small", 2), ("w2v-bert", 1), ("wavlm-base", 3))
# More than the card has.
_TOO_LARGE = (
    ("xls-r-300m", "T4", "fp32", 32, 15.0),
    ("xls-r-300m", "T4", "fp16", 24, 20.0),
    ("hubert-large, 12 layers", "T4", "fp16", 48, 15.0),
    ("wavlm-base", "T4", "fp16", 64, 15.0),
    ("whisper-small", "T4", "fp32", 16, 30.0),
    ("w2v-bert", "T4", "fp16", 64, 20.0),
    ("wav2vec2-base", "T4", "fp16", 64, 20.0),
    ("jasper", "T4", "fp32", 256, 15.0),
)


def cases() -> list[Case]:
    """All of them, by model."""
    return sorted(_all(), key=lambda case: list(MODELS).index(case.model))


def _all() -> Iterator[Case]:
    for number, name in enumerate(MODELS):
        own = MODELS[name].kind != "transformer"
        for turn, settings in enumerate(_TURNS):
            batch, seconds = _SHAPES[(turn + number) % len(_SHAPES)]
            if (own and settings.get("checkpointing")) or (turn == len(_TURNS) - 1 and not own):
                continue
            if name in _NOT_REENTRANT and settings.get("checkpointing") == "reentrant":
                continue
            yield Case(name, batch=batch, seconds=seconds, **settings)  # type: ignore[arg-type]
    for name, depth in _DEPTHS:
        yield Case(name, "trainer", "T4", "fp16", "adamw_torch_fused", 6, 12.0, "non_reentrant", depth)
    for name, depth in _OFFLOADED:
        yield Case(name, "trainer", "T4", "fp16", "adamw_torch_fused", 6, 12.0, "non_reentrant", depth, True)
    yield Case("wav2vec2-base", "trainer", "A100", "fp32", "sgd", 5, 9.0, "reentrant", 1, True, 2, _EXPANDABLE)
    for name, gpu, precision, batch, seconds in _TOO_LARGE:
        yield Case(name, "trainer", gpu, precision, "adamw_torch_fused", batch, seconds)
