"""What the models of the zoo share: clips with texts, sizes, tokenizers, and the steps that processors do by hand."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import soundfile as sf
import torch

RATE = 16_000
HOP = 160
Collate = Callable[[list[dict[str, Any]]], dict[str, Any]]


@dataclass(frozen=True)
class Sizes:
    """How large a model of the zoo is. ``labels`` is a CTC or transducer vocabulary, ``words`` a language model's."""

    width: int
    layers: int
    heads: int
    feed_forward: int
    channels: int
    labels: int
    words: int


TINY = Sizes(width=32, layers=2, heads=2, feed_forward=64, channels=16, labels=320, words=640)
# Large enough that activations and logits outweigh what a training always takes.
MIDDLE = Sizes(width=256, layers=4, heads=4, feed_forward=1024, channels=128, labels=1024, words=32_000)


@dataclass(frozen=True)
class Subject:
    """A model with random weights and the collator of its training; ``processor`` where it can be built offline."""

    model: Any
    collate: Collate
    processor: Any = None


@dataclass(frozen=True)
class Row:
    """One row of the zoo: ``build(sizes)`` makes the model and its collator anew."""

    name: str
    kind: str
    build: Callable[[Sizes], Subject]
    settings: Mapping[str, Any] = field(
        default_factory=dict
    )  # of the training: precision, GPU, steps, seconds of clips


ROWS: dict[str, Row] = {}


def row(name: str, kind: str, **settings: Any) -> Callable[[Callable[[Sizes], Subject]], Callable[[Sizes], Subject]]:
    """Register a builder under this name."""

    def register(build: Callable[[Sizes], Subject]) -> Callable[[Sizes], Subject]:
        ROWS[name] = Row(name, kind, build, settings)
        return build

    return register


@functools.cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="model-zoo-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def rows(count: int = 24, shortest: float = 0.7, longest: float = 4.0, seed: int = 3) -> Any:
    """A dataset of clips with texts: columns ``audio``, a path, and ``text``, about six characters a second."""
    draw = np.random.default_rng(seed)
    lengths = [float(draw.uniform(shortest, longest)) for _ in range(count)]
    return _dataset([(seconds, max(3, round(6 * seconds * draw.uniform(0.7, 1.3)))) for seconds in lengths], draw)


@functools.cache
def rows_with_a_worst_batch(longest: float = 10.0, batch: int = 8) -> Any:
    """The same, but the ``batch`` longest clips come first, nearly as long as each other, and have the longest texts.

    The largest batch that a sampler can draw is then known: it is the one that a prediction is about.
    """
    draw = np.random.default_rng(5)
    worst = [(longest - 0.02 * number, round(7 * longest) - number) for number in range(batch)]
    others = [longest * float(draw.uniform(0.1, 0.8)) for _ in range(2 * batch)]
    return _dataset(worst + [(seconds, max(3, round(5 * seconds))) for seconds in others], draw)


def _dataset(clips: Sequence[tuple[float, int]], draw: np.random.Generator) -> Any:
    import datasets

    datasets.disable_progress_bars()
    folder = Path(tempfile.mkdtemp(dir=_folder()))
    made = []
    for number, (seconds, characters) in enumerate(clips):
        path = folder / f"{number:03d}.wav"
        sf.write(path, _tone(seconds, 180.0 + 30.0 * number, draw), RATE, subtype="PCM_16")
        made.append({"audio": str(path), "text": "".join(draw.choice(list("etaoinshrdlu ,."), size=characters))})
    return datasets.Dataset.from_list(made)


def _tone(seconds: float, pitch: float, draw: np.random.Generator) -> Any:
    time = np.arange(round(seconds * RATE)) / RATE
    return (0.3 * np.sin(2 * np.pi * pitch * time) + 0.02 * draw.standard_normal(len(time))).astype(np.float32)


def wave(clip: Mapping[str, Any]) -> Any:
    """The samples of a row, as numpy has them."""
    samples, _ = sf.read(clip["audio"], dtype="float32")
    return samples


def resampled(samples: torch.Tensor) -> torch.Tensor:
    """At 24 kHz instead of 16."""
    return torch.nn.functional.interpolate(samples[None, None], scale_factor=1.5)[0, 0]


def filterbank(clip: Mapping[str, Any], bins: int, stacked: int = 1) -> torch.Tensor:
    """Log energies of a frame every 10 ms, [frames, bins]; ``stacked`` frames side by side."""
    samples = torch.from_numpy(wave(clip))
    spectrum = torch.stft(samples, 512, HOP, 400, torch.hann_window(400), return_complex=True).abs()
    bands = torch.nn.functional.adaptive_avg_pool1d(spectrum.square().T, bins).clamp(min=1e-8).log()
    whole = len(bands) // stacked * stacked
    return bands[:whole].reshape(-1, stacked * bins)


def padded(
    sequences: Sequence[Any], value: float = 0, side: str = "right", multiple: int = 1, length: int = 0
) -> torch.Tensor:
    """Sequences of unequal length in one tensor, as long as the longest or ``length``, rounded up to ``multiple``."""
    tensors = [torch.as_tensor(sequence) for sequence in sequences]
    width = -(-max(length, *map(len, tensors)) // multiple) * multiple
    made = torch.full((len(tensors), width, *tensors[0].shape[1:]), value, dtype=tensors[0].dtype)
    for number, tensor in enumerate(tensors):
        if side == "left":
            made[number, width - len(tensor) :] = tensor
        else:
            made[number, : len(tensor)] = tensor
    return made


def mask(sequences: Sequence[Any], dtype: torch.dtype = torch.long, **how: Any) -> torch.Tensor:
    """One where ``padded`` has no padding."""
    return padded([torch.ones(len(sequence), dtype=dtype) for sequence in sequences], 0, **how)


def tokenizer(*special: str, **named: str) -> Any:
    """Byte-level tokens, one a character, with these special ones; ``named`` ones become attributes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<pad>", "<s>", "</s>", *special, *named.values()])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>", extra_special_tokens=named
    )


PAD, BOS, EOS = 256, 257, 258  # of ``tokenizer``
CHARACTERS = tokenizer()


def tokens(clip: Mapping[str, Any], before: Sequence[int] = (), after: Sequence[int] = ()) -> torch.Tensor:
    """The text of a row in tokens."""
    return torch.tensor([*before, *CHARACTERS(clip["text"], add_special_tokens=False)["input_ids"], *after])


def classes(clips: Sequence[Mapping[str, Any]], count: int = 4) -> torch.Tensor:
    """A class for each clip."""
    return torch.tensor([len(clip["text"]) % count for clip in clips])


def with_lora(model: Any, targets: str, **settings: Any) -> Any:
    """The model wrapped by PEFT, rank 8, on layers whose whole name matches ``targets``."""
    import peft

    return peft.get_peft_model(model, peft.LoraConfig(r=8, lora_alpha=16, target_modules=targets, **settings))
