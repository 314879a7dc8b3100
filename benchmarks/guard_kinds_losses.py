"""Kinds with losses of their own, for ``guard_kinds.py``: a small tagger of frames, and CTC."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from guard_kinds_runs import Kind, Pad
from guard_kinds_steps import ROWS
from torch import nn
from torch.nn import functional as F
from transformers import Trainer

from speech_models import wav2vec2

CLASSES = 5
_SOURCE_SEED = 5


def frames(count: int = ROWS, equal: int = 0, labels: str = "frames") -> list[dict[str, Any]]:
    """Clips of unequal numbers of frames with six values each; the first ``equal`` clips all have 12.

    ``labels``: a class for each of the ``frames``, or one to four for CTC (``text``), or one of all (``clip``).
    """
    source = torch.Generator().manual_seed(_SOURCE_SEED)
    rows = []
    for i in range(count):
        length = 12 if i < equal else int(torch.randint(10, 21, (), generator=source))
        numbers = {"frames": length, "text": 2 if i < equal else int(torch.randint(1, 5, (), generator=source))}
        tokens = torch.randint(1, CLASSES, (numbers.get(labels, 1),), generator=source)
        rows.append(
            {
                "input_values": torch.randn(length, 6, generator=source),
                "labels": tokens if labels != "clip" else tokens[0],
            }
        )
    return rows


Loss = Callable[[Any, Any, Any], Any]  # of logits, labels and the attention mask


def token_mean(logits: Any, labels: Any, mask: Any = None) -> Any:
    """Cross entropy over all frames that have a label."""
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100)


def clip_mean(logits: Any, labels: Any, mask: Any = None) -> Any:
    """The mean over clips of each one's mean over its frames."""
    losses = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    return (losses.sum(1) / (labels != -100).sum(1).clamp(min=1)).mean()


def token_sum(logits: Any, labels: Any, mask: Any = None) -> Any:
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="sum") / 100


def focal(logits: Any, labels: Any, mask: Any = None) -> Any:
    losses = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    return ((1 - torch.exp(-losses)).square() * losses).sum() / (labels != -100).sum()


def normalised_focal(logits: Any, labels: Any, mask: Any = None) -> Any:
    """Divided by its weights, which no count tells."""
    losses = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    weights = (1 - torch.exp(-losses.detach())).square() * (labels != -100)
    return (weights * losses).sum() / weights.sum()


def class_weighted(logits: Any, labels: Any, mask: Any = None) -> Any:
    """Divided by the weights of the classes that occur."""
    weights = torch.tensor([1.0, 1.0, 5.0, 1.0, 2.0])
    return F.cross_entropy(logits.transpose(1, 2), labels, weights, ignore_index=-100)


def contrastive(logits: Any, labels: Any, mask: Any = None) -> Any:
    """Each clip is told from the others of its batch."""
    one, two = F.normalize(logits[:, :5].mean(1), dim=-1), F.normalize(logits[:, 5:10].mean(1), dim=-1)
    return F.cross_entropy(one @ two.T / 0.1, torch.arange(len(one)))


def detached(logits: Any, labels: Any, mask: Any = None) -> Any:
    return token_mean(logits, labels) + focal(logits, labels).detach()


def ctc(reduction: str) -> Loss:
    def loss(logits: Any, labels: Any, mask: Any = None) -> Any:
        counted = labels != -100
        chances = logits.log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(chances, labels.clamp(min=0), mask.sum(1), counted.sum(1), reduction=reduction)

    return loss


def two_heads(logits: Any, labels: Any, mask: Any = None) -> Any:
    """CTC and a mean over clips of another kind: both are means over clips."""
    return ctc("mean")(logits, labels, mask) + 0.5 * logits[:, :8].square().mean()


def mixed_heads(logits: Any, labels: Any, mask: Any = None) -> Any:
    """A sum and a mean, which no one weight makes right."""
    return 0.01 * ctc("sum")(logits, labels, mask) + logits[:, :8].square().mean()


class Tagger(nn.Module):  # type: ignore[misc]
    """Logits for each frame, and ``loss`` of them: by itself, or where none is given by a Trainer."""

    def __init__(self, loss: Loss | None = None) -> None:
        super().__init__()
        self.first, self.last, self.loss = nn.Linear(6, 12), nn.Linear(12, CLASSES), loss

    def forward(self, input_values: Any, labels: Any = None, attention_mask: Any = None) -> dict[str, Any]:
        logits = self.last(torch.tanh(self.first(input_values)))
        if self.loss is None or labels is None:
            return {"logits": logits}
        return {"loss": self.loss(logits, labels, attention_mask), "logits": logits}


class LossTrainer(Trainer):  # type: ignore[misc]
    """``compute_loss`` by ``own``, of logits, labels and mask."""

    own: Any = staticmethod(token_mean)
    loss_is_scaled_for_ga = False

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = type(self).own(outputs["logits"], labels, self.mask(outputs["logits"], inputs))
        return (loss, outputs) if return_outputs else loss

    def mask(self, logits: Any, inputs: Any) -> Any:
        return inputs.get("attention_mask")


class AcousticTrainer(LossTrainer):
    """Of a wav2vec2, whose frames are fewer than its values."""

    def mask(self, logits: Any, inputs: Any) -> Any:
        lengths = self.model._get_feat_extract_output_lengths(inputs["attention_mask"].sum(1))
        return torch.arange(logits.shape[1]) < lengths[:, None]


def trainer_of(loss: Loss, base: type = LossTrainer) -> type:
    return type(base.__name__, (base,), {"own": staticmethod(loss)})


class DistillingTrainer(LossTrainer):
    """The mean over clips of cross entropy and of the divergence from a frozen teacher's logits."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        with torch.no_grad():
            wanted = self.teacher(**inputs)["logits"]
        student, teacher = outputs["logits"][:, :8].mean(1), wanted[:, :8].mean(1)
        apart = F.kl_div(student.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")
        loss = F.cross_entropy(student, labels) + apart
        return (loss, {"logits": student}) if return_outputs else loss


def _with_teacher(trainer: Any) -> None:
    trainer.teacher = Tagger().requires_grad_(False).eval()


class InPlaceTrainer(LossTrainer):
    """Augments the batch that it is given."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        inputs["input_values"].mul_(0.7).add_(0.05)
        return super().compute_loss(model, inputs, *args, **kwargs)


class InPlaceLabelsTrainer(LossTrainer):
    """Shifts labels in the batch that it is given."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        labels = inputs["labels"]
        labels[labels >= 0] = (labels[labels >= 0] + 1) % CLASSES
        return super().compute_loss(model, inputs, *args, **kwargs)


class WeightedClipsTrainer(LossTrainer):
    """Each clip has a weight, and the loss is divided by those of the batch."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        weights, labels = inputs.pop("weight"), inputs.pop("labels")
        outputs = model(**inputs)
        losses = F.cross_entropy(outputs["logits"].transpose(1, 2), labels, ignore_index=-100, reduction="none").mean(1)
        loss = (weights * losses).sum() / weights.sum()
        return (loss, outputs) if return_outputs else loss


class QueueTrainer(LossTrainer):
    """Is told apart from what the batch before was."""

    last: Any = None

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        result = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        now = result[1]["logits"].mean((0, 1))
        apart = F.mse_loss(now, self.last) if self.last is not None else 0.0
        self.last = now.detach()
        loss = result[0] + apart
        return (loss, result[1]) if return_outputs else loss


class PenaltyLossTrainer(LossTrainer):
    """Adds the mean over clips of the loss's gradient by the inputs, squared."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        values, labels = inputs["input_values"].clone().requires_grad_(), inputs["labels"]
        with torch.enable_grad() if model.training else contextlib.nullcontext():
            outputs = model(**{**inputs, "input_values": values, "labels": None})
            loss = clip_mean(outputs["logits"], labels)
            if model.training:
                slope = torch.autograd.grad(loss * len(labels), values, create_graph=True)[0]
                loss = loss + slope.square().sum((1, 2)).mean()
        return (loss, outputs) if return_outputs else loss


class LoggingTrainer(LossTrainer):
    """Logs a part of its loss every second step."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        result = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        if self.is_in_train and self.state.global_step % 2 == 0 and model.training:
            self.log({"part": float(result[0].detach())})
        return result if return_outputs else result[0]


class PreparingTrainer(LossTrainer):
    """Prepares inputs in a way that must happen once."""

    def _prepare_inputs(self, inputs: Any) -> Any:
        prepared = super()._prepare_inputs(inputs)
        return {**prepared, "input_values": 0.5 * prepared["input_values"] + 0.1}


def tagger(loss: Loss = token_mean, own: bool = False, labels: str = "frames", **changes: Any) -> Kind:
    """The loss within the model, or in a ``compute_loss`` of the Trainer's ``own``."""
    made = {
        "model": (lambda: Tagger()) if own else (lambda: Tagger(loss)),
        "trainer": trainer_of(loss) if own else Trainer,
        "rows": frames(labels=labels),
        "collate": Pad(mask="input_values"),
        "rate": 0.3,
        "names": ("the loss", "compute_loss"),
    }
    return Kind(**{**made, **changes})


def _acoustic_ctc() -> Kind:
    rows = [{"input_values": torch.randn(600 + 20 * (7 * i % 10)), "labels": row["labels"]} for i, row in
            enumerate(frames(labels="text"))]  # fmt: skip
    trainer = trainer_of(ctc("mean"), AcousticTrainer)
    return tagger(model=lambda: wav2vec2("sum"), trainer=trainer, rows=rows, rate=1e-2, metrics=False)


def _given(loss: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    return lambda: {"compute_loss_func": loss}


def _by_items(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    total = F.cross_entropy(outputs["logits"].transpose(1, 2), labels, ignore_index=-100, reduction="sum")
    return total / (num_items_in_batch if num_items_in_batch is not None else (labels != -100).sum())


def _without_items(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    return token_mean(outputs["logits"], labels)


def _weighted() -> list[dict[str, Any]]:
    return [{**row, "weight": 0.1 + i % 3} for i, row in enumerate(frames())]


_IN_PLACE = ("in place", "compute_loss")
LOSSES: dict[str, Callable[[], Kind]] = {
    "loss: token mean in the model": tagger,
    "loss: clip mean in the model": lambda: tagger(clip_mean),
    "loss: sum in the model": lambda: tagger(token_sum),
    "compute_loss: token mean": lambda: tagger(own=True),
    "compute_loss: clip mean": lambda: tagger(clip_mean, own=True),
    "compute_loss: CTC mean, own head": lambda: tagger(ctc("mean"), own=True, labels="text"),
    "compute_loss: CTC sum, own head": lambda: tagger(ctc("sum"), own=True, labels="text", rate=1e-2),
    "compute_loss: CTC mean of a wav2vec2": _acoustic_ctc,
    "compute_loss: two heads": lambda: tagger(two_heads, own=True, labels="text"),
    "compute_loss: sum and mean": lambda: tagger(mixed_heads, own=True, labels="text"),
    "compute_loss: distillation": lambda: tagger(trainer=DistillingTrainer, labels="clip", prepare=_with_teacher,
                                                 model=Tagger),
    "compute_loss: focal": lambda: tagger(focal, own=True),
    "compute_loss: focal, normalised": lambda: tagger(normalised_focal, own=True),
    "compute_loss: class weights": lambda: tagger(class_weighted, own=True),
    "compute_loss: contrastive in the batch": lambda: tagger(contrastive, own=True, own_shape=True),
    "compute_loss: detached term": lambda: tagger(detached, own=True),
    "compute_loss: weighted clips": lambda: tagger(trainer=WeightedClipsTrainer, model=Tagger, rows=_weighted(),
                                                   own_shape=True),
    "compute_loss: batch before": lambda: tagger(trainer=QueueTrainer, model=Tagger, own_shape=True),
    "compute_loss: inputs changed in place": lambda: tagger(trainer=InPlaceTrainer, model=Tagger, names=_IN_PLACE),
    "compute_loss: labels changed in place": lambda: tagger(trainer=InPlaceLabelsTrainer, model=Tagger,
                                                            names=_IN_PLACE),
    "compute_loss: inputs changed in place, rule given": lambda: tagger(
        trainer=InPlaceTrainer, model=Tagger, names=_IN_PLACE, attach={"rule": "token_mean"}),
    "compute_loss_func: by items": lambda: tagger(model=Tagger, made=_given(_by_items)),
    "compute_loss_func: ignores items": lambda: tagger(model=Tagger, made=_given(_without_items)),
    "compute_loss: gradient penalty": lambda: tagger(trainer=PenaltyLossTrainer, model=Tagger),
    "compute_loss: logs its parts": lambda: tagger(trainer=LoggingTrainer, model=Tagger, own_shape=True,
                                                   rows=frames(equal=ROWS)),
    "inputs prepared once": lambda: tagger(trainer=PreparingTrainer, model=Tagger, names=("_prepare_inputs",)),
}  # fmt: skip
