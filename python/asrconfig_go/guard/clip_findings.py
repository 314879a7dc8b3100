"""What is unusual in the clips of a batch: their rows, texts, audio and labels.

A loader asks its batch sampler for the rows of a batch and delivers batches in that order, however many workers there
are. What the sampler gave is kept by the batch's number in the epoch, of the newest batches. Each process keeps its
own: its sampler is the sharded one.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from .._core.batches import batch_size, extent, input_name, spoken_lengths, time_axis
from .._core.random_state import cpu_generators_kept
from .._core.render import plural
from ..data.columns import audio_columns, text_columns, usual_columns
from ..data.label_faults import faults
from ..data.label_rules import IGNORED, LabelRules, rules_of
from ..data.source import open_source
from ..predict.worst_batch import is_mel, per_second

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer


_TIMES = 4.0  # as long as the median clip of the batch
_LOUDER = 30.0  # than the median clip of the batch
_SILENT = 1e-6  # largest difference between two samples
_LONGEST = 500  # characters
_NEWEST = 10_000  # batches, more than loaders fetch ahead


@dataclass(frozen=True)
class Measured:
    """A clip of a collated batch: seconds without padding, labels, and how loud it is (root mean square)."""

    seconds: float | None
    labels: list[int]
    loudness: float | None
    spread: float | None
    unfinite: int


def look_at(inputs: Mapping[str, torch.Tensor], model: torch.nn.Module, labels: str = "labels") -> list[Measured]:
    """Each clip of a batch, by its input and labels."""
    lengths, rate, name = spoken_lengths(inputs), per_second(inputs, model), input_name(inputs)
    if lengths is None and name is not None and "attention_mask" not in inputs and not is_mel(inputs, model):
        lengths = [extent(inputs).length] * batch_size(inputs)
    texts: Any = inputs.get(labels)
    clips = []
    has_texts = hasattr(texts, "shape") and len(texts.shape) == 2 and not texts.is_floating_point()
    for i in range(batch_size(inputs)):
        own = [int(label) for label in texts[i].tolist() if label != IGNORED] if has_texts else []
        audio = None
        if name is not None and inputs[name].is_floating_point():
            axis = time_axis(inputs, name) - 1
            padded = inputs[name][i]
            audio = padded if lengths is None or axis >= padded.dim() else padded.narrow(axis, 0, lengths[i])
        seconds = None if lengths is None or rate is None else lengths[i] / rate
        clips.append(Measured(seconds, own, *_levels(audio)))
    return clips


def _levels(audio: torch.Tensor | None) -> tuple[float | None, float | None, int]:
    if audio is None or not audio.numel():
        return None, None, 0
    audio = audio.detach().float()
    fine = audio[torch.isfinite(audio)]
    bad = audio.numel() - fine.numel()
    if not fine.numel():
        return None, None, bad
    return float(fine.square().mean().sqrt()), float(fine.max() - fine.min()), bad


def findings(clips: list[Measured], model: torch.nn.Module, has_labels: bool = True) -> list[tuple[str, ...]]:
    """In words, for each clip of a batch."""
    rules = rules_of(model)
    seconds = [c.seconds for c in clips if c.seconds is not None]
    loud = [c.loudness for c in clips if c.loudness is not None]
    usual = (statistics.median(seconds) if seconds else None, statistics.median(loud) if loud else None)
    return [tuple(_of(clip, rules, usual, has_labels)) for clip in clips]


def _of(clip: Measured, rules: LabelRules, usual: tuple[float | None, float | None], has_labels: bool) -> Iterator[str]:
    if clip.unfinite:
        yield f"its audio has {plural(clip.unfinite, 'value')} not finite: decode it again, or leave it out"
    if clip.spread is not None and clip.spread <= _SILENT and not clip.unfinite:
        yield "its audio is silent: leave it out"
    if clip.loudness is not None and usual[1] and clip.loudness > _LOUDER * usual[1]:
        yield f"its audio is {clip.loudness / usual[1]:.0f} times as loud as the batch's median clip: normalise it"
    if clip.seconds is not None and usual[0] and clip.seconds > _TIMES * usual[0]:
        yield f"it is {clip.seconds / usual[0]:.1f} times as long as the batch's median clip"
    if has_labels and not clip.labels:
        yield "it has no labels: leave it out"
    for name, detail in faults(clip.labels, clip.seconds, rules) if has_labels and clip.labels else ():
        if name == "outside":
            others = "the model" if rules.vocabulary is None else f"the {rules.vocabulary} of the model"
            yield f"{detail} is not among {others}: use the tokenizer that the model is for"
        elif name == "blank":
            yield f"{detail} is CTC's blank: set model.config.pad_token_id to the tokenizer's, and pad labels with -100"
        elif name == "too_long":
            yield f"{detail}: shorten the text, or leave it out"


class ClipDetails:
    """Reads rows of a Trainer's dataset, once something went wrong; what cannot be read is ""."""

    def __init__(self, trainer: Trainer, dataset: torch.utils.data.Dataset | None = None) -> None:
        """``dataset``: another than the training's."""
        self._trainer = trainer
        self._dataset = getattr(trainer, "train_dataset", None) if dataset is None else dataset

    def of(self, row: int | None, labels: list[int]) -> tuple[bool, str, str]:
        """Whether ``row`` can be the clip with these labels; its path, and its text or the decoded labels."""
        example = {} if row is None else self._read(row)
        own_labels = example.get("labels")
        if own_labels is not None and not _alike(own_labels, labels):
            return False, "", self._decoded(labels)
        audio = [example[name] for name in usual_columns(example, audio_columns())]
        paths = [value.get("path") if isinstance(value, dict) else value for value in audio]
        texts = [example[name] for name in usual_columns(example, text_columns())]
        path, text = (next((v for v in values if isinstance(v, str) and v), "") for values in (paths, texts))
        return True, path[:_LONGEST], (text or self._decoded(labels))[:_LONGEST]

    def _read(self, row: int) -> dict[str, Any]:
        dataset: torch.utils.data.Dataset = self._dataset
        with contextlib.suppress(Exception), cpu_generators_kept():  # whatever a dataset raises: a name is lost
            source = open_source(dataset)
            if source.kind == "dataset":  # nothing but these is read, and nothing decoded
                dataset = source.stored(usual_columns(source.columns, (*audio_columns(), *text_columns(), "labels")))
            example = dataset[row]
            return dict(example) if hasattr(example, "keys") else {}
        return {}

    def _decoded(self, labels: list[int]) -> str:
        trainer = self._trainer
        owners = (trainer, getattr(trainer, "data_collator", None))  # none of a loop of one's own
        names = ("processing_class", "tokenizer", "processor")
        for part in (vars(owner).get(name) for owner in owners if hasattr(owner, "__dict__") for name in names):
            tokenizer: PreTrainedTokenizerBase = getattr(part, "tokenizer", part)
            if hasattr(tokenizer, "decode"):
                is_ctc = "CTC" in type(tokenizer).__name__
                options = {"group_tokens": False} if is_ctc else {"skip_special_tokens": True}
                with contextlib.suppress(Exception):
                    return str(tokenizer.decode(labels, **options))
        return " ".join(map(str, labels))


def _alike(own_labels: Sequence[int] | torch.Tensor, labels: list[int]) -> bool:
    """Whether a row's labels are those of a collated clip; collators take a first token out, or truncate."""
    try:
        own = [int(label) for label in (own_labels.tolist() if hasattr(own_labels, "tolist") else own_labels)]
    except (TypeError, ValueError):  # texts, or labels of another kind
        return True
    own = [label for label in own if label != IGNORED]
    return any(part[: len(labels)] == labels for part in (own, own[1:]))


class _Numbered:
    """Wraps a batch sampler, and keeps the rows of the newest batches."""

    def __init__(self, sampler: torch.utils.data.Sampler) -> None:
        self.numbered = sampler
        self.batches: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        batches = self.batches = {}
        for number, rows in enumerate(self.numbered):
            batches[number] = rows
            batches.pop(number - _NEWEST, None)
            yield rows

    def __len__(self) -> int:
        return len(self.numbered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["numbered"], name)


class ClipRows:
    """The rows of each batch that one loader of a Trainer has delivered; ``dataset`` is the one that they are of."""

    def __init__(self, trainer: Trainer, delivered: Callable[[], int]) -> None:
        """``delivered`` is how many batches of the epoch the loader has delivered."""
        self.trainer, self._delivered = trainer, delivered
        self.dataset: torch.utils.data.Dataset | None = None
        self._sampler: _Numbered | None = None
        self._undo: list[Callable[[], None]] = []
        self.unknown: str = "no epoch has begun"
        """Why rows are not known, "" where they are."""

    def epoch_begins(self) -> None:
        """The Trainer makes its iterator next."""
        self.follow(self.trainer.callback_handler.train_dataloader, self.trainer.train_dataset)

    def follow(self, loader: torch.utils.data.DataLoader, dataset: torch.utils.data.Dataset) -> None:
        """Keep the rows that the loader's sampler yields to the next iterator."""
        base, self.dataset = getattr(loader, "base_dataloader", loader), dataset
        self.unknown = _unknown(loader, base)
        if self.unknown or isinstance(base.batch_sampler, _Numbered):
            return
        self.remove()
        self._sampler = _Numbered(base.batch_sampler)
        for part in (base, loader):
            if "batch_sampler" in vars(part):  # which DataLoader refuses to have assigned
                self._undo.append(partial(vars(part).update, batch_sampler=self._sampler.numbered))
                vars(part)["batch_sampler"] = self._sampler

    def remove(self) -> None:
        """Leave the loader as it was found."""
        for undo in self._undo:
            undo()
        self._undo, self._sampler = [], None

    def of(self, batch: int, remaining: list[int] | None, clips: int) -> list[int] | None:
        """The rows of a batch of ``clips`` clips, or of its ``remaining`` ones; None where they are not known.

        ``batch`` counts from the last one that was delivered, which is -1.
        """
        batches = {} if self._sampler is None else self._sampler.batches
        rows = batches.get(self._delivered() + batch, ())
        fits = len(rows) == clips if remaining is None else len(rows) > max(remaining, default=-1)
        if not rows or not fits or not all(isinstance(row, int) for row in rows):
            self.unknown = self.unknown or "a batch has not one clip for each row that its sampler gave"
            return None
        return [rows[i] for i in (range(clips) if remaining is None else remaining)]


def _unknown(loader: torch.utils.data.DataLoader, base: torch.utils.data.DataLoader) -> str:
    from torch.utils.data import DataLoader, IterableDataset

    if not isinstance(base, DataLoader):
        return f"the loader is a {type(base).__name__}, which has no batch sampler"
    if isinstance(base.dataset, IterableDataset) or base.batch_sampler is None:
        return "the dataset is a stream, whose rows have no numbers"
    if type(loader).__name__ == "DataLoaderDispatcher":
        return "one process dispatches the batches of all"
    if not getattr(base, "in_order", True):
        return "the loader's workers deliver batches in any order (in_order=False)"
    return ""
