"""Kinds with batches, labels and last windows of their own, for ``guard_kinds.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from guard_kinds_losses import CLASSES, LossTrainer, Tagger, clip_mean, frames, tagger, token_mean
from guard_kinds_runs import Kind, Pad
from guard_kinds_steps import ROWS, points, regression
from torch import nn
from torch.nn import functional as F
from transformers import Trainer

from tiny_training import Regression


class Packed(nn.Module):  # type: ignore[misc]
    """A recurrent network that reads no padding, or ``both`` ways and all of it."""

    def __init__(self, both: bool = False) -> None:
        super().__init__()
        self.both, self.last = both, nn.Linear(16 if both else 8, CLASSES)
        self.reader = nn.LSTM(6, 8, batch_first=True, bidirectional=both)

    def forward(self, input_values: Any, labels: Any = None, attention_mask: Any = None) -> dict[str, Any]:
        if not self.both:
            lengths = attention_mask.sum(1)
            input_values = nn.utils.rnn.pack_padded_sequence(input_values, lengths, True, enforce_sorted=False)
        _, (hidden, _) = self.reader(input_values)
        logits = self.last(torch.cat(list(hidden), 1))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Reconstruction(Tagger):
    """Without labels: the mean over the frames that are not padding."""

    def forward(self, input_values: Any, attention_mask: Any = None) -> dict[str, Any]:  # type: ignore[override]
        logits = super().forward(input_values)["logits"]
        off = (logits - input_values[..., :CLASSES]).square().mean(-1)
        return {"loss": (off * attention_mask).sum() / attention_mask.sum(), "logits": logits}


class _InOrder(LossTrainer):
    """Clips as they come, so that the first batch is what it is made to be."""

    def _get_train_sampler(self, *args: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


class InOrderTrainer(Trainer):  # type: ignore[misc]
    _get_train_sampler = _InOrder._get_train_sampler


def _silent(rows: list[dict[str, Any]], which: range) -> list[dict[str, Any]]:
    """Clips of which some have no label that counts."""
    return [{**r, "labels": torch.full_like(r["labels"], -100)} if i in which else r for i, r in enumerate(rows)]


class Nested(nn.Module):  # type: ignore[misc]
    """Takes its input from a mapping in the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Regression()

    def forward(self, audio: Any, labels: Any = None) -> dict[str, Any]:
        outputs: dict[str, Any] = self.inner(audio["x"], labels, audio["index"])
        return outputs


class TimeFirst(nn.Module):  # type: ignore[misc]
    """Frames along the first axis, samples along the second."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Tagger()

    def forward(self, spectra: Any, labels: Any = None) -> dict[str, Any]:
        logits = self.inner(spectra)["logits"].mean(0)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class ListLabels(Tagger):
    """Labels as a list of tensors of their own lengths."""

    def forward(self, input_values: Any, labels: Any = None, attention_mask: Any = None) -> dict[str, Any]:
        logits = super().forward(input_values)["logits"]
        parts = [F.cross_entropy(one[: len(y)], y) for one, y in zip(logits, labels, strict=True)]
        return {"loss": torch.stack(parts).mean(), "logits": logits}


class Shared(Regression):
    """Uses an entry of the batch that is no sample's: a filter for all of them."""

    def forward(self, x: Any, labels: Any = None, index: Any = None, bank: Any = None) -> dict[str, Any]:  # type: ignore[override]
        return super().forward(x * bank.mean(), labels, index)


class Targets(Regression):
    def forward(self, x: Any, targets: Any = None, index: Any = None) -> dict[str, Any]:  # type: ignore[override]
        return super().forward(x, targets, index)


class TargetTagger(Tagger):
    """Labels by another name."""

    def forward(self, input_values: Any, targets: Any = None, attention_mask: Any = None) -> dict[str, Any]:  # type: ignore[override]
        return super().forward(input_values, targets, attention_mask)


def _nested(rows: list[dict[str, Any]]) -> dict[str, Any]:
    batch = Pad()(rows)
    return {"audio": {"x": batch["x"], "index": batch["index"]}, "labels": batch["labels"]}


def _time_first(rows: list[dict[str, Any]]) -> dict[str, Any]:
    batch = Pad()([{"spectra": row["input_values"], "labels": row["labels"]} for row in rows])
    return {"spectra": batch["spectra"].transpose(0, 1).contiguous(), "labels": batch["labels"]}


def _listed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {**Pad(mask="input_values")(rows), "labels": [row["labels"] for row in rows]}


class TextTrainer(LossTrainer):
    """Takes texts and numbers out of the batch that the model does not know."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        texts, numbers = inputs.pop("text"), inputs.pop("number")
        assert len(texts) == len(numbers) == len(inputs["labels"])
        return super().compute_loss(model, inputs, *args, **kwargs)


def _texts() -> list[dict[str, Any]]:
    return [{**row, "text": f"clip {i}", "number": i} for i, row in enumerate(frames())]


def _renamed(rows: list[dict[str, Any]], old: str, new: str) -> list[dict[str, Any]]:
    return [{new if name == old else name: value for name, value in row.items()} for row in rows]


BATCHES: dict[str, Callable[[], Kind]] = {
    "LSTM, packed": lambda: tagger(model=Packed, labels="clip"),
    "LSTM, both ways": lambda: tagger(model=lambda: Packed(True), labels="clip",
                                      collate=Pad(mask="input_values", to=20)),
    "no labels": lambda: tagger(model=Reconstruction, own_shape=True,
                                rows=[{"input_values": row["input_values"]} for row in frames()]),
    "equal labels first, clip mean": lambda: tagger(clip_mean, trainer=InOrderTrainer, rows=frames(equal=8)),
    "equal labels first, token mean": lambda: tagger(trainer=type("InOrderLossTrainer", (_InOrder,), {}), model=Tagger,
                                                     rows=frames(equal=8)),
    "equal labels, compute_loss": lambda: tagger(clip_mean, own=True, rows=frames(equal=ROWS)),
    "a micro-batch of -100 alone": lambda: tagger(trainer=InOrderTrainer, rows=_silent(frames(), range(8, 12))),
    "first micro-batch of -100 alone": lambda: tagger(trainer=InOrderTrainer, rows=_silent(frames(), range(4))),
    "batch: nested mapping": lambda: regression(model=Nested, collate=_nested, names=("audio",)),
    "batch: frames first": lambda: Kind(TimeFirst, frames(ROWS, ROWS, "clip"), _time_first, rate=0.3,
                                        names=("spectra",)),
    "batch: labels as a list": lambda: tagger(model=ListLabels, collate=_listed),
    "batch: texts and numbers": lambda: tagger(trainer=TextTrainer, model=Tagger, rows=_texts()),
    "batch: shared entry": lambda: regression(model=Shared, collate=Pad(more={"bank": torch.ones(40, 3)}),
                                              names=("bank",)),
    "batch: shared entry, batch's size": lambda: regression(
        model=Shared, collate=Pad(more={"bank": torch.linspace(0.5, 2, 8)}), names=("bank",)),
    "label_names": lambda: tagger(model=lambda: TargetTagger(token_mean), rows=_renamed(frames(), "labels", "targets"),
                                  settings={"label_names": ["targets"]}),
    "label_names, regression": lambda: regression(model=Targets, rows=_renamed(points(), "labels", "targets"),
                                                  settings={"label_names": ["targets"]}),
    "remove_unused_columns": lambda: regression(rows=[{**row, "note": i} for i, row in enumerate(points())],
                                                settings={"remove_unused_columns": True}),
    "last batch of one sample": lambda: tagger(rows=frames(17)),
    "last window incomplete": lambda: tagger(rows=frames(20)),
    "last window incomplete, compute_loss": lambda: tagger(own=True, rows=frames(20)),
}  # fmt: skip
